"""How long a reader pauses behind a paragraph, a heading and at a scene break."""

from __future__ import annotations

from collections.abc import Mapping

from oscine.types import Request, SegmentEnd

PAUSE_DEFAULTS: Mapping[str, float] = {"paragraph_pause_s": 0.35, "heading_pause_s": 0.7, "scene_pause_s": 1.5}
"""Seconds of silence added to what a model leaves of itself at the end of a sentence, by option."""

_OPTIONS: Mapping[SegmentEnd, str] = {
    "paragraph": "paragraph_pause_s",
    "heading": "heading_pause_s",
    "scene_break": "scene_pause_s",
}


def pause_after(end: SegmentEnd, request: Request) -> float:
    """Seconds of silence behind a segment: what the request asks for, else the default; none inside a paragraph."""
    option = _OPTIONS.get(end)
    if option is None:
        return 0.0
    asked: float | None = getattr(request, option)
    return PAUSE_DEFAULTS[option] if asked is None else asked
