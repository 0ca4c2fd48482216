"""Words that belong together: no break falls inside a number, between a title and a name, a number and its unit.

The rules hold for English as it is written and as it is spoken out, and for abbreviations and figures of any language
in Latin script.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from oscine.text.wordlist import word_set

_NUMBER_WORDS = word_set(
    """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion
    quadrillion oh first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
    fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth thirtieth fortieth fiftieth sixtieth
    seventieth eightieth ninetieth hundredth thousandth millionth half halves third thirds quarter quarters fourths
    fifths sixths sevenths eighths ninths tenths dozen
    """
)
_INSIDE_NUMBERS = word_set("and point a minus plus times over to per")
"""Words that join two numbers into one expression when they stand between them."""
_BEFORE_NUMBER = word_set(
    """
    minus negative number figure chapter page section part volume verse room platform gate flight route highway
    interstate level version article table appendix act scene line item step phase day unit exhibit paragraph bus track
    fig no vol pp ch sec art eq ex approx ca circa
    """
)
_MONTHS = word_set("january february march april may june july august september october november december")
_TITLES = word_set(
    """
    mr mrs ms mx dr prof st ste mt ft rev hon sen rep gov gen col maj capt lt sgt cpl cmdr adm pres supt fr sr jr messrs
    mmes mister missus miss doctor professor saint mount fort reverend senator governor general colonel major captain
    lieutenant sergeant president
    """
)
_FIGURE = re.compile(r"[(\[\"'“‘]{0,3}[-+~<>≈$€£¥₹]{0,3}\d")
_INITIALS = re.compile(r"(?:[A-Z]\.){1,6}|[A-Z]")
_EDGES = "\"'“”‘’()[]{}«»"
_STOPS = ",;:.!?…—–"


def grouped(words: Sequence[str]) -> list[bool]:
    """For each word but the last, whether it must not be parted from the next one.

    `words` are those of one sentence with their punctuation: "Mr." and "Jones", "five" "hundred" "and" "six"
    "dollars", "Fig." and "3", "N" "B" "A". A comma or another stop that is no abbreviation's parts all the same.
    """
    bare = [word.strip(_EDGES) for word in words]
    keys = [word.rstrip(_STOPS).lower() for word in bare]
    numbers = [_is_number(word, key) for word, key in zip(bare, keys, strict=True)]
    return [_joined(bare[place], keys, numbers, place) for place in range(len(words) - 1)]


def _joined(word: str, keys: Sequence[str], numbers: Sequence[bool], place: int) -> bool:
    key = keys[place]
    dotted = word.endswith(".")
    if word.endswith(",") and numbers[place] and numbers[place + 1]:
        return not _MONTHS.isdisjoint(keys[max(place - 2, 0) : place])  # March third, twenty twenty four
    if word[-1:] in _STOPS and not dotted:
        return False
    if key in _TITLES and (dotted or word[:1].isupper()):
        return True
    if _INITIALS.fullmatch(word) and word != "I":
        return True
    if numbers[place + 1] and (key in _BEFORE_NUMBER or key in _MONTHS):
        return True
    if dotted:
        return False
    joins_numbers = place + 2 < len(keys) and keys[place + 1] in _INSIDE_NUMBERS and numbers[place + 2]
    if numbers[place]:  # with the rest of the number, with its unit, or with what it counts
        return joins_numbers or keys[place + 1] not in _INSIDE_NUMBERS
    if key in _INSIDE_NUMBERS and numbers[place + 1]:  # six and a half, twelve dollars and fifty cents
        return any(numbers[max(place - 2, 0) : place])
    return joins_numbers and place > 0 and numbers[place - 1]


def _is_number(word: str, key: str) -> bool:
    return key in _NUMBER_WORDS or _FIGURE.match(word) is not None
