"""The words in an answer to "transcribe" (AUDEX spec, 6.6)."""

from __future__ import annotations

import re

PREAMBLE = 120
"""Characters within which a sentence around the transcript comes to its quote; later quotes are what was spoken."""

_OPENING = r"(?<![^\W\d_])'"
_QUOTED = re.compile(rf"{_OPENING}(?P<words>.+)'(?![^\W\d_])", re.DOTALL)
"""From a quote that follows no letter to the last one before no letter: apostrophes inside words are no quotes."""


def clean_transcript(answer: str) -> str:
    """The transcript without the sentence around it: the outermost quoted payload, else the whole answer."""
    answer = answer.strip()
    match = _QUOTED.search(answer)
    return match["words"].strip() if match and match.start() < PREAMBLE else answer


def is_bare(answer: str) -> bool:
    """Whether `answer`, which may go on, is sure to be the transcript itself, without a sentence around it."""
    begin = answer.lstrip()
    return len(begin) > PREAMBLE and re.search(_OPENING, begin[:PREAMBLE]) is None
