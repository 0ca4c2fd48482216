"""Joins the pieces of a long text into one stream without clicks. Knows samples only, no pieces' meaning."""

from __future__ import annotations

import numpy as np

from oscine.types import Samples

FADE_S = 0.005


class PieceJoiner:
    """Fades the inner edges of pieces over 5 ms, whatever the chunking; a single piece passes through untouched.

    The last 5 ms of a piece wait until it is known whether another follows, so `end_piece` returns them.
    """

    def __init__(self, sample_rate: int, num_pieces: int) -> None:
        self._fade = int(FADE_S * sample_rate) if num_pieces > 1 else 0
        self._ramp = (0.5 - 0.5 * np.cos(np.pi * (np.arange(self._fade) + 0.5) / max(self._fade, 1))).astype(np.float32)
        self._tail = np.zeros(0, np.float32)
        self._first = True
        self._heard = False  # a piece without samples, such as an answer in text, has no edges
        self._faded_in = 0

    def push(self, samples: Samples) -> Samples:
        """Samples ready to be heard after `samples` of the current piece; the last 5 ms stay behind."""
        self._heard = self._heard or len(samples) > 0
        if not self._fade:
            return samples
        joined = np.concatenate([self._tail, self._fade_in(samples)])
        keep = min(self._fade, len(joined))
        self._tail = joined[len(joined) - keep :]
        return joined[: len(joined) - keep]

    def end_piece(self, *, last: bool) -> Samples:
        """The rest of the current piece, faded out unless it is the last one."""
        tail, self._tail = self._tail, np.zeros(0, np.float32)
        self._first, self._faded_in = self._first and not self._heard, 0
        return tail if last else (tail * self._ramp[::-1][len(self._ramp) - len(tail) :]).astype(np.float32)

    def _fade_in(self, samples: Samples) -> Samples:
        if self._first or self._faded_in >= self._fade:
            return samples
        ramp = self._ramp[self._faded_in : self._faded_in + len(samples)]
        self._faded_in += len(ramp)
        return np.concatenate([samples[: len(ramp)] * ramp, samples[len(ramp) :]])
