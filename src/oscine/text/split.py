"""Plans a long text as segments that a model speaks one after the other.

Segments end where a reader would pause: at a paragraph, a sentence, a clause; only if nothing else fits before a
conjunction or preposition, or at any word; between words that belong together (`oscine.text.groups`) or inside a word
only if it is too long by itself or its script writes no spaces.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from oscine.cancellation import check_cancelled
from oscine.text.clean import TextBlock, speakable
from oscine.text.groups import grouped
from oscine.text.scripts import is_mark, is_unspaced, script_of
from oscine.text.sentences import SentenceStream, paragraphs, sentences
from oscine.types import SegmentEnd

__all__ = ["Segment", "SentenceStream", "plan_pieces", "plan_segments", "sentences", "speech_weight"]

_WEIGHTS = {"han": 3.0, "kana": 2.0, "hangul": 3.0, "mark": 0.0}
_MIN_LIMIT = 12
_PARAGRAPH, _SENTENCE, _CLAUSE, _PHRASE, _WORD, _GROUP, _INSIDE = range(7)
_END_COST = {
    _PARAGRAPH: 0.0,
    _SENTENCE: 0.05,
    _CLAUSE: 0.3,
    _PHRASE: 2.0,
    _WORD: 2.5,
    _GROUP: 60.0,  # more than all that could be saved by parting words that belong together
    _INSIDE: 100.0,
}
_ALIGNED_WORDS = 400  # a longer sentence shows what is spoken instead of what is written
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
class Segment:
    """A part of a text: as written, as spoken, and what ends with it."""

    text: str
    spoken: str
    ends: SegmentEnd


@dataclass(frozen=True, kw_only=True)
class _Unit:
    """A stretch of text that is not broken again; `gap` stands before the next, `rank` is its end.

    `text` is what is spoken, and `written` how it stands in the text; empty where that is the same.
    """

    text: str
    written: str = ""
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
    units = [unit for paragraph in paragraphs(text) for unit in _paragraph_units(paragraph, max_chars, None)]
    return [unit.text for unit in _pack(units, max_chars)]


def plan_segments(
    blocks: Sequence[TextBlock],
    max_chars: int,
    *,
    normalize: Callable[[str], str] | None = None,
    by_sentence: bool = False,
) -> list[Segment]:
    """Returns the blocks of a text as segments; what is spoken of each has a `speech_weight` of at most `max_chars`.

    Sentences are found as the text is written and then spoken out by `normalize`, so that no cut falls inside what is
    read as one (a sum, a date). Paragraphs and headings are never joined, list items and the sentences of a paragraph
    are where they are short, unless `by_sentence` is set. What is spoken of a sentence may be nothing; a text with
    nothing speakable gives no segments. Raises ValueError if `max_chars` is below 12.
    """
    segments: list[Segment] = []
    for _, group in groupby(_numbered(blocks), key=lambda item: item[0]):
        parts = [block for _, block in group]
        if parts[0].kind == "scene_break":
            if segments:
                segments[-1] = replace(segments[-1], ends="scene_break")
            continue
        units = [unit for block in parts for unit in _paragraph_units(block.text, max_chars, normalize)]
        packed = _by_sentence(units, max_chars) if by_sentence else _pack(units, max_chars)
        segments += [
            Segment(text=unit.written or unit.text, spoken=unit.text, ends=_ENDS[unit.rank]) for unit in packed
        ]
        if packed:
            segments[-1] = replace(segments[-1], ends="heading" if parts[0].kind == "heading" else "paragraph")
    return segments


_ENDS: dict[int, SegmentEnd] = {
    _PARAGRAPH: "paragraph",
    _SENTENCE: "sentence",
    **dict.fromkeys((_CLAUSE, _PHRASE, _WORD, _GROUP, _INSIDE), "clause"),
}


def _numbered(blocks: Sequence[TextBlock]) -> list[tuple[int, TextBlock]]:
    """The blocks with a number that those have in common which may share a segment: list items in a row."""
    numbered: list[tuple[int, TextBlock]] = []
    for block in blocks:
        follows = bool(numbered) and block.kind == "item" and numbered[-1][1].kind == "item"
        numbered.append((numbered[-1][0] if follows else len(numbered), block))
    return numbered


def _paragraph_units(paragraph: str, limit: int, normalize: Callable[[str], str] | None) -> list[_Unit]:
    """The sentences of a paragraph as units, those that are too long as several; the last one ends the paragraph."""
    if limit < _MIN_LIMIT:
        raise ValueError(f"max_chars is {limit}; a piece needs room for at least {_MIN_LIMIT} characters")
    units: list[_Unit] = []
    for sentence in sentences(paragraph):
        check_cancelled()
        written = " ".join(sentence.split())
        spoken = written if normalize is None else " ".join(normalize(written).split())
        if spoken:
            units += _written_as(_sentence_units(spoken, limit), written)
    if units:
        units[-1] = replace(units[-1], rank=_PARAGRAPH, gap=" ")
    return units


def _written_as(units: list[_Unit], written: str) -> list[_Unit]:
    """The units of a spoken sentence with their shares of the written one, cut behind the word that both have."""
    if len(units) == 1:
        return [replace(units[0], written=written)]
    words = written.split(" ")
    spoken = [word for unit in units for word in unit.text.split(" ")]
    if spoken == words or len(words) > _ALIGNED_WORDS or len(spoken) > 4 * _ALIGNED_WORDS:
        return units
    matcher = difflib.SequenceMatcher(
        a=[_key(word) for word in spoken], b=[_key(word) for word in words], autojunk=False
    )
    ends = {a + k: b + k + 1 for a, b, size in matcher.get_matching_blocks() for k in range(size)}
    shares: list[_Unit] = []
    begin = position = 0
    for number, unit in enumerate(units):
        position += len(unit.text.split(" "))
        end = len(words) if number == len(units) - 1 else ends.get(position - 1, begin)
        if end <= begin and shares:  # nothing that both have ends here: its words stand with the unit before or after
            shares.append(replace(unit, written=unit.text))
        else:
            shares.append(replace(unit, written=" ".join(words[begin:end]) or unit.text))
        begin = max(begin, end)
    return shares


def _key(word: str) -> str:
    return word.strip(",;:.!?\"'()[]").lower()


def _sentence_units(sentence: str, limit: int) -> list[_Unit]:
    """The whole sentence as one unit, or the best cut of one that is too long."""
    gap = "" if sentence[-1] in "。！？｡」』）" else " "
    weight = speech_weight(sentence)
    if weight <= limit:
        return [_Unit(text=sentence, weight=weight, rank=_SENTENCE, gap=gap)]
    written = sentence.split(" ")
    words: list[_Unit] = []
    for word, following, together in zip(written, [*written[1:], ""], [*grouped(written), False], strict=True):
        words += _word_units(word, limit)
        if together:
            words[-1] = replace(words[-1], rank=_GROUP)
        elif words[-1].rank == _WORD and _PHRASE_START.fullmatch(following):
            words[-1] = replace(words[-1], rank=_PHRASE)
    words[-1] = replace(words[-1], rank=_SENTENCE, gap=gap)
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
    units[-1] = replace(units[-1], rank=rank, gap=" ")
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
    written = ""
    if any(unit.written for unit in units):
        written = "".join((unit.written or unit.text) + unit.gap for unit in units[:-1])
        written += units[-1].written or units[-1].text
    return replace(units[-1], text=text, written=written, weight=speech_weight(text))


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


def _pack(units: list[_Unit], limit: int) -> list[_Unit]:
    """The units joined as far as the limit allows and is worth it; those with nothing speakable are left out."""
    units = _absorb_marks(units, limit)
    packed = [_joined(units[first:last]) for first, last in _best_cut(units, limit)]
    return [unit for unit in packed if speakable(unit.text)]


def _by_sentence(units: list[_Unit], limit: int) -> list[_Unit]:
    """As `_pack`, but nothing is joined across the end of a sentence."""
    packed: list[_Unit] = []
    begin = 0
    for end, unit in enumerate(units, 1):
        if unit.rank in (_PARAGRAPH, _SENTENCE):
            packed += _pack(units[begin:end], limit)
            begin = end
    return packed
