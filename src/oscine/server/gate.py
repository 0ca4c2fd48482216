"""What every request passes: its id, who may ask, the limits of its body, and at the end one log line and one count."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Iterator
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oscine.cancellation import cancelled_when
from oscine.errors import Cancelled, QueueFull
from oscine.server.errors import error_body, error_response, json_response
from oscine.server.incoming import Incoming
from oscine.server.state import ServerState

_log = logging.getLogger(__name__)

_GUARDED = ("/v1/", "/metrics")
_SAFE = ("GET", "HEAD")
SLICE = 1 << 16
"""Bytes sent at a time."""
ABORT = "oscine.abort"
"""Extension of a scope: ends the connection at once, whatever is still to be sent."""
SPARE = "oscine.spare"
"""Extension of a scope: the connection is beyond the limit, there for those who look after the server."""
_ALWAYS = ("/health", "/ready", "/metrics")
_QUIET = ("/health", "/ready", "/metrics", "/static", "/")


class Unread(Cancelled):
    """The client does not read what it is sent."""


class Gate:
    """Wraps an app. Whoever may not ask is refused first, before anything of a body is kept."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app, self._state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._stranger(scope) is not None or _is_spare(scope):
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "not allowed"})
            return
        try:
            await self._app(scope, receive, self._timed(scope, send, ConnectionAbortedError))
        except asyncio.CancelledError:  # the server stops
            if not await _abort(scope):
                raise

    def _timed(self, scope: Scope, send: Send, error: type[Exception]) -> Send:
        """`send` that waits `send_timeout_s` for a client to read, then ends the connection and raises `error`.

        A long body goes out by slices: nobody else waits while one is copied, and each has the time to itself.
        """
        limit = self._state.settings.send_timeout_s

        async def sending(message: Message) -> None:
            try:
                for part in _slices(message):
                    async with asyncio.timeout(limit):
                        await send(part)
            except TimeoutError as late:
                await _abort(scope)
                raise error(f"the client has not read what was sent for {limit:g} s") from late

        return sending

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        settings = self._state.settings
        request_id = f"req_{secrets.token_hex(8)}"
        facts: dict[str, Any] = {}
        incoming = Incoming(
            scope,
            receive,
            max_bytes=settings.max_body_bytes,
            receive_s=settings.receive_timeout_s,
            budget=self._state.held,
        )
        scope.setdefault("state", {}).update(facts=facts, incoming=incoming)
        started = time.perf_counter()
        status = 0
        send = self._timed(scope, send, Unread)
        cors = self._state.origins.cors_headers(Headers(scope=scope).get("origin"))

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if incoming.refused:
                    await incoming.drain()
                incoming.release()  # whatever the answer is made of, the body is no longer
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
                headers.update(cors)
                if _is_spare(scope):
                    headers["Connection"] = "close"
            try:
                await send(message)
            except Unread:
                facts["unread"] = True
                raise

        try:
            answer = self._answer(scope, incoming)
            if answer is not None:
                await incoming.drain()
                await answer(scope, incoming.receive, sending)
            else:
                incoming.watch()
                with cancelled_when(lambda: incoming.left):
                    await self._app(scope, incoming.receive, sending)
        except ClientDisconnect:  # in the middle of sending the request
            facts["outcome"] = "cancelled"
        except asyncio.CancelledError:  # the server stops, and has waited long enough
            facts |= {"outcome": "cancelled", "shutdown": True}
            if not await _abort(scope):
                raise
        except Exception as error:
            if "unread" in facts:  # the connection is gone already
                return
            if status:  # too late for an answer: the connection breaks
                raise
            _log.exception("request %s failed", request_id)
            await error_response(error)(scope, receive, sending)
        finally:
            incoming.close()
            self._report(scope, request_id, status, facts, 1000 * (time.perf_counter() - started))

    def _answer(self, scope: Scope, incoming: Incoming) -> Response | None:
        """The response to a request that goes no further."""
        headers, settings = Headers(scope=scope), self._state.settings
        if _is_spare(scope) and scope["path"] not in _ALWAYS:
            body = error_body("this server has as many connections as it takes", 503, "too_many_connections")
            return json_response(body, 503, {"Retry-After": "1"})
        if scope["method"] == "OPTIONS" and self._state.origins.allows_host(headers.get("host")):
            allowed = self._state.origins.preflight(headers)
            if allowed is not None:
                return Response(status_code=204, headers=allowed)
        if (refusal := self._stranger(scope)) is not None:
            return refusal
        if incoming.stated_bytes > settings.max_body_bytes:
            return json_response(error_body(incoming.too_large(), 413, "input_too_long"), 413)
        if incoming.is_large:
            try:
                self._state.check_room()
            except QueueFull as error:
                return error_response(error)
        return None

    def _stranger(self, scope: Scope) -> Response | None:
        """The response to whoever may not use the server."""
        headers, origins = Headers(scope=scope), self._state.origins
        host, origin = headers.get("host"), headers.get("origin")
        if not origins.allows_host(host):
            message = f"{(host or '')[:60]!r} is no name of this server; see its option --allow-host"
            return json_response(error_body(message, 421, "host_not_allowed"), 421)
        if scope["type"] == "websocket" or scope["method"] not in _SAFE:
            elsewhere = origin is None and headers.get("sec-fetch-site") == "cross-site"
            if elsewhere or not origins.allows_origin(origin, host):
                message = "another web site's page may not use this server; see its option --allow-origin"
                return json_response(error_body(message, 403, "cross_site_request"), 403)
        key = self._state.settings.api_key
        if key is not None and scope["path"].startswith(_GUARDED) and not _has_key(headers, key):
            body = error_body("the API key is missing or wrong; send Authorization: Bearer KEY", 401, "invalid_api_key")
            return json_response(body, 401, {"WWW-Authenticate": "Bearer"})
        return None

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


def _has_key(headers: Headers, key: str) -> bool:
    scheme, _, sent = headers.get("authorization", "").strip().partition(" ")
    right = hmac.compare_digest(sent.strip().encode("latin-1"), key.encode())
    return right and scheme.lower() == "bearer"


def _is_spare(scope: Scope) -> bool:
    return bool(scope.get("extensions", {}).get(SPARE))


async def _abort(scope: Scope) -> bool:
    """Ends the connection at once; False if the server that runs the app cannot."""
    abort = scope.get("extensions", {}).get(ABORT)
    if abort is None:
        return False
    abort()
    await asyncio.sleep(0)  # the server takes note
    return True


def _outcome(status: int) -> str:
    if status < 400:
        return "ok" if status else "failed"
    if status in (429, 503):
        return "rejected"
    if status == 499:
        return "cancelled"
    return "invalid" if status < 500 else "failed"
