"""What the words around an amount say of it: whether it stands before a noun, as in `a $5 bill` and `the 10 km run`."""

from __future__ import annotations

import re

from oscine.text.wordlist import word_set

_ARTICLE = re.compile(r"(?:^|[\s(\"'])[Aa]n?\s+$")
_DETERMINER = re.compile(
    r"(?:^|[\s(\"'])(?:the|this|that|each|every|another|my|your|his|her|its|our|their)\s+$", re.IGNORECASE
)
_NEXT_WORD = re.compile(r"[ -]([a-z]{2,})\b(?!')")
_NO_NOUN = word_set(
    """
    of in on at to from for by with without per and or but nor than as if when while because so then that which who
    whose whom where what is was were are be been am has have had do does did will would can could shall should may
    might must he she it we you they me him them us is not never always only just even also still already ever again
    more less each apiece total ago before after during until since over under above below between off up down out into
    onto away back long wide tall high deep thick across apart north south east west here there now today later
    went came left got made paid cost costs goes comes means makes seems gave took bought
    """
)


def is_attributive(match: re.Match[str], bare_nouns: frozenset[str] = frozenset()) -> bool:
    """Whether the amount that `match` found qualifies a noun, so that its unit is in the singular.

    It does after `a`, after another determiner if a noun can follow, and before one of `bare_nouns`.
    """
    before = match.string[max(match.start() - 12, 0) : match.start()]
    if _ARTICLE.search(before):
        return True
    following = _NEXT_WORD.match(match.string, match.end())
    if following is None:
        return False
    word = following[1]
    if word in bare_nouns:
        return True
    return _DETERMINER.search(before) is not None and word not in _NO_NOUN and not word.endswith("ed")
