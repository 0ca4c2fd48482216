"""What comes from a request's client: its body, within limits of size, time and memory; then that it has left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

from oscine.server.budget import SLOWEST, SMALL, ByteBudget, Pace

_DRAINED_BODIES = 4
"""How many times the size limit is read of a body that is refused."""
_RETRY_S = 5
_FULL = "as many bytes of requests are being held as this server has room for; try again later"


class Incoming:
    """The messages from one request's client. `receive` is what the app gets; `left` may be asked from any thread.

    The body has to keep the pace of `receive_s`, and room in `budget`.
    """

    def __init__(self, scope: Scope, receive: Receive, *, max_bytes: int, receive_s: float, budget: ByteBudget) -> None:
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        self.stated_bytes = int(length[:20]) if length.isdecimal() else 0
        self.is_large = self.stated_bytes > SMALL or "transfer-encoding" in headers
        self.left = False
        self._has_body = self.stated_bytes > 0 or "transfer-encoding" in headers
        self._asks_first = headers.get("expect", "").lower() == "100-continue"
        self._receive, self._max_bytes = receive, max_bytes
        self._pace = Pace(receive_s)
        self._lease = budget.lease(self._pace, self._give_way)
        if not self._has_body:
            self._lease.arrived()
        self._timeout: asyncio.Timeout | None = None
        self._gave_way = self.refused = False
        self._num_bytes = 0
        self._complete = False
        self._watcher: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()
        self._on_leaving: dict[object, Callable[[], None]] = {}

    async def receive(self) -> Message:
        """The next part of the body; after its end, once the client has left, that.

        Raises HTTPException for a body that is too long (413) or too slow (408), or when there is no room (429).
        """
        if self._complete:
            await self._gone.wait()
            return {"type": "http.disconnect"}
        if self._watcher is not None:  # there is no body, and the client is watched already
            self._complete = True
            return {"type": "http.request", "body": b"", "more_body": False}
        try:
            async with asyncio.timeout_at(self._pace.deadline(self._num_bytes)) as self._timeout:
                message = await self._receive()
        except TimeoutError as late:
            raise (self._refusal(429, _FULL) if self._gave_way else self._refusal(408, self._too_slow())) from late
        self._timeout = None
        if message["type"] == "http.disconnect":
            self._leave()
            return message
        self._pace.went_on()
        self._num_bytes += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._num_bytes > self._max_bytes:
            raise self._refusal(413, self.too_large())
        if self._gave_way or not self._lease.resize(self._num_bytes):
            raise self._refusal(429, _FULL)
        if self._complete:
            self._lease.arrived()
            self.watch()
        return message

    def watch(self) -> None:
        """Begins to notice that the client leaves, unless it is still to send its body. Idempotent."""
        if self._watcher is None and (self._complete or not self._has_body):
            self._watcher = asyncio.create_task(self._watch())

    async def drain(self) -> None:
        """Reads on and forgets, within reason: a client in the middle of sending would not see the answer.

        Not if it asks before it sends (`Expect`).
        """
        self.release()
        if self._complete or not self._has_body or (self._asks_first and not self._num_bytes):
            return
        self._complete = True
        allowed = _DRAINED_BODIES * self._max_bytes
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pace.receive_s):
                while allowed > 0:
                    message = await self._receive()
                    if message["type"] != "http.request" or not message.get("more_body"):
                        return
                    allowed -= len(message.get("body", b""))

    def release(self) -> None:
        """The bytes of the body are no longer needed. Idempotent."""
        self._lease.release()

    @contextmanager
    def calling(self, act: Callable[[], None]) -> Iterator[None]:
        """Calls `act` when the client leaves, or now if it has, until the block is left."""
        key = object()
        self._on_leaving[key] = act
        try:
            if self.left:
                act()
            yield
        finally:
            del self._on_leaving[key]

    def close(self) -> None:
        """Watches no longer. Idempotent."""
        self.release()
        if self._watcher is not None:
            self._watcher.cancel()

    def too_large(self) -> str:
        """What is told of a body beyond the limit."""
        return f"the body is larger than this server takes, {self._max_bytes} bytes"

    def _too_slow(self) -> str:
        limit = self._pace.receive_s
        return f"nothing of the body came for {limit:g} s, or all of it took a second more for each {SLOWEST >> 10} KiB"

    def _refusal(self, status: int, message: str) -> HTTPException:
        """The error to raise. The rest of the body is read before the client is told, when nothing holds it."""
        self.refused = True
        self.release()
        headers = {408: {"Connection": "close"}, 429: {"Retry-After": str(_RETRY_S)}}
        return HTTPException(status, message, headers.get(status))

    def _give_way(self) -> None:
        self._gave_way = True
        self.release()
        if self._timeout is not None:
            self._timeout.reschedule(0.0)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        self.left = self._complete = True
        self._gone.set()
        for act in list(self._on_leaving.values()):
            act()
