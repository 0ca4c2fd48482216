"""Changes the tempo of speech and keeps its pitch, as a stream with the same bits as the whole.

Waveform-similarity overlap-add: every output block is a stretch of the input, taken near where the new tempo puts it,
at the place that fits best to what was heard last, and cross-faded into it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oscine.audio.wav import check_finite
from oscine.types import Samples

BLOCK_S = 0.020
"""Length of an output block; each is faded in over the whole of its length."""
SEARCH_S = 0.010
"""How far from its nominal place a block may be taken: covers a period of any voice above 50 Hz."""
MIN_SPEED, MAX_SPEED = 0.25, 4.0


class TimeStretcher:
    """Plays a stream of `sample_rate` at `speed` times its tempo; [n] samples become [round(n / speed)].

    The pushes and the finish together are the same bits for every cut of the input: a block is computed once all
    inputs it could use are there, and places are compared by sums of whole numbers, which have no rounding.
    Raises ValueError for a speed outside 0.25 to 4.
    """

    def __init__(self, sample_rate: int, speed: float) -> None:
        if not MIN_SPEED <= speed <= MAX_SPEED:
            raise ValueError(f"speed must be between {MIN_SPEED:g} and {MAX_SPEED:g}, got {speed!r}")
        self.speed = speed
        self._block = round(BLOCK_S * sample_rate)
        self._reach = round(SEARCH_S * sample_rate)
        self._fade_in = np.sin(0.5 * np.pi * (np.arange(self._block) + 0.5) / self._block).astype(np.float32) ** 2
        self._input = np.zeros(0, np.float32)
        self._start = 0  # index of _input[0] in the whole input
        self._received = 0
        self._num_blocks = 0
        self._next = 0  # where the input goes on from the block emitted last

    def push(self, samples: Samples) -> Samples:
        """Output samples that are settled once `samples` [sample] have been added; may be empty."""
        check_finite(samples)
        self._received += len(samples)
        if self.speed == 1.0:
            return samples
        self._input = np.concatenate([self._input, np.asarray(samples, np.float32)])
        blocks = []
        settled = round(self._received / self.speed)  # the output is at least as long as this
        while self._needed() <= self._received and (self._num_blocks + 1) * self._block <= settled:
            blocks.append(self._emit())
        return np.concatenate(blocks) if blocks else np.zeros(0, np.float32)

    def finish(self) -> Samples:
        """The output held back, at the end of the stream; the input counts as silent beyond it."""
        if self.speed == 1.0:
            return np.zeros(0, np.float32)
        missing = round(self._received / self.speed) - self._num_blocks * self._block
        blocks = [np.zeros(0, np.float32)]
        for _ in range(-(-missing // self._block)):
            end = self._start + len(self._input)
            self._input = np.concatenate([self._input, np.zeros(max(self._needed() - end, 0), np.float32)])
            blocks.append(self._emit())
        return np.concatenate(blocks)[: max(missing, 0)]

    def _nominal(self) -> int:
        return round(self._num_blocks * self._block * self.speed)

    def _needed(self) -> int:
        """How much of the input must be there before the next block can be made."""
        return max(self._nominal() + self._reach, self._next) + self._block

    def _emit(self) -> Samples:
        """The next block: the continuation of the one before, faded over into the best stretch near the new place."""
        before = self._slice(self._next, self._block)
        place = self._best_place(before)
        here = self._slice(place, self._block)
        self._num_blocks += 1
        self._next = place + self._block
        self._forget(min(self._next, max(self._nominal() - self._reach, 0)))
        return before + (here - before) * self._fade_in

    def _best_place(self, before: Samples) -> int:
        """Where the input near the nominal place is most like `before`, by normalised correlation."""
        if not self._num_blocks:
            return 0
        first = max(self._nominal() - self._reach, 0)
        area = _whole(self._slice(first, self._nominal() + self._reach - first + self._block))
        likeness = np.correlate(area, _whole(before), "valid")
        total = np.concatenate([[0.0], np.cumsum(area * area)])
        energy = total[self._block :] - total[: -self._block]
        return first + int(np.argmax(likeness / np.sqrt(np.maximum(energy, 1.0))))

    def _slice(self, start: int, length: int) -> Samples:
        return self._input[start - self._start : start - self._start + length]

    def _forget(self, before: int) -> None:
        drop = min(max(before - self._start, 0), len(self._input))
        self._input = self._input[drop:].copy()
        self._start += drop


def _whole(samples: Samples) -> npt.NDArray[np.float64]:
    """Samples as whole numbers of 16 bits: their products and sums are exact in float64, in any order."""
    whole: npt.NDArray[np.float64] = np.rint(np.clip(samples, -1.0, 1.0) * 32767.0).astype(np.float64)
    return whole
