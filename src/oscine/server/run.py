"""Runs an app under uvicorn until the process is told to stop."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI

from oscine.errors import InvalidRequest, OutputError
from oscine.server.connections import SPARE_CONNECTIONS, ConnectionLimits, Connections
from oscine.server.http_connection import HTTPConnection
from oscine.server.sparingly import kept_small
from oscine.server.state import ServerState
from oscine.server.websocket_connection import WebSocketConnection

_log = logging.getLogger(__name__)

_BACKLOG = 512
"""Connections that may wait to be accepted: one that finds no room there comes again a second later."""
_ACCEPTED = 8
"""Connections accepted in one turn of the event loop."""
_IN_BETWEEN = 6 * _ACCEPTED
"""Connections open beyond their limit for a moment: from an accept to the end of one that makes room is some turns."""
_FILES, _FILES_A_REQUEST = 32, 2
"""Files open beside connections: models, voices and logs; an upload and what decodes it."""
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to serve; uvicorn has one number for what may wait and for what is accepted at once."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)

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


def config_for(
    app: FastAPI, *, max_connections: int = ConnectionLimits.max_connections, **options: Any
) -> uvicorn.Config:
    """How uvicorn is to run `app`: with the bounds that its settings give to connections, bodies and messages.

    One combination of its parts is used, the one that is tested. `options` are further ones of `uvicorn.Config`.
    """
    state: ServerState = app.state.server
    limits = ConnectionLimits(
        max_connections=max_connections,
        receive_s=state.settings.receive_timeout_s,
        linger_s=state.settings.send_timeout_s,
    )
    fixed: dict[str, Any] = {
        "loop": "asyncio",
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "backlog": _ACCEPTED,
        "ws_max_size": state.settings.max_body_bytes,
        "ws_per_message_deflate": False,  # speech does not get smaller, and a small message could become a large one
    }
    connections = Connections(limits, state.held)
    protocols = {"http": partial(HTTPConnection, connections), "ws": partial(WebSocketConnection, connections)}
    return uvicorn.Config(app, **fixed | protocols | options)


def serve_app(app: FastAPI, *, host: str, port: int, shutdown_s: int, max_connections: int) -> int:
    """Serves `app` until SIGINT or SIGTERM and returns 0, or until its engine has failed and returns 1.

    Running requests have `shutdown_s` to end; then their connections are closed, which clients see as a broken
    stream. Raises OutputError if the address cannot be listened on.
    """
    state: ServerState = app.state.server
    with _listen(host, port) as listener:
        config = config_for(app, max_connections=max_connections, timeout_graceful_shutdown=shutdown_s)
        sys.setswitchinterval(SWITCH_S)
        shown = f"[{host}]" if ":" in host else host
        _log.info("listening on http://%s:%d (open it for the page)", shown, listener.getsockname()[1])
        with kept_small():
            _Server(config, state).run(sockets=[listener])
    return 0 if state.models.engine_failure is None else 1


def affordable_connections(wanted: int | None, max_requests: int) -> int:
    """How many connections there may be: `wanted`, or as many as usual or the limit of open files allows.

    Raises InvalidRequest if it does not allow `wanted`, or next to none.
    """
    allowed = _open_files() - SPARE_CONNECTIONS - _IN_BETWEEN - _FILES - _FILES_A_REQUEST * max_requests
    number = min(ConnectionLimits.max_connections, allowed) if wanted is None else wanted
    if number > allowed or number < 1:
        raise InvalidRequest(
            f"--max-connections {'' if wanted is None else wanted}: this process may have {_open_files()} files open, "
            f"which leaves {max(allowed, 0)} connections beside --max-requests {max_requests}; raise that limit "
            "(ulimit -n, LimitNOFILE of systemd)"
        )
    if wanted is None and number < ConnectionLimits.max_connections:
        _log.warning("%d connections at most, since this process may have %d files open", number, _open_files())
    return number


def _open_files() -> int:
    """How many files the process may have open."""
    try:
        import resource
    except ImportError:  # Windows, where sockets are not files
        return sys.maxsize
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        raise OutputError(f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}") from error
