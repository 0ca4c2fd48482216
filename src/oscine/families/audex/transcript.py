"""The words in an answer to "transcribe" (AUDEX spec, 6.6)."""

from __future__ import annotations

import re

PREAMBLE = 120
"""Characters within which a sentence around the transcript comes to its quote; later quotes are what was spoken."""

_OPENING = re.compile(r"(?<![^\W\d_])'")
_CLOSING = re.compile(r"'(?![^\W\d_])")
"""Quotes follow no letter, or stand before none: apostrophes inside words are no quotes."""


def clean_transcript(answer: str) -> str:
    """The transcript without the sentence around it: the outermost quoted payload, else the whole answer."""
    answer = answer.strip()
    opening = _OPENING.search(answer)
    if opening is None or opening.start() >= PREAMBLE:
        return answer
    last = max((closing.start() for closing in _CLOSING.finditer(answer)), default=0)
    return answer[opening.end() : last].strip() if last > opening.end() else answer


def is_bare(answer: str) -> bool:
    """Whether `answer`, which may go on, is sure to be the transcript itself, without a sentence around it."""
    begin = answer.lstrip()
    return len(begin) > PREAMBLE and _OPENING.search(begin[:PREAMBLE]) is None
