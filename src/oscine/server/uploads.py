"""Recordings that clients send, decoded within what the server has for all of them together."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from functools import partial

from oscine.audio.io import collect
from oscine.audio.isolated import IsolatedDecoders
from oscine.audio.limits import REFERENCE_SECONDS, ReadLimits
from oscine.cancellation import wait_for
from oscine.errors import InputTooLong, QueueFull
from oscine.types import AudioInput, Samples

MAX_CHANNELS = 16
_SAMPLE_BYTES = 4
_RETRY_AFTER_S = 5


class AudioMemory:
    """Bytes of decoded audio that all requests together may hold; `lease` takes some of them.

    What finds no room waits for it `wait_s`, in any thread.
    """

    def __init__(self, capacity: int, wait_s: float) -> None:
        self.capacity = capacity
        self._wait_s = wait_s
        self._used = 0
        self._changed = threading.Condition()  # its lock is re-entrant: samples may be let go of anywhere

    @property
    def used(self) -> int:
        """Bytes taken now."""
        return self._used

    def lease(self, param: str) -> Lease:
        """Room for one recording, none yet; `param` is the request field that errors name."""
        return Lease(self, param)

    def take(self, num_bytes: int) -> None:
        """Takes bytes, or raises QueueFull or Cancelled."""
        with self._changed:
            fits = partial(self._changed.wait_for, lambda: self._used + num_bytes <= self.capacity)
            if not wait_for(fits, self._wait_s):
                raise QueueFull(
                    "the recordings of other requests take the memory there is for recordings; try again later",
                    retry_after_s=_RETRY_AFTER_S,
                )
            self._used += num_bytes

    def give_back(self, num_bytes: int) -> None:
        """Gives back bytes that were taken."""
        with self._changed:
            self._used -= num_bytes
            self._changed.notify_all()


class Lease:
    """The bytes that one recording takes of an `AudioMemory`."""

    def __init__(self, memory: AudioMemory, param: str) -> None:
        self._memory, self._param = memory, param
        self._held = 0

    def cover(self, num_samples: int) -> None:
        """Sees to it that there is room for so many samples. Raises InputTooLong, QueueFull."""
        needed = num_samples * _SAMPLE_BYTES
        if needed > self._memory.capacity:
            raise InputTooLong(
                f"{self._param}: decoded it takes {needed / 1e6:.0f} MB; all recordings together have "
                f"{self._memory.capacity / 1e6:.0f} MB on this server. Send less of it, or at a lower sample rate",
                param=self._param,
            )
        if needed > self._held:
            self._memory.take(needed - self._held)
            self._held = needed

    def last_as_long_as(self, samples: Samples) -> None:
        """Shrinks to what `samples` take, and ends when nobody holds them any more."""
        self._memory.give_back(self._held - samples.nbytes)
        self._held = samples.nbytes
        weakref.finalize(samples, self.release).atexit = False

    def release(self) -> None:
        """Gives everything back. Idempotent."""
        held, self._held = self._held, 0
        self._memory.give_back(held)


class Uploads:
    """Decodes what clients send; every method blocks, so call them beside an event loop.

    `memory_bytes` bounds the decoded recordings of all requests, for as long as these hold them, `max_bytes` an encoded
    one. Decoding one takes `timeout_s` at most; for a free decoder and for memory a request waits `wait_s`.
    """

    def __init__(
        self, *, memory_bytes: int, max_bytes: int, timeout_s: float, wait_s: float, at_a_time: int | None = None
    ) -> None:
        self.memory = AudioMemory(memory_bytes, wait_s)
        self._max_bytes = max_bytes
        at_a_time = at_a_time or min(4, max(2, (os.cpu_count() or 1) // 2))
        self._decoders = IsolatedDecoders(at_a_time=at_a_time, timeout_s=timeout_s, wait_s=wait_s)

    def decode(self, data: bytes, param: str, *, max_seconds: float = REFERENCE_SECONDS[1]) -> AudioInput:
        """The recording as `read_audio` gives it. Judge before whether the model has any use for it.

        Raises BadAudio and InputTooLong, naming `param`, QueueFull while there is no room, and Cancelled.
        """
        limits = ReadLimits(max_seconds=max_seconds, max_bytes=self._max_bytes, max_channels=MAX_CHANNELS, param=param)
        lease = self.memory.lease(param)
        try:
            with self._decoders.decode(data, limits) as decoding:
                lease.cover(decoding.num_samples or 0)
                samples = collect(_covered(decoding.blocks, lease))
            lease.last_as_long_as(samples)
        except BaseException:
            lease.release()
            raise
        return AudioInput(samples=samples, sample_rate=decoding.rate)

    def close(self) -> None:
        """Ends all decoding. Idempotent."""
        self._decoders.close()


def _covered(blocks: Iterable[Samples], lease: Lease) -> Iterator[Samples]:
    """`blocks`, each after there is room for it, whatever the header said."""
    total = 0
    for block in blocks:
        total += len(block)
        lease.cover(total)
        yield block
