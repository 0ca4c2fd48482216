"""A store of recent results by content: prefixes that were prefilled, references that were encoded."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import numpy as np

from oscine.types import Samples

Value = TypeVar("Value")


def content_key(samples: Samples, *more: object) -> bytes:
    """The hash of samples and whatever else they are told apart by."""
    array = np.ascontiguousarray(samples)
    return hashlib.sha256(f"{array.dtype} {array.shape} {more} ".encode() + array.tobytes()).digest()


def one(value: object) -> int:
    """The size of a value in a store that counts values."""
    return 1


class RecentStore(Generic[Value]):
    """Keeps the values used last, as many as fit in `limit` by `size_of`; a value larger than that is not kept.

    Used from one thread.
    """

    def __init__(self, limit: int, size_of: Callable[[Value], int] = one) -> None:
        self.limit = limit
        self.used = 0
        self._size_of = size_of
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def get(self, key: Hashable) -> Value | None:
        """The value, now the latest used; None when it is not here."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key]

    def put(self, key: Hashable, value: Value) -> None:
        """Stores a value under a new or known key and drops those unused for longest."""
        if key in self._values:
            self.used -= self._size_of(self._values.pop(key))
        self._values[key] = value
        self.used += self._size_of(value)
        while self.used > self.limit:
            _, dropped = self._values.popitem(last=False)
            self.used -= self._size_of(dropped)

    def get_or_make(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of `key`, made now if it is not here."""
        value = self.get(key)
        if value is None:
            value = make()
            self.put(key, value)
        return value
