"""A connection over which requests come."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from oscine.server.connections import READ_BYTES, Connections
from oscine.server.errors import error_body
from oscine.server.gate import ABORT, SPARE

AHEAD_BYTES = 1 << 16
"""Of further requests that a client may send before it has its answer."""


class HTTPConnection(H11Protocol):
    """One that gives up waiting, notices at any time that its client leaves, and holds few bytes of what comes next."""

    def __init__(self, connections: Connections, **fields: Any) -> None:
        super().__init__(**fields)
        self._all, self._limits = connections, connections.limits
        self._deadline: asyncio.TimerHandle | None = None
        self.spare = False
        self._app, self.app = self.app, cast(Any, self._serve)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        extensions = {ABORT: self.transport.abort, SPARE: self.spare and self._all.full}
        scope.setdefault("extensions", {}).update(extensions)
        await cast(Any, self._app)(scope, receive, send)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for a request."""
        super().connection_made(transport)
        with contextlib.suppress(AttributeError):  # of asyncio's own transports
            transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        self._set_deadline(self._limits.receive_s)
        self._all.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends everything."""
        self._clear_deadline()
        self._all.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes what has arrived. Beside a request that is being served that is little: it must be seen to leave."""
        super().data_received(data)
        self._follow()
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.response_complete or not self.flow.read_paused:
            return
        if len(self.conn.trailing_data[0]) > AHEAD_BYTES:
            self.drop()
        else:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Begins to wait for the next request, whatever is still to come of the last."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._set_deadline(self._limits.receive_s)
            self._all.expect(self)
        else:
            self._follow()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leaves the connection to the other protocol."""
        self._clear_deadline()
        self._all.serve(self)
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """Refuses what is no HTTP, or ends the connection if an answer has begun."""
        self._refuse(400, error_body(msg, 400, "invalid_request"))

    def drop(self) -> None:
        """Ends the connection at once."""
        self._clear_deadline()
        self._all.remove(self)
        self.transport.abort()

    def _follow(self) -> None:
        """Takes note of how far the request is; the app sees to it that its body arrives in time."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return
        self._clear_deadline()
        if not cycle.more_body:
            self._all.serve(self)

    def _too_late(self) -> None:
        begun = self.cycle is None or self.cycle.response_complete
        if begun and self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            message = f"the request's header took longer than {self._limits.receive_s:g} s"
            self._refuse(408, error_body(message, 408, "request_timeout"))
        self._close()

    def _close(self) -> None:
        """Closes the connection; what of the answer is not read in time is lost."""
        self.transport.close()
        self._clear_deadline()
        self._deadline = self.loop.call_later(self._limits.linger_s, self.transport.abort)

    def _refuse(self, status: int, body: Mapping[str, Any]) -> None:
        data = json.dumps(body).encode("ascii")
        headers = {"Content-Type": "application/json", "Content-Length": str(len(data)), "Connection": "close"}
        headers["X-Request-Id"] = f"req_{secrets.token_hex(8)}"
        reason = HTTPStatus(status).phrase.encode()
        events = (
            h11.Response(status_code=status, headers=[*headers.items()], reason=reason),
            h11.Data(data),
            h11.EndOfMessage(),
        )
        try:
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        except h11.LocalProtocolError:
            self.transport.abort()
        self._close()

    def _set_deadline(self, seconds: float) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(seconds, self._too_late)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
