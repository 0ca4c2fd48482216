"""What of a recording is accepted, and how what is not is refused."""

from __future__ import annotations

from dataclasses import dataclass

from oscine.audio.resample import MAX_RATE
from oscine.errors import BadAudio

REFERENCE_SECONDS = (0.5, 60.0)
"""Shortest and longest reference audio by default."""
MAX_BYTES = 256 << 20
MIN_RATE = 4_000
MAX_CHANNELS = 64
SILENCE_DBFS = -60.0


@dataclass(frozen=True, kw_only=True)
class ReadLimits:
    """What is accepted of a recording: seconds, bytes, channels. `param` is the request field that errors name."""

    min_seconds: float = REFERENCE_SECONDS[0]
    max_seconds: float | None = REFERENCE_SECONDS[1]
    max_bytes: int = MAX_BYTES
    max_channels: int = MAX_CHANNELS
    param: str = "ref_audio"

    def check_header(self, rate: float, num_channels: int, num_frames: int | None) -> None:
        """Raises BadAudio for a rate in Hz, a number of channels or a stated length that is not read.

        Sizes come from the header of a file alone, so nothing has been decoded by then.
        """
        if not MIN_RATE <= rate <= MAX_RATE or rate != int(rate):
            raise self.refuse(f"the sample rate is {rate} Hz; from {MIN_RATE} to {MAX_RATE} Hz is read")
        if not 1 <= num_channels <= self.max_channels:
            raise self.refuse(f"the audio has {num_channels} channels; from 1 to {self.max_channels} are read")
        if num_frames is not None and not self.holds(num_frames, rate):
            raise self.too_long(num_frames / rate, rate)

    def holds(self, num_samples: int, rate: float) -> bool:
        """Whether audio of so many samples is not too long."""
        return self.max_seconds is None or num_samples <= self.max_seconds * rate

    def refuse(self, problem: str) -> BadAudio:
        """The error that says what is wrong with the audio."""
        return BadAudio(f"{self.param}: {problem}", param=self.param)

    def too_long(self, seconds: float | None, rate: float) -> BadAudio:
        """The error for audio longer than `max_seconds`; None if nobody knows how long it is."""
        length = f"more than {self.max_seconds:g} s" if seconds is None else f"{seconds:.1f} s"
        return self.refuse(
            f"the audio is {length} long at {rate:g} Hz; the limit is {self.max_seconds:g} s. "
            "Cut out 5 to 15 s of clear speech"
        )
