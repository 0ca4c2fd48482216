"""Responses whose body is speech being made: raw bytes, or events that carry them."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from oscine.errors import Cancelled, OscineError
from oscine.server.errors import body_of
from oscine.server.schemas import OutputSettings
from oscine.server.state import ServerState
from oscine.server.stream import AudioRun, Delivery

if TYPE_CHECKING:
    from oscine.api import Model

_log = logging.getLogger(__name__)


_SLICE = 1 << 18
_STREAMING = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def respond(
    state: ServerState, request: Request, model: str, output: OutputSettings, make: Callable[[Model], AudioRun]
) -> Response:
    """The response with the audio that `make` starts, once its first bytes are there.

    Everything that can be refused has been refused by then. A client that leaves ends its jobs.
    """
    delivery = Delivery(state, request.state.facts)
    try:
        delivery.admit()
        await delivery.start(model, make)
        delivery.watch(request.receive)
        headers = {"X-Sample-Rate": str(delivery.run.sample_rate), "X-Seed": str(delivery.run.stream.seed)}
        if output.whole:
            data = await delivery.pull_whole()
            headers["X-Finish-Reason"] = delivery.run.stream.finish_reason
            delivery.close()
            return WholeAudio(data, headers=headers, media_type=delivery.run.content_type)
        first = await delivery.pull() or b""
    except BaseException as error:
        delivery.refuse(error)
        delivery.close()
        raise
    kind = AudioEvents if output.stream_format == "sse" else RawAudio
    return kind(delivery, first, headers | _STREAMING)


class WholeAudio(Response):
    """A body that is there already; sent by slices, so that nobody else waits while a long one is copied."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        data = memoryview(self.body)
        for begin in range(0, len(data), _SLICE):
            await _send(send, bytes(data[begin : begin + _SLICE]))
        await _send(send, b"", more=False)


class RawAudio(Response):
    """The bytes of the container as they are made.

    `first` are the bytes already pulled: whatever can be refused has been. A failure after them ends the connection
    without the end of the body, so that no client takes it for complete.
    """

    def __init__(self, delivery: Delivery, first: bytes, headers: Mapping[str, str]) -> None:
        super().__init__(headers=dict(headers), media_type=self._content_type(delivery))
        del self.headers["content-length"]
        self._delivery, self._first = delivery, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._stream(send)
        finally:
            self._delivery.close()

    async def _stream(self, send: Send) -> None:
        data: bytes | None = self._first
        try:
            while data is not None:
                await _send(send, self._frame(data))
                data = await self._delivery.pull()
        except Exception as error:
            self._delivery.fail(error)
            if not isinstance(error, (OscineError, OSError)):
                _log.exception("a stream broke off")
            if isinstance(error, Cancelled):
                return  # nobody is listening
            await self._break_off(send, error)
        else:
            await self._complete(send)

    def _content_type(self, delivery: Delivery) -> str:
        return delivery.run.content_type

    def _frame(self, data: bytes) -> bytes:
        return data

    async def _break_off(self, send: Send, error: Exception) -> None:
        return  # without a last message: the server closes the connection

    async def _complete(self, send: Send) -> None:
        await _send(send, b"", more=False)


class AudioEvents(RawAudio):
    """Server-sent events: `speech.audio.delta` with a slice of the container, then `speech.audio.done`.

    A failure is `speech.audio.error`, and no `done` follows.
    """

    def _content_type(self, delivery: Delivery) -> str:
        return "text/event-stream"

    def _frame(self, data: bytes) -> bytes:
        return _event({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode("ascii")})

    async def _break_off(self, send: Send, error: Exception) -> None:
        await _send(send, _event({"type": "speech.audio.error", **body_of(error)}), more=False)

    async def _complete(self, send: Send) -> None:
        stream = self._delivery.run.stream
        done = {"type": "speech.audio.done", "usage": stream.usage, "finish_reason": stream.finish_reason}
        await _send(send, _event(done), more=False)


def _event(body: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode("ascii")


async def _send(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})
