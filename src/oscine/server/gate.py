"""What every request passes: its id, the key, the size limit, and at the end one log line and one count."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Iterator
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oscine.errors import Cancelled
from oscine.server.errors import error_body, error_response, json_response
from oscine.server.state import ServerState

_log = logging.getLogger(__name__)

_GUARDED = ("/v1/", "/metrics")
_DRAINED_BODIES = 4
"""How many times the size limit is read of a body that is refused."""
_SAFE = ("GET", "HEAD", "OPTIONS")
SLICE = 1 << 16
"""Bytes sent at a time."""
ABORT = "oscine.abort"
"""Extension of a scope: ends the connection at once, whatever is still to be sent."""
_QUIET = ("/health", "/ready", "/metrics", "/static", "/")


class Unread(Cancelled):
    """The client does not read what it is sent."""


class Gate:
    """Wraps an app. Bodies beyond the limit are refused by their stated length, else as soon as they exceed it."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app, self._state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket" and (_from_elsewhere(scope) or not self._allowed(scope)):
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "not allowed"})
        elif scope["type"] == "websocket":
            await self._app(scope, receive, self._timed(scope, send, ConnectionAbortedError))
        else:
            await self._app(scope, receive, send)

    def _timed(self, scope: Scope, send: Send, error: type[Exception]) -> Send:
        """`send` that waits `send_timeout_s` for a client to read, then ends the connection and raises `error`.

        A long body goes out by slices: nobody else waits while one is copied, and each has the time to itself.
        """
        limit = self._state.settings.send_timeout_s
        abort = scope.get("extensions", {}).get(ABORT)

        async def sending(message: Message) -> None:
            try:
                for part in _slices(message):
                    async with asyncio.timeout(limit):
                        await send(part)
            except TimeoutError as late:
                if abort is not None:
                    abort()
                    await asyncio.sleep(0)  # the server takes note
                raise error(f"the client has not read what was sent for {limit:g} s") from late

        return sending

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = f"req_{secrets.token_hex(8)}"
        facts: dict[str, Any] = {}
        scope.setdefault("state", {})["facts"] = facts
        started = time.perf_counter()
        status = 0
        send = self._timed(scope, send, Unread)

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
            try:
                await send(message)
            except Unread:
                facts["unread"] = True
                raise

        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await self._drain(receive)
                await refusal(scope, receive, sending)
            else:
                await self._app(scope, self._limited(receive), sending)
        except ClientDisconnect:  # in the middle of sending the request
            facts["outcome"] = "cancelled"
        except Exception as error:
            if "unread" in facts:  # the connection is gone already
                return
            if status:  # too late for an answer: the connection breaks
                raise
            _log.exception("request %s failed", request_id)
            await error_response(error)(scope, receive, sending)
        finally:
            self._report(scope, request_id, status, facts, 1000 * (time.perf_counter() - started))

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """The response to a request that goes no further."""
        if not self._allowed(scope):
            body = error_body("the API key is missing or wrong; send Authorization: Bearer KEY", 401, "invalid_api_key")
            return json_response(body, 401, {"WWW-Authenticate": "Bearer"})
        if scope["method"] not in _SAFE and _from_elsewhere(scope):
            message = "another web site's page may not use this server"
            return json_response(error_body(message, 403, "cross_site_request"), 403)
        length = Headers(scope=scope).get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > self._state.settings.max_body_bytes:
            return json_response(error_body(self._too_large(), 413, "input_too_long"), 413)
        return None

    def _allowed(self, scope: Scope) -> bool:
        key = self._state.settings.api_key
        if key is None or not scope["path"].startswith(_GUARDED):
            return True
        sent = Headers(scope=scope).get("authorization", "")
        return hmac.compare_digest(sent.encode("latin-1"), f"Bearer {key}".encode())

    def _limited(self, receive: Receive) -> Receive:
        limit, total = self._state.settings.max_body_bytes, 0

        async def counting() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > limit:
                if message.get("more_body"):
                    await self._drain(receive)
                raise HTTPException(413, self._too_large())
            return message

        return counting

    async def _drain(self, receive: Receive) -> None:
        """Reads on and forgets, within reason: a client in the middle of sending would not see the answer."""
        allowed = _DRAINED_BODIES * self._state.settings.max_body_bytes
        while allowed > 0:
            message = await receive()
            if message["type"] != "http.request" or not message.get("more_body"):
                return
            allowed -= len(message.get("body", b""))

    def _too_large(self) -> str:
        return f"the body is larger than this server takes, {self._state.settings.max_body_bytes} bytes"

    def _report(self, scope: Scope, request_id: str, status: int, facts: dict[str, Any], ms: float) -> None:
        route = scope.get("route")
        endpoint = getattr(route, "path", "other")
        outcome = facts.pop("outcome", None) or _outcome(status)
        if "unread" in facts:
            outcome = "cancelled"
        self._state.metrics.count(endpoint, outcome)
        words = {"id": request_id, "endpoint": endpoint, "status": status, "outcome": outcome, "ms": round(ms)} | facts
        level = logging.DEBUG if endpoint.startswith(_QUIET[:-1]) or endpoint == "/" else logging.INFO
        _log.log(level, "request %s", " ".join(f"{name}={value}" for name, value in words.items()))


def _slices(message: Message) -> Iterator[Message]:
    """The messages that say the same as `message`, none with a long body."""
    body = message.get("body", b"")
    if message["type"] != "http.response.body" or len(body) <= SLICE:
        yield message
        return
    view, last = memoryview(body), (len(body) - 1) // SLICE * SLICE
    for begin in range(0, last, SLICE):
        yield {"type": message["type"], "body": bytes(view[begin : begin + SLICE]), "more_body": True}
    yield {**message, "body": bytes(view[last:])}


def _from_elsewhere(scope: Scope) -> bool:
    """Whether a browser says that another web site's page is behind the request."""
    return Headers(scope=scope).get("sec-fetch-site") == "cross-site"


def _outcome(status: int) -> str:
    if status < 400:
        return "ok" if status else "failed"
    if status in (429, 503):
        return "rejected"
    if status == 499:
        return "cancelled"
    return "invalid" if status < 500 else "failed"
