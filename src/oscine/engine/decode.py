"""Frames → samples on a fixed grid: the decoder is called with the same runs of frames whoever listens.

The grid depends on a frame's index alone, so streaming and whole results are the very same calls, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from oscine.errors import NonFiniteOutput
from oscine.types import Decoder, Samples


class GridDecoder:
    """Feeds one job's accepted frames to its decoder in runs of `sizes` (the last size repeats)."""

    def __init__(self, decoder: Decoder, sizes: Sequence[int]) -> None:
        if not sizes or min(sizes) < 1:
            raise ValueError(f"chunk sizes must be positive, got {tuple(sizes)}")
        self._decoder = decoder
        self._sizes = tuple(sizes)
        self._runs = 0
        self._pending: list[Any] = []

    def push(self, frames: Sequence[Any]) -> Iterator[Samples]:
        """Adds frames and yields the samples of every run they complete."""
        self._pending.extend(frames)
        while len(self._pending) >= (size := self._sizes[min(self._runs, len(self._sizes) - 1)]):
            run, self._pending = self._pending[:size], self._pending[size:]
            self._runs += 1
            yield _finite(self._decoder.push(run))

    def finish(self) -> Iterator[Samples]:
        """Decodes what is left and the decoder's own tail."""
        if self._pending:
            run, self._pending = self._pending, []
            yield _finite(self._decoder.push(run))
        yield _finite(self._decoder.flush())


def _finite(samples: Samples) -> Samples:
    if not np.isfinite(samples).all():
        raise NonFiniteOutput("the decoder produced NaN or infinite samples; try dtype='float32'")
    return samples
