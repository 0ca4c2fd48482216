"""A store of recent results, bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class RecentStore(Generic[Value]):
    """Keeps the values used last, as many as fit in `max_bytes`; a value larger than that is not kept."""

    def __init__(self, max_bytes: int, size_of: Callable[[Value], int]) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
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
            self.used_bytes -= self._size_of(self._values.pop(key))
        self._values[key] = value
        self.used_bytes += self._size_of(value)
        while self.used_bytes > self.max_bytes:
            _, dropped = self._values.popitem(last=False)
            self.used_bytes -= self._size_of(dropped)
