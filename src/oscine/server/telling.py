"""Answers in words on their way out: started, watched, and sent as the events of a streamed chat completion."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from oscine.errors import Cancelled, OscineError
from oscine.server.errors import body_of
from oscine.server.state import ServerState
from oscine.server.stream import when_gone
from oscine.types import Capabilities
from oscine.types import Request as Wanted

if TYPE_CHECKING:
    from oscine.api import Model
    from oscine.stream import SpeechStream

_log = logging.getLogger(__name__)
_FINISH = {"stop": "stop"}


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
    opened.callback(asyncio.create_task(when_gone(request.receive, stream.cancel)).cancel)
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


async def tell(
    state: ServerState,
    request: Request,
    model_id: str,
    wanted: Callable[[Capabilities], Wanted],
    *,
    include_usage: bool,
) -> Response:
    """The answer as events, once its first words are there: whatever can be refused has been refused by then."""
    opened = ExitStack()
    try:
        _, stream = await start(state, request, model_id, wanted, opened)
        events = ChatEvents(state, request.state.facts, stream, opened, model_id, include_usage=include_usage)
        await events.pull()
    except BaseException:
        opened.close()
        raise
    return events


class ChatEvents(Response):
    """Server-sent events of the type `chat.completion.chunk`, then `[DONE]`; an error event after which neither comes.

    Closes `opened` at its end, whatever happens.
    """

    def __init__(
        self,
        state: ServerState,
        facts: dict[str, Any],
        stream: SpeechStream,
        opened: ExitStack,
        model_id: str,
        *,
        include_usage: bool,
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Seed": str(stream.seed)}
        super().__init__(headers=headers, media_type="text/event-stream")
        del self.headers["content-length"]
        self._state, self._facts, self._stream, self._opened = state, facts, stream, opened
        self._include_usage = include_usage
        self._words = stream.words()
        self._next: str | None = None
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model_id,
        }

    async def pull(self) -> None:
        """Waits for the next words."""
        self._next = await self._state.in_thread(next, self._words, None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._tell(send)
        finally:
            self._opened.close()

    async def _tell(self, send: Send) -> None:
        try:
            await _send(send, self._chunk({"role": "assistant", "content": ""}))
            while self._next is not None:
                await _send(send, self._chunk({"content": self._next}))
                await self.pull()
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

    async def _complete(self, send: Send) -> None:
        stream = self._stream
        self._facts |= {
            "seed": stream.seed,
            "finish_reason": stream.finish_reason,
            "tokens": stream.usage["output_tokens"],
        }
        self._state.metrics.used(stream.usage)
        await _send(send, self._chunk({}, finish_of(stream.finish_reason)))
        if self._include_usage:
            await _send(send, self._head | {"choices": [], "usage": usage_of(stream.usage)})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    def _chunk(self, delta: Mapping[str, str], finish: str | None = None) -> dict[str, Any]:
        return self._head | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}


async def _send(send: Send, event: Mapping[str, Any], *, more: bool = True) -> None:
    data = f"data: {json.dumps(event)}\n\n".encode("ascii")
    await send({"type": "http.response.body", "body": data, "more_body": more})
