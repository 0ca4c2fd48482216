"""Sample-rate conversion by a windowed sinc, whole or as a stream with the same bits.

Every output sample is the same fixed sequence of single multiplications and additions wherever the input is cut, so
a stream equals the whole signal bit for bit on any machine.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from oscine.cancellation import check_cancelled
from oscine.types import Samples

ZERO_CROSSINGS = 6
ROLL_OFF = 0.99
MIN_RATE, MAX_RATE = 1_000, 384_000
_BLOCK = 1 << 16  # output samples computed at a time: bounds the memory of long inputs


def check_rate(rate: int) -> int:
    """The rate in Hz if it is one that can be converted; else ValueError."""
    if rate != int(rate) or not MIN_RATE <= rate <= MAX_RATE:
        raise ValueError(f"sample rate must be a whole number from {MIN_RATE} to {MAX_RATE} Hz, got {rate}")
    return int(rate)


def resampled_length(num_samples: int, from_hz: int, to_hz: int) -> int:
    """Samples that `num_samples` at `from_hz` become at `to_hz`: the exact ratio, rounded up."""
    divisor = math.gcd(from_hz, to_hz)
    return -(-num_samples * (to_hz // divisor) // (from_hz // divisor))


@lru_cache(maxsize=8)
def _kernel(orig: int, new: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], int]:
    """Taps [tap, phase], the first input index of each phase [phase] and the reach in samples.

    `orig` and `new` have no common factor. Phase j of a group of `orig` inputs lies at input position j orig/new; its
    taps are the inputs within `reach`, weighted by a sinc under a Hann window (AUDIO8 spec, "Reference audio"). The
    dense kernel of that formula is zero elsewhere, so it is never built: coprime rates stay small.
    """
    cutoff = ROLL_OFF * min(orig, new)
    reach = math.ceil(ZERO_CROSSINGS * orig / cutoff)
    phase = np.arange(new, dtype=np.int64)
    first = phase * orig // new - reach  # [phase]
    taps = first[None, :] + np.arange(2 * reach + 2, dtype=np.int64)[:, None]  # [tap, phase]
    t = cutoff * (taps / orig - phase[None, :] / new)
    t = np.clip(t, -ZERO_CROSSINGS, ZERO_CROSSINGS)
    weights = np.cos(np.pi * t / (2 * ZERO_CROSSINGS)) ** 2 * np.sinc(t) * (cutoff / orig)
    return weights.astype(np.float32), first, reach


class StreamResampler:
    """Converts a stream from `from_hz` to `to_hz`; the pushes and the finish together equal the whole signal."""

    def __init__(self, from_hz: int, to_hz: int) -> None:
        self.from_hz, self.to_hz = check_rate(from_hz), check_rate(to_hz)
        divisor = math.gcd(self.from_hz, self.to_hz)
        self._orig, self._new = self.from_hz // divisor, self.to_hz // divisor
        self._weights, self._first, reach = _kernel(self._orig, self._new)
        self._pending = np.zeros(reach, dtype=np.float32)  # inputs that outputs to come still need
        self._pending_start = -reach  # index of pending[0] in the input
        self._emitted = 0
        self._received = 0
        self._finished = False

    def push(self, samples: Samples) -> Samples:
        """Output samples that are settled once `samples` [sample] have been added; may be empty."""
        if self._finished:
            raise RuntimeError("push after finish")
        self._received += len(samples)
        if self._orig == self._new:
            return np.array(samples, dtype=np.float32)
        self._pending = np.concatenate([self._pending, np.asarray(samples, dtype=np.float32)])
        end = self._pending_start + len(self._pending)
        # Output m = q new + j is settled when its last tap, q orig + first[j] + num_taps - 1, is below `end`. first[j]
        # is floor(j orig / new) - reach, so q orig + first[j] = floor(m orig / new) - reach.
        last_start = end - len(self._weights)
        reach = -int(self._first[0])
        settled = -(-(last_start + reach + 1) * self._new // self._orig) if last_start + reach >= 0 else 0
        return self._emit(max(settled, self._emitted))

    def finish(self) -> Samples:
        """The output samples held back, at the end of the stream."""
        if self._finished:
            raise RuntimeError("finish called twice")
        self._finished = True
        if self._orig == self._new:
            return np.zeros(0, dtype=np.float32)
        tail = np.zeros(len(self._weights), dtype=np.float32)
        self._pending = np.concatenate([self._pending, tail])
        return self._emit(resampled_length(self._received, self._orig, self._new))

    def _emit(self, until: int) -> Samples:
        """Computes outputs up to index `until` and drops the inputs that no later output needs."""
        out = np.empty(until - self._emitted, dtype=np.float32)
        for begin in range(self._emitted, until, _BLOCK):
            check_cancelled()
            stop = min(begin + _BLOCK, until)
            out[begin - self._emitted : stop - self._emitted] = self._block(begin, stop)
        self._emitted = until
        keep_from = until * self._orig // self._new + int(self._first[0])
        drop = min(max(keep_from - self._pending_start, 0), len(self._pending))
        self._pending = self._pending[drop:].copy()
        self._pending_start += drop
        return out

    def _block(self, begin: int, stop: int) -> Samples:
        group, phase = np.divmod(np.arange(begin, stop, dtype=np.int64), self._new)
        index = group * self._orig + self._first[phase] - self._pending_start
        total = np.zeros(stop - begin, dtype=np.float32)
        for tap in self._weights:
            total += self._pending[index] * tap[phase]
            index += 1
        return total


def resample(samples: Samples, from_hz: int, to_hz: int) -> Samples:
    """Float32 samples [ceil(n to_hz / from_hz)] at `to_hz` from `samples` [n] at `from_hz` (AUDIO8 spec, 5).

    Equal rates give an equal copy. Raises ValueError for another shape or a rate outside 1 to 384 kHz.
    """
    samples = np.asarray(samples, dtype=np.float32)
    if samples.ndim != 1:
        raise ValueError(f"samples must be mono [sample], got shape {tuple(samples.shape)}")
    stream = StreamResampler(from_hz, to_hz)
    return np.concatenate([stream.push(samples), stream.finish()])
