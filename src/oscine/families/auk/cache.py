"""A small cache by content: least recently used out first."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

from oscine.errors import InvalidRequest
from oscine.types import Samples

T = TypeVar("T")


def audio_key(samples: Samples) -> tuple[int, bytes]:
    """(length, BLAKE2b-128) of samples: equal audio has an equal key."""
    data = np.ascontiguousarray(samples, dtype=np.float32)
    return len(data), hashlib.blake2b(data.tobytes(), digest_size=16).digest()


class ContentCache(Generic[T]):
    """At most `size` values by key; 0 keeps none. Used from one thread."""

    def __init__(self, size: int) -> None:
        if type(size) is not int or size < 0:
            raise InvalidRequest(f"a cache size must be a whole number, 0 or more, got {size!r}")
        self._size = size
        self._values: OrderedDict[object, T] = OrderedDict()

    def get(self, key: object, make: Callable[[], T]) -> T:
        """The value of `key`, made now if it is not there."""
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key]
        value = make()
        self._values[key] = value
        while len(self._values) > self._size:
            self._values.popitem(last=False)
        return value

    def __len__(self) -> int:
        return len(self._values)
