"""The dimensions of a spectral codec, the second kind of decoder that a `codec_config` can choose."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from oscine.checkpoint.config import MOST, MOST_LAYERS
from oscine.checkpoint.json_text import shown
from oscine.errors import ConfigMismatch

KIND = "spectral"
"""Value of the key `kind` in a `codec_config` that describes this codec."""

MAY_BE_ZERO = frozenset({"advance_codebook", "advance_begin", "bend_codebook", "bend_begin"})
BUILT_ONE_BY_ONE = frozenset({"num_codebooks", "num_blocks"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpectralConfig:
    """Dimensions of a `SpectralCodec`; all are integers, and the defaults are those of the default voice.

    Lengths are in samples, `lookahead` in frames. The pitch is read from two codebooks: an advance code
    `advance_begin + n` (n < `advance_count`) moves the phase on by n / `cycle_units` cycles in its frame, a bend code
    `bend_begin + bend_count / 2 + n` puts it n / `cycle_units` cycles ahead of half of that in the middle. Raises
    ConfigMismatch when values do not fit each other.
    """

    sample_rate: int = 24000
    frame_length: int = 1200
    num_codebooks: int = 5
    codebook_size: int = 1152
    codebook_dim: int = 64
    dim: int = 448
    hidden_dim: int = 1344
    num_blocks: int = 8
    steps_per_frame: int = 4
    fft_length: int = 600
    hop_length: int = 150
    lookahead: int = 4
    advance_codebook: int = 2
    advance_begin: int = 256
    advance_count: int = 640
    bend_codebook: int = 4
    bend_begin: int = 1024
    bend_count: int = 128
    cycle_units: int = 32

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            least = 0 if name in MAY_BE_ZERO else 1
            if type(value) is not int or value < least:
                raise ConfigMismatch(f"codec_config: {name} must be an integer >= {least}, got {shown(value)}")
            most = MOST_LAYERS if name in BUILT_ONE_BY_ONE else MOST
            if value > most:
                raise ConfigMismatch(f"codec_config: {name} must be at most {most}, got {shown(value)}")
        for problem, broken in self._relations().items():
            if broken:
                raise ConfigMismatch(f"codec_config: {problem}")

    def _relations(self) -> dict[str, bool]:
        """Statement of each rule between fields → whether it is broken."""
        unit = self.steps_per_frame * self.hop_length
        return {
            f"frame_length must be a multiple of steps_per_frame * hop_length = {unit}": bool(self.frame_length % unit),
            "fft_length must be an even multiple of hop_length, at least 4 times as long": bool(
                self.fft_length % (2 * self.hop_length) or self.fft_length < 4 * self.hop_length
            ),
            "lookahead frames must be longer than fft_length": self.lookahead * self.frame_length <= self.fft_length,
            "frame_length must be even": bool(self.frame_length % 2),
            "bend_count must be even": bool(self.bend_count % 2),
            f"advance_codebook and bend_codebook must be below num_codebooks = {self.num_codebooks}": max(
                self.advance_codebook, self.bend_codebook
            )
            >= self.num_codebooks,
            f"advance codes must lie below codebook_size = {self.codebook_size}": self.advance_begin
            + self.advance_count
            > self.codebook_size,
            f"bend codes must lie below codebook_size = {self.codebook_size}": self.bend_begin + self.bend_count
            > self.codebook_size,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SpectralConfig:
        """Config from parsed JSON; absent names keep their default, the key `kind` is not looked at.

        Raises ConfigMismatch for an unknown key, a wrong type or a value out of range.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known - {"kind"})
        if unknown:
            raise ConfigMismatch(f"codec_config: unknown keys {unknown}; known are {sorted(known | {'kind'})}")
        return cls(**{name: value for name, value in values.items() if name != "kind"})

    @property
    def frame_rate(self) -> float:
        """Code frames per second, Hz."""
        return self.sample_rate / self.frame_length

    @property
    def encodes(self) -> bool:
        """Never: the codec speaks and cannot turn audio into codes."""
        return False

    @property
    def warm_up_frames(self) -> int:
        """None: what comes before the first code's sound is dropped by the codec itself."""
        return 0

    @property
    def lag_frames(self) -> int:
        """By how many frames the audio of a stream comes after its codes."""
        return self.lookahead

    @property
    def spectra_per_step(self) -> int:
        """Spectra, one every `hop_length` samples, that one step of the trunk describes."""
        return self.frame_length // (self.steps_per_frame * self.hop_length)

    @property
    def num_bins(self) -> int:
        """Frequencies of a spectrum."""
        return self.fft_length // 2 + 1
