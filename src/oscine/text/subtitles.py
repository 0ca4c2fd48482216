"""Subtitles: cues with exact times, as SubRip (`srt`) and WebVTT (`vtt`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

SubtitleFormat = Literal["srt", "vtt"]


@dataclass(frozen=True, kw_only=True)
class Cue:
    """Words and when they are heard, in seconds."""

    text: str
    start_s: float
    end_s: float


def write_subtitles(cues: Iterable[Cue], format: SubtitleFormat) -> str:
    """The cues as the text of a subtitle file, numbered from 1; cues without words are left out.

    In WebVTT, what would be markup is escaped (section 6.4 of its recommendation); neither format can hold an empty
    line within a cue, so white space is joined.
    """
    return "".join(_srt(cues) if format == "srt" else _vtt(cues))


def _srt(cues: Iterable[Cue]) -> Iterator[str]:
    for number, (cue, text) in enumerate(_spoken(cues), 1):
        yield f"{number}\n{_clock(cue.start_s, ',')} --> {_clock(cue.end_s, ',')}\n{text}\n\n"


def _vtt(cues: Iterable[Cue]) -> Iterator[str]:
    yield "WEBVTT\n\n"
    for number, (cue, text) in enumerate(_spoken(cues), 1):
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        yield f"{number}\n{_clock(cue.start_s, '.')} --> {_clock(cue.end_s, '.')}\n{escaped}\n\n"


def _spoken(cues: Iterable[Cue]) -> Iterator[tuple[Cue, str]]:
    return ((cue, text) for cue in cues if (text := " ".join(cue.text.split())))


def _clock(seconds: float, mark: str) -> str:
    """Hours, minutes, seconds and, behind `mark`, milliseconds."""
    minutes, milliseconds = divmod(round(1000 * seconds), 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{milliseconds // 1000:02}{mark}{milliseconds % 1000:03}"
