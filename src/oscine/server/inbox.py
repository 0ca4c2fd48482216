"""What a WebSocket session's client says: taken in while the message before is still being handled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from oscine.errors import InvalidRequest
from oscine.server.errors import NORMAL
from oscine.server.json_scan import JsonLimits
from oscine.server.parsing import in_thread_if_long, read_object


class Inbox:
    """Messages of one client; `left` tells, to any thread, that it has gone."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._arrived: asyncio.Queue[dict[str, Any]] = asyncio.Queue(maxsize=1)
        self.left = False

    async def listen(self) -> None:
        """Takes in what arrives until the client leaves, and then raises WebSocketDisconnect.

        One message waits to be handled, and one more to wait: beyond that the client is not read any further.
        """
        while (message := await self._socket.receive())["type"] != "websocket.disconnect":
            await self._arrived.put(dict(message))
        self.left = True
        raise WebSocketDisconnect(message.get("code", NORMAL))

    async def next(self, idle_s: Callable[[], float]) -> str | None:
        """The next message; None for one that is not text. Raises TimeoutError once `idle_s()` is zero or less."""
        while True:
            try:
                message = await asyncio.wait_for(self._arrived.get(), max(idle_s(), 0.0))
            except TimeoutError:
                if idle_s() > 0:
                    continue
                raise
            text: str | None = message.get("text")
            return text


async def parsed(message: str | None, limits: JsonLimits) -> dict[str, Any]:
    """The object that a message is. Raises InvalidRequest, and InputTooLong."""
    if message is None:
        raise InvalidRequest("a message must be a JSON object in a text frame, not binary")
    return await in_thread_if_long(message, lambda: read_object(message, limits))
