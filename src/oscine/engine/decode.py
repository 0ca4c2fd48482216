"""Frames → samples on a fixed grid: the decoder is called with the same runs of frames whoever listens.

The grid depends on a frame's index alone, so streaming and whole results are the very same calls, bit for bit. Which
jobs' runs share a call of a joint decoder is another matter: it changes nothing but the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from oscine.errors import NonFiniteOutput
from oscine.types import Decoder, JointDecoder, Samples

PATIENCE = 5
"""Steps that a run of the last size may wait for runs of other jobs."""


class GridDecoder:
    """Feeds one job's accepted frames to its decoder in runs of `sizes` (the last size repeats)."""

    def __init__(self, decoder: Decoder, sizes: Sequence[int]) -> None:
        if not sizes or min(sizes) < 1:
            raise ValueError(f"chunk sizes must be positive, got {tuple(sizes)}")
        self.decoder = decoder
        self._sizes = tuple(sizes)
        self._runs = 0
        self._pending: list[Any] = []
        self._waited = 0

    @property
    def is_joint(self) -> bool:
        """Whether its runs are to be left for `joint_runs`."""
        return isinstance(self.decoder, JointDecoder)

    @property
    def is_due(self) -> bool:
        """Whether a run is complete."""
        return len(self._pending) >= self._size

    def add(self, frames: Sequence[Any]) -> None:
        """Adds frames without decoding any."""
        self._pending.extend(frames)

    def push(self, frames: Sequence[Any]) -> Iterator[Samples]:
        """Adds frames and yields the samples of every run they complete."""
        self.add(frames)
        while self.is_due:
            yield finite(self.decoder.push(self.take()))

    def finish(self) -> Iterator[Samples]:
        """Decodes what is left and the decoder's own tail."""
        yield from self.push(())
        if self._pending:
            run, self._pending = self._pending, []
            yield finite(self.decoder.push(run))
        yield finite(self.decoder.flush())

    def take(self) -> list[Any]:
        """Takes out the run that is due."""
        size = self._size
        run, self._pending = self._pending[:size], self._pending[size:]
        self._runs += 1
        self._waited = 0
        return run

    def cannot_wait(self) -> bool:
        """Whether the run that is due is one of the first, or has waited long enough; to be asked once a step."""
        self._waited += 1
        early, behind = self._runs < len(self._sizes) - 1, len(self._pending) >= 2 * self._size
        return early or behind or self._waited > PATIENCE

    @property
    def _size(self) -> int:
        return self._sizes[min(self._runs, len(self._sizes) - 1)]


def joint_runs(grids: Iterable[GridDecoder]) -> list[GridDecoder]:
    """Of the grids of one family's joint decoders, those whose runs are to be decoded now, in one call; maybe none.

    All that are due go as soon as one of them cannot wait, or none is left to wait for.
    """
    joint = list(grids)
    due = [grid for grid in joint if grid.is_due]
    pressed = [grid for grid in due if grid.cannot_wait()]
    return due if pressed or len(due) == len(joint) else []


def finite(samples: Samples) -> Samples:
    """`samples` as they are. Raises NonFiniteOutput for NaN or infinite ones."""
    if not np.isfinite(samples).all():
        raise NonFiniteOutput("the decoder produced NaN or infinite samples; try dtype='float32'")
    return samples
