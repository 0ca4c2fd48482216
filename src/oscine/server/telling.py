"""Answers in words on their way out: started, watched, and sent as events while they are made."""

from __future__ import annotations

import json
import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from oscine.errors import Cancelled, OscineError
from oscine.server.errors import body_of
from oscine.server.state import ServerState
from oscine.server.waiting import Pulled
from oscine.types import Capabilities
from oscine.types import Request as Wanted

if TYPE_CHECKING:
    from oscine.api import Model
    from oscine.stream import SpeechStream

_log = logging.getLogger(__name__)
_FINISH = {"stop": "stop"}

Event = Mapping[str, Any]


async def start(
    state: ServerState, request: Request, model_id: str, wanted: Callable[[Capabilities], Wanted], opened: ExitStack
) -> tuple[Model, SpeechStream]:
    """The model and the stream of a request that has been admitted; a client that leaves ends it, so does `opened`.

    `wanted` is called in a thread. Raises what can be refused.
    """
    request.state.facts["model"] = model_id
    opened.enter_context(state.admit())
    model = await state.in_thread(opened.enter_context, state.models.use(model_id))
    stream = await state.in_thread(lambda: model.run(wanted(model.capabilities)))
    opened.callback(stream.cancel)
    opened.enter_context(request.state.incoming.calling(stream.cancel))
    return model, stream


def finish_of(finish_reason: str) -> str:
    """A finish reason in the words of a chat completion."""
    return _FINISH.get(finish_reason, "length")


def usage_of(usage: Mapping[str, int]) -> dict[str, int]:
    """Token counts in the words of a chat completion."""
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
    }


class Wording(ABC):
    """The events that one kind of answer consists of."""

    end = b""
    """What follows the last event."""

    def opening(self) -> Iterator[Event]:
        """Before all others."""
        return iter(())

    @abstractmethod
    def words(self, words: str) -> Event:
        """With the next words."""

    @abstractmethod
    def progress(self, stream: SpeechStream) -> Event:
        """Without words, when there have been none for a while."""

    @abstractmethod
    def closing(self, stream: SpeechStream) -> Iterator[Event]:
        """After all others, once the answer is complete."""


class ChatWording(Wording):
    """Chunks of a chat completion, then `[DONE]`. Progress is a chunk without words, which no client minds."""

    end = b"data: [DONE]\n\n"

    def __init__(self, model_id: str, *, include_usage: bool) -> None:
        self._include_usage = include_usage
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model_id,
        }

    def opening(self) -> Iterator[Event]:
        """The role."""
        yield self._chunk({"role": "assistant", "content": ""})

    def words(self, words: str) -> Event:
        """A delta."""
        return self._chunk({"content": words})

    def progress(self, stream: SpeechStream) -> Event:
        """An empty delta, and how far the answer is."""
        return {**self._chunk({}), **_progress(stream)}

    def closing(self, stream: SpeechStream) -> Iterator[Event]:
        """How it ended, and token counts if they are wanted."""
        yield self._chunk({}, finish_of(stream.finish_reason))
        if self._include_usage:
            yield self._head | {"choices": [], "usage": usage_of(stream.usage)}

    def _chunk(self, delta: Mapping[str, str], finish: str | None = None) -> dict[str, Any]:
        return self._head | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}


class TranscriptWording(Wording):
    """Events `transcript.text.delta`, then one `transcript.text.done` with the whole text."""

    def words(self, words: str) -> Event:
        """A delta."""
        return {"type": "transcript.text.delta", "delta": words}

    def progress(self, stream: SpeechStream) -> Event:
        """How far the transcript is."""
        return {"type": "transcript.text.progress", **_progress(stream)}

    def closing(self, stream: SpeechStream) -> Iterator[Event]:
        """The text, token counts, and how it ended."""
        yield {
            "type": "transcript.text.done",
            "text": stream.text,
            "usage": {"type": "tokens", **stream.usage},
            "finish_reason": stream.finish_reason,
        }


def _progress(stream: SpeechStream) -> dict[str, Any]:
    return {"progress": round(stream.progress, 4), "output_tokens": stream.num_frames}


async def tell(
    state: ServerState, request: Request, model_id: str, wanted: Callable[[Capabilities], Wanted], wording: Wording
) -> Response:
    """The answer as events, once its first words are there or there is progress to tell.

    Whatever can be refused has been refused by then.
    """
    opened = ExitStack()
    try:
        _, stream = await start(state, request, model_id, wanted, opened)
        events = WordEvents(state, request.state.facts, stream, opened, wording)
        await events.begin()
    except BaseException:
        opened.close()
        raise
    return events


class WordEvents(Response):
    """Server-sent events with an answer in words; an error event after which no more come.

    Closes `opened` at its end, whatever happens.
    """

    def __init__(
        self, state: ServerState, facts: dict[str, Any], stream: SpeechStream, opened: ExitStack, wording: Wording
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Seed": str(stream.seed)}
        super().__init__(headers=headers, media_type="text/event-stream")
        del self.headers["content-length"]
        self._state, self._facts, self._stream, self._opened = state, facts, stream, opened
        self._wording = wording
        words = stream.words()
        self._words: Pulled[str | None] = Pulled(state, lambda: next(words, None))
        opened.callback(self._words.close)

    async def begin(self) -> None:
        """Returns once there is something to tell, and raises what came in its place."""
        await self._words.arrives_in_time()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._tell(send)
        finally:
            self._opened.close()

    async def _tell(self, send: Send) -> None:
        try:
            for first in self._wording.opening():
                await _send(send, first)
            while (event := await self._next()) is not None:
                await _send(send, event)
            if self._stream.finish_reason == "cancelled":
                raise Cancelled("the client has left")
        except Exception as error:
            self._facts |= {"outcome": "cancelled" if isinstance(error, Cancelled) else "failed"}
            if not isinstance(error, (OscineError, OSError)):
                _log.exception("an answer broke off")
            if not isinstance(error, Cancelled):  # else nobody is listening
                await _send(send, body_of(error), more=False)
            return
        await self._complete(send)

    async def _next(self) -> Event | None:
        """The event with the next words or, when they take long, with the progress; None after the last."""
        ready = await self._words.arrives_in_time()
        self._words.told()
        if not ready:
            return self._wording.progress(self._stream)
        words = await self._words.take()
        return None if words is None else self._wording.words(words)

    async def _complete(self, send: Send) -> None:
        stream = self._stream
        self._facts |= {
            "seed": stream.seed,
            "finish_reason": stream.finish_reason,
            "tokens": stream.usage["output_tokens"],
        }
        self._state.metrics.used(stream.usage)
        for event in self._wording.closing(stream):
            await _send(send, event)
        await send({"type": "http.response.body", "body": self._wording.end, "more_body": False})


async def _send(send: Send, event: Event, *, more: bool = True) -> None:
    data = f"data: {json.dumps(event)}\n\n".encode("ascii")
    await send({"type": "http.response.body", "body": data, "more_body": more})
