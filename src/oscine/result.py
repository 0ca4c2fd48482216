"""What a finished request comes to: its audio and words, how it ended, and how long it took."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from oscine.audio.write import write_audio
from oscine.types import FinishReason, Samples, SegmentEnd


@dataclass(frozen=True, kw_only=True)
class PieceReport:
    """How one piece of a request went."""

    text: str
    spoken_text: str
    finish_reason: FinishReason
    num_frames: int
    attempts: int
    seed: int
    start_s: float
    duration_s: float
    ends: SegmentEnd = "paragraph"
    """What ends with its text."""


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Wall times of a request in seconds; `rtf` is total time over audio time."""

    queued_s: float
    first_audio_s: float
    total_s: float
    audio_s: float

    @property
    def rtf(self) -> float:
        """Seconds of work for one second of audio; infinite when there is no audio."""
        return self.total_s / self.audio_s if self.audio_s else float("inf")


@dataclass(frozen=True, kw_only=True)
class Result:
    """A finished generation. `finish_reason` is the worst of the pieces'; `seed` repeats it exactly."""

    audio: Samples
    sample_rate: int
    finish_reason: FinishReason
    seed: int
    timings: Timings
    pieces: tuple[PieceReport, ...]
    usage: dict[str, int] = field(default_factory=dict)
    text: str = ""
    """What the model said in words, for tasks that answer in text (`converse` answers in both)."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the audio in the format of the path's suffix; whole or not at all. Raises `OutputError`."""
        write_audio(path, self.audio, self.sample_rate, seed=self.seed)
