"""All connections of a server: how many there may be, and which makes room for a new one.

uvicorn has no such bounds: no deadline for a header, no end for what comes after a response, pongs for a client that
does not read. They are put into subclasses of its protocols, with timers of the event loop, since only a protocol sees
a connection from its first byte to its last; an app sees a request once its header is complete.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from oscine.server.budget import ByteBudget

READ_BYTES = 1 << 16
"""Read at a time: what it takes to handle them does not keep others waiting."""
SPARE_CONNECTIONS = 16
"""Beyond the limit, for those who look after the server."""


class Droppable(Protocol):
    """A connection as those who count it see it."""

    transport: asyncio.Transport
    spare: bool
    """Whether it was opened when all others were being served."""

    def __hash__(self) -> int: ...

    def drop(self) -> None:
        """Ends it at once, and removes it."""


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """What one server allows its connections; times in seconds.

    `receive_s` is for a request's header, from the first byte or the last answer on; `linger_s` for reading the rest of
    an answer whose connection is closing.
    """

    max_connections: int = 512
    receive_s: float = 20.0
    linger_s: float = 60.0


class Connections:
    """All connections of a server.

    One whose request has not arrived in full gives way to a new one, the oldest first: what is being served is never
    dropped for another. If all are being served, the spare ones are left.
    """

    def __init__(self, limits: ConnectionLimits, budget: ByteBudget) -> None:
        self.limits, self.budget = limits, budget
        self._open: set[asyncio.BaseTransport] = set()
        self._incomplete: dict[Droppable, None] = {}  # in the order they began to wait

    @property
    def full(self) -> bool:
        """Whether there are more than there may be."""
        return len(self._open) > self.limits.max_connections

    def add(self, connection: Droppable) -> None:
        """A new one; another, or itself, may have to go."""
        self._open.add(connection.transport)
        self.expect(connection)
        if not self.full:
            return
        oldest = next(iter(self._incomplete))
        if oldest is not connection or len(self._open) > self.limits.max_connections + SPARE_CONNECTIONS:
            oldest.drop()
        connection.spare = self.full

    def expect(self, connection: Droppable) -> None:
        """It waits for a request from now on."""
        self._incomplete.pop(connection, None)
        self._incomplete[connection] = None

    def serve(self, connection: Droppable) -> None:
        """Its request has arrived."""
        self._incomplete.pop(connection, None)

    def remove(self, connection: Droppable) -> None:
        """It has ended. Idempotent."""
        self._open.discard(connection.transport)
        self._incomplete.pop(connection, None)
