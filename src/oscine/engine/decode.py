"""Frames → samples on a fixed grid: the decoder is called with the same runs of frames whoever listens.

The grid depends on a frame's index alone, so streaming and whole results are the very same calls, bit for bit. Which
jobs' runs share a call of a joint decoder, or whether a run is decoded in the background, is another matter: it
changes nothing but the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np

from oscine.errors import NonFiniteOutput
from oscine.types import Decoder, Samples

PATIENCE = 5
"""Steps that a run of the last size may wait for runs of other jobs."""


Worker = Callable[[Callable[[], Samples]], "Future[Samples]"]
"""Does a piece of work of one job, at once or later, after those before it."""


def at_once(work: Callable[[], Samples]) -> Future[Samples]:
    """The worker that needs no thread."""
    future: Future[Samples] = Future()
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
    return future


class GridDecoder:
    """Feeds one job's accepted frames to its decoder in runs of `sizes` (the last size repeats).

    `worker` is who decodes, if the decoder is one that may run in the background. `on_run` is told the number of
    frames of every run that goes to the decoder.
    """

    def __init__(
        self,
        decoder: Decoder,
        sizes: Sequence[int],
        worker: Worker = at_once,
        on_run: Callable[[int], None] = lambda num_frames: None,
    ) -> None:
        if not sizes or min(sizes) < 1:
            raise ValueError(f"chunk sizes must be positive, got {tuple(sizes)}")
        self.decoder = decoder
        self._sizes = tuple(sizes)
        self._runs = 0
        self._pending: list[Any] = []
        self._waited = 0
        self._worker = worker if decoder.runs_in_background else at_once
        self._working: deque[Future[Samples]] = deque()
        self._on_run = on_run

    @property
    def is_joint(self) -> bool:
        """Whether its runs are to be left for `joint_runs`."""
        return self.decoder.is_joint

    @property
    def is_due(self) -> bool:
        """Whether a run is complete."""
        return len(self._pending) >= self.size

    @property
    def num_missing(self) -> int:
        """Frames that the next run lacks."""
        return max(self.size - len(self._pending), 0)

    def add(self, frames: Sequence[Any]) -> None:
        """Adds frames without decoding any."""
        self._pending.extend(frames)

    @property
    def is_idle(self) -> bool:
        """Whether all that was given to the decoder has been fetched with `ready`."""
        return not self._working

    def push(self, frames: Sequence[Any]) -> None:
        """Adds frames and gives the decoder every run they complete."""
        self.add(frames)
        while self.is_due:
            self._give_run(self.take())

    def finish(self) -> None:
        """Gives the decoder what is left, and lets it make its own tail."""
        self.push(())
        if self._pending:
            run, self._pending = self._pending, []
            self._on_run(len(run))
            self._give_run(run)
        self._working.append(self._worker(self.decoder.flush))

    def ready(self) -> Iterator[Samples]:
        """The samples made by now, in their order. Raises what the decoder raised."""
        while self._working and self._working[0].done():
            yield finite(self._working.popleft().result())

    def drop(self) -> None:
        """Leaves undone what is not begun."""
        while self._working:
            self._working.pop().cancel()

    def _give_run(self, run: Sequence[Any]) -> None:
        self._working.append(self._worker(partial(self.decoder.push, run)))

    def take(self) -> list[Any]:
        """Takes out the run that is due."""
        size = self.size
        run, self._pending = self._pending[:size], self._pending[size:]
        self._runs += 1
        self._waited = 0
        self._on_run(len(run))
        return run

    def cannot_wait(self) -> bool:
        """Whether the run that is due is one of the first, or has waited long enough; to be asked once a step."""
        self._waited += 1
        early, behind = self._runs < len(self._sizes) - 1, len(self._pending) >= 2 * self.size
        return early or behind or self._waited > PATIENCE

    @property
    def size(self) -> int:
        """Frames of the next run."""
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
