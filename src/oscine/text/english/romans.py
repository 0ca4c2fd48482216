"""Roman numerals in words: `Henry VIII`, `Charles III's`, `World War II`, `Scene iii`, `XXI century`, `II and III`."""

from __future__ import annotations

import re

from oscine.text.english.numerals import cardinal, ordinal, roman
from oscine.text.sentences import SENTENCE_STARTERS
from oscine.text.wordlist import word_set

_ROYAL = word_set(
    """
    Henry Edward George William Charles James Richard John Louis Philip Elizabeth Mary Catherine Peter Alexander
    Nicholas Frederick Ferdinand Alfonso Leopold Wilhelm Victoria Anne Ivan Paul Pius Benedict Gregory Leo Clement
    Innocent Urban Napoleon Ramesses Ramses Ptolemy Cleopatra Xerxes Darius Rudolf Maximilian Joseph Francis Christian
    Gustav Harald Haakon Olaf Baudouin Albert Isabella Umberto Emmanuel Sixtus Boniface Julius Otto Constantine
    """
)
NO_NUMERAL = "\u2060"
"""Stands behind a letter that is an initial; a reader does not see it (WORD JOINER)."""
_PARTS = word_set(
    """
    Chapter Part Volume Section Act Scene Type Phase War Bowl Title Class Level Book Appendix Article Stage Grade
    Episode Season Figure Table Unit Lesson Step Option Schedule Category Round Mark chapter part volume section act
    scene type phase title class level book appendix article stage grade episode season figure table unit category
    """
)
_NOT_ROMAN = frozenset(
    {"MD", "CD", "DC", "MC", "CV", "DI", "DM", "CC", "MI", "LCD", "MM", "CM", "ID", "CI", "MV", "DIM", "MIX"}
)
_ROMAN_WORD = re.compile(r"\b([A-Za-z][A-Za-z'-]{1,60})(\s+)([IVXLCDM]+)\b(?!'(?!s\b)|\.\w|-\w|\u2060)")
_SMALL = re.compile(
    r"\b([Cc]hapter|[Pp]art|[Vv]olume|[Ss]ection|[Aa]ct|[Ss]cene|[Pp]hase|[Ss]tage|[Aa]ppendix|[Pp]age)\s+"
    r"(ii|iii|iv|vi|vii|viii|ix|xi|xii|xiii|xiv|xv)\b(?!['.]\w|-\w)"
)
_CENTURY = re.compile(r"\b([IVX]+)(?:st|nd|rd|th)?(?=\s+[Cc]entur(?:y|ies)\b)")
_WORLD_WAR = re.compile(r"\bWW\s?(II|I|2|1)\b")
_SURE = r"II|III|VII|VIII|XII|XIII|XIV|XVI|XVII|XVIII|XIX|XXI|XXII|XXIII"
_LONE = re.compile(rf"(?<![\w.&'/-])({_SURE})\b(?!['.&/]\w|-\w)")
_LONE_UNSURE = re.compile(r"(?<![\w.&'/-])(IV|VI|IX|XI|XV|XX)\b(?!['.&/]\w|-\w)")
_ONE = re.compile(rf"(?<![\w.&'/-])I(?=(?:,|\s(?:and|or|to|through))\s(?:{_SURE})\b|[-–](?:{_SURE})\b)")

_LETTERS = frozenset("CDLM")
"""Single letters that name a part, a class or a vitamin and hardly ever number one."""
_INITIAL = re.compile(r"\.\s{1,3}([A-Z][a-z']{1,40})")
_VERB_NEXT = re.compile(
    r"\s{1,20}(?:am|was|have|had|do|did|don't|didn't|can|could|will|would|want(?:ed)?|lik(?:e|ed)|lov(?:e|ed)|need(?:ed)?"
    r"|know|knew|think|thought|read|wrote|write|bought|buy|g[eo]t|see|saw|found|find|ma[dk]e|use|used|lost|gave|give|told"
    r"|said|mean|meant|play|played|hate|hated|enjoy|enjoyed|finished|started|borrowed|never|always|just|really|once)\b",
    re.IGNORECASE,
)
_NUMERAL_NEXT = re.compile(r"[,.;:)!?]|$|\s{1,20}(?:of|and|to|through|or|in|is|begins|ends|opens|the)\b")
_SMALL_NEXT = re.compile(r"\s{1,20}[a-z']")
_NO_NOUN_NEXT = re.compile(r"\s{1,20}(?:of|was|and|in|had|died)\b")


def say_roman_numerals(text: str) -> str:
    """Returns the text with the numerals of monarchs and centuries as ordinals, all others as cardinals.

    Letters that are no numeral to a reader (`MD`, `IV drip`, `I`) stay, unless others around them are.
    """
    text = _WORLD_WAR.sub(lambda m: "World War " + ("two" if m[1] in ("II", "2") else "one"), text)
    text = _CENTURY.sub(lambda m: m[0] if roman(m[1]) is None else ordinal(roman(m[1]) or 0), text)
    text = _ROMAN_WORD.sub(_roman, text)
    text = _SMALL.sub(lambda m: f"{m[1]} {cardinal(roman(m[2].upper()) or 0)}", text)
    if _LONE.search(text) is None:
        return text
    for pattern in (_ONE, _LONE_UNSURE, _LONE):
        text = pattern.sub(lambda m: cardinal(roman(m[0]) or 0), text)
    return text


def _roman(match: re.Match[str]) -> str:
    word, gap, numeral = match.groups()
    text, end = match.string, match.end()
    value = roman(numeral)
    if value is None or numeral in _NOT_ROMAN or value > 120 or numeral in _LETTERS or _is_initial(match):
        return match.group()
    shouted = word.isupper() and (len(numeral) > 1 or not _VERB_NEXT.match(text, end))
    word_as_listed = word.capitalize() if shouted else word
    if word_as_listed in _ROYAL and (word == word_as_listed or len(numeral) > 1):
        if numeral == "I" and _SMALL_NEXT.match(text, end) and not _NO_NOUN_NEXT.match(text, end):
            return match.group()
        return f"{word}{gap}the {ordinal(value)}"
    if numeral == "I" and word in _PARTS and _is_pronoun(word, text, end):
        return match.group()
    if word_as_listed in _PARTS or (len(numeral) > 1 and word[0].isupper() and not word.isupper()):
        return word + gap + cardinal(value)
    return match.group()


def _is_initial(match: re.Match[str]) -> bool:
    """Whether a single letter with a stop before another name is an initial: `George C. Harris`."""
    following = _INITIAL.match(match.string, match.end()) if len(match[3]) == 1 else None
    return following is not None and following[1].lower() not in SENTENCE_STARTERS


def _is_pronoun(word: str, text: str, end: int) -> bool:
    """Whether `I` behind the name of a part is who speaks: `the book I read`, but not `Chapter I begins`."""
    if word[0].isupper():
        return _VERB_NEXT.match(text, end) is not None
    return _NUMERAL_NEXT.match(text, end) is None
