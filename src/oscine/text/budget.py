"""How long a text takes to say: the estimate behind frame budgets.

Rates are round figures of read speech: Latin script 15 characters a second, Chinese 4.5 ideographs,
Japanese 7.5 kana, Korean 5.5 syllables. Digits, symbols and spelled letters cost a word or a syllable each.
"""

from __future__ import annotations

import re

from oscine.text.scripts import script_of

_SECONDS = {
    "latin": 1 / 15,
    "other": 1 / 12,
    "han": 1 / 4.5,
    "kana": 1 / 7.5,
    "hangul": 1 / 5.5,
    "digit": 0.34,
    "space": 1 / 15,
    "mark": 0.02,
}
_SPOKEN_SYMBOLS = frozenset("%$€£¥₹&@+=#/<>°*^~|\\_")
_SPOKEN_SYMBOL_S = 0.4
_SPELLED_LETTER_S = 0.28
_CLAUSE_PAUSE_S = 0.2
_SENTENCE_PAUSE_S = 0.45
_EDGES_S = 0.6
_SPELLED = re.compile(r"(?<![^\W_])(?:[A-Z][A-Z0-9]{1,5}|[A-Za-z])(?:'?s)?(?![^\W_])")
_NOT_SPELLED = frozenset({"I", "a", "A"})
_CLAUSE_MARKS = re.compile(r"[,;:—–、，；：](?!\d)")
_SENTENCE_MARKS = re.compile(r"(?<![.!?…。！？])[.!?…。！？]++(?=[\s\"')\]]|$)|[。！？]|\n\s*\n")
_SLOWEST = 2.2  # the slowest reading that is still plausible, against the estimate
_SLACK_S = 1.5


def expected_seconds(text: str) -> float:
    """Returns the seconds a text takes at an ordinary pace, with pauses and edge silence; 0 if empty."""
    text = text.strip()
    if not text:
        return 0.0
    total = _EDGES_S
    for char in text:
        kind = script_of(char)
        if kind == "symbol":
            total += _SPOKEN_SYMBOL_S if char in _SPOKEN_SYMBOLS else 0.0
        else:
            total += _SECONDS[kind]
    for match in _SPELLED.finditer(text):
        if match.group() not in _NOT_SPELLED:
            letters = sum(char.isupper() for char in match.group()) or 1
            total += letters * (_SPELLED_LETTER_S - _SECONDS["latin"])
    total += _CLAUSE_PAUSE_S * len(_CLAUSE_MARKS.findall(text))
    return total + _SENTENCE_PAUSE_S * max(len(_SENTENCE_MARKS.findall(text)) - 1, 0)


def max_seconds(text: str) -> float:
    """Returns a generous bound: slow speech with long pauses, plus 1.5 s; beyond it something is wrong."""
    return _SLOWEST * expected_seconds(text) + _SLACK_S
