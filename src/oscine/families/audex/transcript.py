"""The words in an answer to "transcribe" (AUDEX spec, 6.6)."""

from __future__ import annotations

import re

_QUOTED = re.compile(r"(?<![^\W\d_])'(?P<words>.+)'(?![^\W\d_])", re.DOTALL)
"""From a quote that follows no letter to the last one before no letter: apostrophes inside words are no quotes."""


def clean_transcript(answer: str) -> str:
    """The transcript without the sentence around it: the outermost quoted payload, else the whole answer."""
    match = _QUOTED.search(answer)
    return (match["words"] if match else answer).strip()
