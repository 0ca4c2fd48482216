"""Trims leading and trailing silence, as a stream with the same samples as the whole."""

from __future__ import annotations

import numpy as np

from oscine.types import Samples

QUIET_DBFS = -50.0
"""A sample below this is silence; breath and the end of a fading vowel are above it."""
KEEP_BEFORE_S, KEEP_AFTER_S = 0.05, 0.15
"""Silence that stays, so that nothing sounds cut off."""
_FADE_S = 0.005


class SilenceTrimmer:
    """Passes a stream of `sample_rate` on without its outer silence; pauses inside are untouched.

    A stream that holds nothing but silence keeps its first `KEEP_AFTER_S` seconds.
    """

    def __init__(self, sample_rate: int) -> None:
        self._floor = 10 ** (QUIET_DBFS / 20)
        self._before, self._after = round(KEEP_BEFORE_S * sample_rate), round(KEEP_AFTER_S * sample_rate)
        self._fade = round(_FADE_S * sample_rate)
        self._started = False
        self._held = np.zeros(0, np.float32)  # silence that may turn out to be the outer one
        self._head = np.zeros(0, np.float32)  # how the stream began, in case it is all silence

    def push(self, samples: Samples) -> Samples:
        """Samples that are certain to stay once `samples` [sample] have been added; may be empty."""
        if not self._started and len(self._head) < self._after:
            self._head = np.concatenate([self._head, samples])[: self._after]
        held = np.concatenate([self._held, samples])
        loud = np.flatnonzero(np.abs(held) >= self._floor)
        if not len(loud):
            self._held = held if self._started else held[-self._before :]
            return held[:0]
        first = 0 if self._started else max(int(loud[0]) - self._before, 0)
        self._started = True
        end = int(loud[-1]) + 1
        self._held = held[end:]
        return held[first:end]

    def finish(self) -> Samples:
        """What is left of the silence at the end, faded out if it was longer."""
        if not self._started:
            return self._head
        rest = self._held[: self._after].copy()
        if len(self._held) > len(rest) and self._fade:
            rest[-self._fade :] *= np.linspace(1.0, 0.0, self._fade, dtype=np.float32)
        return rest


def trim_silence(samples: Samples, sample_rate: int) -> Samples:
    """`samples` [sample] without leading and trailing silence, but for 50 and 150 ms of it."""
    trimmer = SilenceTrimmer(sample_rate)
    return np.concatenate([trimmer.push(samples), trimmer.finish()])
