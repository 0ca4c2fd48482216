"""How much of what clients send is held at a time, and how long it may take to arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SMALL = 1 << 16
"""Bytes of each message that are not counted: requests without recordings always find room."""
SLOWEST = 1 << 16
"""Bytes a second that a long message has to come with."""


class Pace:
    """How quickly a message has to arrive: some of it every `receive_s`, and all of it at `SLOWEST` after as long."""

    def __init__(self, receive_s: float) -> None:
        self.receive_s = receive_s
        self.renew()

    def went_on(self) -> None:
        """Some of it has arrived."""
        self._last = asyncio.get_running_loop().time()

    def renew(self) -> None:
        """It begins anew."""
        self.began = self._last = asyncio.get_running_loop().time()

    def deadline(self, num_bytes: int) -> float:
        """When more has to arrive after the first `num_bytes`, in the loop's time."""
        return self.receive_s + min(self._last, self.began + num_bytes / SLOWEST)

    @property
    def is_old(self) -> bool:
        """Whether it has taken longer than a message usually does."""
        return asyncio.get_running_loop().time() > self.began + self.receive_s


class ByteBudget:
    """How many bytes of clients' messages a server holds at a time, all of them together.

    When there is no room, the message that has been arriving for the longest time gives way, if it is an old one.
    """

    def __init__(self, total: int) -> None:
        self.total, self.used = total, 0
        self.arriving: dict[Lease, None] = {}  # in the order they began

    def lease(self, pace: Pace, give_way: Callable[[], None]) -> Lease:
        """A share of it, empty at first, for a message that arrives; `give_way` has to release it at once."""
        lease = Lease(self, pace, give_way)
        self.arriving[lease] = None
        return lease

    def make_room(self, num_bytes: int) -> bool:
        """Whether `num_bytes` more have room, if need be at the cost of others."""
        for lease in list(self.arriving):
            if self.used + num_bytes <= self.total or not lease.pace.is_old:
                break
            lease.give_way()
        return self.used + num_bytes <= self.total


class Lease:
    """One message's share of a budget."""

    def __init__(self, budget: ByteBudget, pace: Pace, give_way: Callable[[], None]) -> None:
        self._budget, self.pace, self.give_way = budget, pace, give_way
        self._num_bytes = 0

    def resize(self, num_bytes: int) -> bool:
        """Whether there is room for `num_bytes`, which it then has; the first `SMALL` are free."""
        more = max(num_bytes - SMALL, 0) - self._num_bytes
        if more > 0 and not self._budget.make_room(more):
            return False
        self._budget.used += more
        self._num_bytes += more
        return True

    def arrived(self) -> None:
        """The message is whole: it no longer gives way. Idempotent."""
        self._budget.arriving.pop(self, None)

    def release(self) -> None:
        """Gives everything back. Idempotent."""
        self.arrived()
        self.resize(0)
