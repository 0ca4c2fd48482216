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
from oscine.server.stream import AudioRun, Delivery, Progress

if TYPE_CHECKING:
    from oscine.api import Model

_log = logging.getLogger(__name__)

_DELTA_BYTES = 24 << 10
"""In one event: clients that read line by line often take no more than 64 KiB in one."""
_STREAMING = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def respond(
    state: ServerState, request: Request, model: str, output: OutputSettings, make: Callable[[Model], AudioRun]
) -> Response:
    """The response with the audio that `make` starts, once its first bytes are there.

    Everything that can be refused has been refused by then. Events begin earlier where that takes long, to tell the
    progress. A client that leaves ends its jobs.
    """
    delivery = Delivery(state, request.state.facts)
    try:
        delivery.admit()
        await delivery.start(model, make)
        delivery.watch(request.state.incoming)
        headers = {"X-Sample-Rate": str(delivery.run.sample_rate), "X-Seed": str(delivery.run.stream.seed)}
        if output.whole:
            data = await delivery.pull_whole()
            headers["X-Finish-Reason"] = delivery.run.stream.finish_reason
            delivery.close()
            return Response(data, headers=headers, media_type=delivery.run.content_type)
        kind = AudioEvents if output.stream_format == "sse" else RawAudio
        await delivery.begin(patient=kind is RawAudio)
    except BaseException as error:
        delivery.refuse(error)
        delivery.close()
        raise
    return kind(delivery, headers | _STREAMING)


class RawAudio(Response):
    """The bytes of the container as they are made.

    The first ones are there: whatever can be refused has been. A failure after them ends the connection without the
    end of the body, so that no client takes it for complete.
    """

    def __init__(self, delivery: Delivery, headers: Mapping[str, str]) -> None:
        super().__init__(headers=dict(headers), media_type=self._content_type(delivery))
        del self.headers["content-length"]
        self._delivery = delivery

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._stream(send)
        finally:
            self._delivery.close()

    async def _stream(self, send: Send) -> None:
        try:
            while (frame := await self._next()) is not None:
                await _send(send, frame)
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

    async def _next(self) -> bytes | None:
        return await self._delivery.pull()

    async def _break_off(self, send: Send, error: Exception) -> None:
        return  # without a last message: the server closes the connection

    async def _complete(self, send: Send) -> None:
        await _send(send, b"", more=False)


class AudioEvents(RawAudio):
    """Server-sent events: `speech.audio.delta` with a slice of the container, then `speech.audio.done`.

    When there is no audio for a while, `speech.audio.progress` tells how far the request is. A failure is
    `speech.audio.error`, and no `done` follows.
    """

    def __init__(self, delivery: Delivery, headers: Mapping[str, str]) -> None:
        super().__init__(delivery, headers)
        self._rest = memoryview(b"")

    def _content_type(self, delivery: Delivery) -> str:
        return "text/event-stream"

    async def _next(self) -> bytes | None:
        if not self._rest:
            data = await self._delivery.pull_or_progress()
            if data is None:
                return None
            if isinstance(data, Progress):
                return _event({"type": "speech.audio.progress", **data.fields()})
            self._rest = memoryview(data)
        audio = base64.b64encode(self._rest[:_DELTA_BYTES]).decode("ascii")
        self._rest = self._rest[_DELTA_BYTES:]
        return _event({"type": "speech.audio.delta", "audio": audio, **self._delivery.progress.fields()})

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
