"""Runs an app under uvicorn until the process is told to stop."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol

from oscine.errors import OutputError
from oscine.server.gate import ABORT
from oscine.server.state import ServerState

_log = logging.getLogger(__name__)

_BACKLOG = 512
FAREWELL_S = 2.0
"""How long a server whose engine has failed still answers, so that those who wait hear why."""
SWITCH_S = 0.001
"""How soon a waiting thread gets its turn: the event loop answers quickly although the engine's thread is busy."""


class _Server(uvicorn.Server):
    """A uvicorn that ends when its app's engine has, and whose stopping by a signal is a success.

    (The signal is not raised again afterwards.)
    """

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config)
        self._state = state
        self._farewell: float | None = None

    async def on_tick(self, counter: int) -> bool:
        """Whether it is time to end; asked ten times a second."""
        if self._farewell is None and self._state.models.engine_failure is not None:
            self._farewell = time.monotonic() + FAREWELL_S
            _log.critical("%s; stopping", self._state.unready)
        if self._farewell is not None and time.monotonic() > self._farewell:
            return True
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def abortable(protocol: Callable[..., Any]) -> Callable[..., Any]:
    """A uvicorn protocol whose scopes let the app end the connection at once (`gate.ABORT`).

    Without it what a client does not read would keep the connection open after the app has given up on it.
    """

    def make(*args: Any, **fields: Any) -> Any:
        made = protocol(*args, **fields)
        app: ASGIApp = made.app

        async def with_abort(scope: Scope, receive: Receive, send: Send) -> None:
            scope.setdefault("extensions", {})[ABORT] = lambda: made.transport.abort()
            await app(scope, receive, send)

        made.app = with_abort
        return made

    return make


def protocols() -> dict[str, Any]:
    """The protocols of HTTP and WebSocket, as arguments of `uvicorn.Config`."""
    return {
        "http": abortable(AutoHTTPProtocol),
        "ws": abortable(AutoWebSocketsProtocol) if AutoWebSocketsProtocol else "none",
    }


def serve_app(app: FastAPI, *, host: str, port: int, shutdown_s: int, max_message_bytes: int) -> int:
    """Serves `app` until SIGINT or SIGTERM and returns 0, or until its engine has failed and returns 1.

    Running requests have `shutdown_s` to end; then their connections are closed, which clients see as a broken
    stream. Raises OutputError if the address cannot be listened on.
    """
    with _listen(host, port) as listener:
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=shutdown_s,
            ws_max_size=max_message_bytes,
            **protocols(),
        )
        sys.setswitchinterval(SWITCH_S)
        shown = f"[{host}]" if ":" in host else host
        _log.info("listening on http://%s:%d (open it for the page)", shown, listener.getsockname()[1])
        state: ServerState = app.state.server
        _Server(config, state).run(sockets=[listener])
    return 0 if state.models.engine_failure is None else 1


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        raise OutputError(f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}") from error
