"""Plans a long text as pieces that a model speaks one after the other.

Pieces end where a reader would pause: at a paragraph, a sentence, a clause; only if nothing else fits before a
conjunction or preposition, or at any word, and inside a word only if the word itself is too long or its script writes
no spaces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from oscine.cancellation import check_cancelled
from oscine.text.clean import speakable
from oscine.text.scripts import is_mark, is_unspaced, script_of
from oscine.text.sentences import SentenceStream, paragraphs, sentences

__all__ = ["SentenceStream", "plan_pieces", "sentences", "speech_weight"]

_WEIGHTS = {"han": 3.0, "kana": 2.0, "hangul": 3.0, "mark": 0.0}
_MIN_LIMIT = 12
_PARAGRAPH, _SENTENCE, _CLAUSE, _PHRASE, _WORD, _INSIDE = range(6)
_END_COST = {_PARAGRAPH: 0.0, _SENTENCE: 0.05, _CLAUSE: 0.3, _PHRASE: 2.0, _WORD: 2.5, _INSIDE: 4.0}
_PIECE_COST = 0.5  # fewer pieces where all else is equal
_CROSSING_COST = 0.3  # a paragraph end inside a piece
_CLAUSE_END = re.compile(r"[,;:—–]['\"”’)\]]*$|[)\]]$|^[-–—]$")
_PHRASE_START = re.compile(
    "and|or|but|nor|so|yet|that|which|who|whom|whose|because|although|though|when|while|where|whether|if|as|since|unless"
    "|until|before|after|than|to|of|in|on|at|by|for|from|with|without|into|over|under|through|about|between|during",
    re.IGNORECASE,
)
"""English words that begin a part of a sentence: before one of them a reader may take a breath."""
_CJK_STOPS = "。！？；、，：｡､"
_NO_BREAK_BEFORE = frozenset("。！？；、，：｡､」』）》】〉”’…ー々%.,!?;:)]}\"'")
_NO_BREAK_AFTER = frozenset("「『（《【〈“‘([{")


@dataclass(frozen=True, kw_only=True)
class _Unit:
    """A stretch of text that is not broken again; `gap` stands before the next, `rank` is its end."""

    text: str
    weight: float
    rank: int
    gap: str


def speech_weight(text: str) -> float:
    """Returns how long a text is to say, in Latin letters: 1 a character, 3 an ideograph, 2 a kana."""
    if text.isascii():
        return float(len(text))
    return sum(_WEIGHTS.get(script_of(char), 1.0) for char in text)


def plan_pieces(text: str, max_chars: int) -> list[str]:
    """Returns the text as pieces whose `speech_weight` is at most `max_chars`, in order.

    Every word of the text is in exactly one piece, none is empty, and lengths are balanced rather than
    greedy, so no tiny last piece is left where it can be avoided. White space inside a piece is one space.
    A text with nothing speakable gives no pieces. Raises ValueError if `max_chars` is below 12, and Cancelled.
    """
    if max_chars < _MIN_LIMIT:
        raise ValueError(f"max_chars is {max_chars}; a piece needs room for at least {_MIN_LIMIT} characters")
    units = []
    for paragraph in paragraphs(text):
        for sentence in sentences(paragraph):
            check_cancelled()
            units.extend(_sentence_units(" ".join(sentence.split()), max_chars))
        units[-1] = _ending(units[-1], _PARAGRAPH)
    return [piece for piece in _pack(_absorb_marks(units, max_chars), max_chars) if speakable(piece)]


def _sentence_units(sentence: str, limit: int) -> list[_Unit]:
    """The whole sentence as one unit, or the best cut of one that is too long."""
    gap = "" if sentence[-1] in "。！？｡」』）" else " "
    weight = speech_weight(sentence)
    if weight <= limit:
        return [_Unit(text=sentence, weight=weight, rank=_SENTENCE, gap=gap)]
    written = sentence.split(" ")
    words: list[_Unit] = []
    for word, following in zip(written, [*written[1:], ""], strict=True):
        words += _word_units(word, limit)
        if words[-1].rank == _WORD and _PHRASE_START.fullmatch(following):
            words[-1] = replace(words[-1], rank=_PHRASE)
    words[-1] = _Unit(text=words[-1].text, weight=words[-1].weight, rank=_SENTENCE, gap=gap)
    return [_joined(words[first:last]) for first, last in _best_cut(words, limit)]


def _word_units(word: str, limit: int) -> list[_Unit]:
    """The word as one unit; unspaced scripts and giant words are cut wherever they may be."""
    rank = _CLAUSE if _CLAUSE_END.search(word) else _WORD
    weight = speech_weight(word)
    if weight <= limit and (word.isascii() or not any(is_unspaced(char) for char in word)):
        return [_Unit(text=word, weight=weight, rank=rank, gap=" ")]
    parts: list[str] = []
    used = 0.0
    for char in word:
        own = speech_weight(char)
        whole = bool(parts) and (is_mark(char) or not _may_break(parts[-1][-1], char, weight > limit))
        if parts and parts[-1][-1] not in _NO_BREAK_BEFORE and used + own <= limit / 16:
            whole = True  # steps of one character are finer than needed
        if whole and used + own <= limit:
            parts[-1] += char
            used += own
        else:
            parts.append(char)
            used = own
    units = [
        _Unit(text=part, weight=speech_weight(part), rank=_CLAUSE if part[-1] in _CJK_STOPS else _INSIDE, gap="")
        for part in parts
    ]
    units[-1] = _Unit(text=units[-1].text, weight=units[-1].weight, rank=rank, gap=" ")
    return units


def _may_break(before: str, after: str, too_long: bool) -> bool:
    if after in _NO_BREAK_BEFORE or before in _NO_BREAK_AFTER:
        return False
    if before.isdigit() and after.isdigit():
        return False
    return is_unspaced(before) or is_unspaced(after) or (too_long and not (before.isascii() and before.isdigit()))


def _best_cut(units: list[_Unit], limit: int) -> list[tuple[int, int]]:
    """Returns [first, last) ranges of units, within the limit, of least cost (dynamic programming)."""
    best = [0.0] + [float("inf")] * len(units)
    came_from = [0] * (len(units) + 1)
    steps = [(unit.weight, len(unit.gap), _END_COST[unit.rank], unit.rank == _PARAGRAPH) for unit in units]
    for first in range(len(units)):
        weight = 0.0
        base = best[first] + _PIECE_COST
        for last in range(first, len(units)):
            own, gap, end_cost, ends_paragraph = steps[last]
            weight += own
            if weight > limit and last > first:
                break
            cost = base + (1 - min(weight / limit, 1.0)) ** 2 + end_cost
            if cost < best[last + 1]:
                best[last + 1], came_from[last + 1] = cost, first
            weight += gap
            if ends_paragraph:
                base += _CROSSING_COST
    ranges = []
    last = len(units)
    while last:
        ranges.append((came_from[last], last))
        last = came_from[last]
    return ranges[::-1]


def _joined(units: list[_Unit]) -> _Unit:
    text = "".join(unit.text + unit.gap for unit in units[:-1]) + units[-1].text
    return _Unit(text=text, weight=speech_weight(text), rank=units[-1].rank, gap=units[-1].gap)


def _ending(unit: _Unit, rank: int) -> _Unit:
    return _Unit(text=unit.text, weight=unit.weight, rank=rank, gap=" ")


def _absorb_marks(units: list[_Unit], limit: int) -> list[_Unit]:
    """Joins units that hold only punctuation to a neighbour, so that no piece is mute."""
    merged: list[_Unit] = []
    for unit in units:
        mute = merged and not (speakable(unit.text) and speakable(merged[-1].text))
        if mute and merged[-1].weight + len(merged[-1].gap) + unit.weight <= limit:
            merged[-1] = _joined([merged[-1], unit])
        else:
            merged.append(unit)
    return merged


def _pack(units: list[_Unit], limit: int) -> list[str]:
    return [_joined(units[first:last]).text for first, last in _best_cut(units, limit)]
