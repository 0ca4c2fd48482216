"""Parses JSON without keeping the event loop waiting.

`json.loads` holds the interpreter lock from the first character to the last, so that a thread alone would not help.
What makes bodies large are recordings in base64, and those are taken out before the rest is parsed.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Coroutine
from typing import Any

import anyio.to_thread
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

LONG = 1 << 16
"""Characters from which on a string is taken out, and a body is parsed in a thread."""
_MOST_STRINGS = 20_000
_BACKSLASH = ord("\\")


class BodyRoute(APIRoute):
    """A route whose JSON body is parsed beside the event loop."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's own handler, given a `BodyRequest`."""
        handle = super().get_route_handler()

        async def with_body(request: Request) -> Response:
            return await handle(BodyRequest(request.scope, request.receive))

        return with_body


class BodyRequest(Request):
    """A request whose JSON is parsed beside the event loop."""

    async def body(self) -> bytes:
        """The bytes of the body. When it is refused nothing holds what has come of it."""
        if not hasattr(self, "_body"):
            parts: list[bytes] = []
            try:
                async for part in self.stream():
                    parts.append(part)
            except BaseException:
                parts.clear()
                raise
            self._body = b"".join(parts)
        return self._body

    async def json(self) -> Any:
        """The body. Raises as `parse`."""
        if not hasattr(self, "_json"):
            self._json = await parse_aside(await self.body())
        return self._json


async def parse_aside(text: bytes | str) -> Any:
    """`parse` in a thread if `text` is long."""
    return parse(text) if len(text) < LONG else await anyio.to_thread.run_sync(parse, text)


def parse(text: bytes | str) -> Any:
    """What `json.loads` makes of it; control characters pass in strings that are long and have no escapes.

    Raises ValueError for what is not JSON (its `JSONDecodeError` mostly) and RecursionError for what is too deep.
    """
    body = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(body) < LONG or json.detect_encoding(body) != "utf-8":
        return json.loads(text)
    short, long = _take_out(body, secrets.token_hex(8))
    parsed = json.loads(short)
    return _put_back(parsed, long) if long else parsed


def _take_out(body: bytes, mark: str) -> tuple[bytes, dict[str, str]]:
    """`body` with a stand-in for each long string without escapes, and those strings by their stand-ins."""
    view = memoryview(body)
    parts: list[bytes | memoryview] = []
    long: dict[str, str] = {}
    copied = place = 0
    for _ in range(_MOST_STRINGS):
        start = body.find(b'"', place)
        end = _string_end(body, start)
        if start < 0 or end < 0:
            break
        place = end + 1
        if end - start > LONG and body.find(b"\\", start, end) < 0:
            name = f"{mark}-{len(long)}"
            long[name] = str(view[start + 1 : end], "utf-8")  # the only copy made of it
            parts += [view[copied : start + 1], name.encode()]
            copied = end
    return b"".join([*parts, view[copied:]]), long


def _string_end(body: bytes, start: int) -> int:
    """The place of the quote that ends the string whose first quote is at `start`, -1 if none does."""
    end = body.find(b'"', start + 1)
    while end >= 0:
        before = end
        while body[before - 1] == _BACKSLASH:
            before -= 1
        if (end - before) % 2 == 0:
            return end
        end = body.find(b'"', end + 1)
    return -1


def _put_back(value: Any, long: dict[str, str]) -> Any:
    if isinstance(value, str):
        return long.get(value, value)
    if isinstance(value, list):
        return [_put_back(item, long) for item in value]
    if isinstance(value, dict):
        return {long.get(name, name): _put_back(item, long) for name, item in value.items()}
    return value
