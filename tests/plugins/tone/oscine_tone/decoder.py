"""Frequencies become a sine whose phase goes on across frames, so that it is the same however it is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oscine.types import Decoder, Samples
from oscine_tone.model import ToneConfig


class ToneDecoder(Decoder):
    """One job's sine."""

    def __init__(self, config: ToneConfig) -> None:
        self._config = config
        self._phase = 0.0

    def push(self, frames: Sequence[Any]) -> Samples:
        return np.concatenate([self._frame(frequency) for frequency in frames])

    def flush(self) -> Samples:
        return np.zeros(0, np.float32)

    def _frame(self, frequency: float) -> Samples:
        turns = self._phase + frequency / self._config.sample_rate * np.arange(1, self._config.hop_length + 1)
        self._phase = float(turns[-1] % 1.0)
        return (0.3 * np.sin(2 * np.pi * turns)).astype(np.float32)
