"""A connection over which a WebSocket session speaks."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from oscine.server.budget import Lease, Pace
from oscine.server.connections import Connections
from oscine.server.errors import POLICY, TRY_AGAIN_LATER
from oscine.server.gate import ABORT, SPARE

FRAME_BYTES = 512
"""What a frame of a message takes besides its data: empty ones are not free."""


class WebSocketConnection(WebSocketsSansIOProtocol):
    """One whose messages arrive in time and have room, that answers no pings which nobody reads, and ends even then."""

    def __init__(self, connections: Connections, **fields: Any) -> None:
        super().__init__(**fields)
        self._all = connections
        self.spare = connections.full
        self._num_bytes = self._num_queued = (
            0  # of the parts of the message that arrives; of those the app has to handle
        )
        self._arriving: Lease | None = None
        self._queued = self._lease()
        self._queued.arrived()
        self._late: asyncio.TimerHandle | None = None
        self._end: asyncio.TimerHandle | None = None
        self._app, self.app = self.app, cast(Any, self._serve)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {}).update({ABORT: self.transport.abort, SPARE: self.spare})
        await cast(Any, self._app)(scope, receive, send)

    def drop(self) -> None:
        """Ends the connection at once."""
        self._all.remove(self)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends everything."""
        self._all.remove(self)
        self._settle()
        self._queued.release()
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes what has arrived, if there is room for it."""
        super().data_received(data)
        unfinished = self._num_bytes + len(self.conn.reader.buffer)
        if not unfinished or self.transport.is_closing():
            self._settle()
            return
        if self._arriving is None:
            self._arriving = self._lease()
            self._check_pace()
        self._arriving.pace.went_on()
        if not self._arriving.resize(unfinished):
            self._give_way()

    def handle_text(self, event: Frame) -> None:
        """The first part of a message, or a whole one."""
        self._num_bytes = len(event.data) + FRAME_BYTES
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        """As `handle_text`."""
        self._num_bytes = len(event.data) + FRAME_BYTES
        super().handle_bytes(event)

    def handle_cont(self, event: Frame) -> None:
        """A further part."""
        self._num_bytes += len(event.data) + FRAME_BYTES
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """Gives the app a whole message."""
        self._settle()
        self._num_queued += self._num_bytes
        self._num_bytes = 0
        super().send_receive_event_to_app()
        if not self._queued.resize(self._num_queued):
            self._give_way()

    async def receive(self) -> Any:
        """The next message; those before are done with."""
        if self.queue.empty():
            self._num_queued = 0
            self._queued.release()
        return await super().receive()

    def handle_ping(self) -> None:
        """Answers, and reads no more until the client has read the answers."""
        super().handle_ping()
        if not self.writable.is_set():
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again, and is read again."""
        super().resume_writing()
        if not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def keepalive_timeout(self) -> None:
        """Ends the connection of a client that does not answer."""
        super().keepalive_timeout()
        self._end_soon()

    async def run_asgi(self) -> None:
        """Runs the app; after it the connection ends, whether or not the client reads."""
        await super().run_asgi()
        self._end_soon()

    def _lease(self) -> Lease:
        return self._all.budget.lease(Pace(self._all.limits.receive_s), self._give_way)

    def _settle(self) -> None:
        """Nothing is arriving any more."""
        if self._arriving is not None:
            self._arriving.release()
            self._arriving = None
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _check_pace(self) -> None:
        """Ends the connection if its message has not kept its pace; else looks again when that might be."""
        self._late = None
        if self._arriving is None:
            return
        if self.read_paused:  # it is for us to go on
            self._arriving.pace.renew()
        due = self._arriving.pace.deadline(self._num_bytes + len(self.conn.reader.buffer))
        if due <= self.loop.time():
            self._fail(POLICY, "the message took too long")
        else:
            self._late = self.loop.call_at(due, self._check_pace)

    def _give_way(self) -> None:
        self._fail(TRY_AGAIN_LATER, "no room for the message")

    def _fail(self, code: int, reason: str) -> None:
        self._settle()
        if not self.transport.is_closing():
            self.conn.fail(code, reason)
            self.handle_parser_exception()
            self._end_soon()

    def _end_soon(self) -> None:
        if self._end is None:
            self._end = self.loop.call_later(self._all.limits.linger_s, self.transport.abort)
