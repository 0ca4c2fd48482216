"""Who sits in which row of a batch: rows 0..n-1 without gaps, so that a call takes neighbouring rows as they lie.

The rows behind the last member are free and serve as padding, so a call on padded rows never touches a member that
takes no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar


class RowStore(Protocol):
    """Storage by row that a batch keeps in step with its members."""

    def ensure(self, rows: int) -> None:
        """Grows to at least `rows` rows; contents stay."""

    def move(self, source: int, target: int) -> None:
        """Copies a row over another."""


class Member(Protocol):
    """Who can sit in a row."""

    row: int | None


M = TypeVar("M", bound=Member)


class RowBatch(Generic[M]):
    """The members of a batch in the order of their rows, with the `stores` that have those rows."""

    def __init__(self, *stores: RowStore) -> None:
        self.active: list[M] = []  # index = row
        self._stores = stores

    def append(self, member: M) -> int:
        """Gives the member the first free row; its number."""
        member.row = len(self.active)
        self.active.append(member)
        return member.row

    def pop(self, member: M) -> int | None:
        """Takes a member out; the last one moves into the gap. The row that is free now; None if it had none."""
        if member.row is None:
            return None
        last = self.active.pop()
        gap, freed = member.row, len(self.active)
        if last is not member:
            self._move(freed, gap)
            last.row, self.active[gap] = gap, last
        member.row = None
        return freed

    def move_to_tail(self, members: Sequence[M]) -> int:
        """Orders the rows so that the given members are the last ones; the first of their rows."""
        first = len(self.active) - len(members)
        wanted = set(map(id, members))
        strangers = [member for member in self.active[first:] if id(member) not in wanted]
        early = [member for member in self.active[:first] if id(member) in wanted]
        for one, other in zip(early, strangers, strict=True):
            self._swap(one, other)
        return first

    def _swap(self, one: M, other: M) -> None:
        spare = len(self.active)
        for store in self._stores:
            store.ensure(spare + 1)
        a, b = rows_of([one]).start, rows_of([other]).start
        for source, target in ((a, spare), (b, a), (spare, b)):
            self._move(source, target)
        one.row, other.row = b, a
        self.active[a], self.active[b] = other, one

    def _move(self, source: int, target: int) -> None:
        for store in self._stores:
            store.move(source, target)


def rows_of(members: Sequence[Member]) -> slice:
    """The rows of members that sit side by side."""
    first = members[0].row
    assert first is not None
    return slice(first, first + len(members))
