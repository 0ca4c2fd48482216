"""Text to speech: one text, or a batch of them."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from oscine.errors import Cancelled, InvalidRequest, OscineError
from oscine.server.errors import body_of
from oscine.server.parsing import BodyRoute
from oscine.server.responses import respond
from oscine.server.schemas import BatchBody, BatchItem, SpeechBody
from oscine.server.speaking import reference_of, speech_maker
from oscine.server.state import ServerState
from oscine.server.stream import Delivery


def speech_routes(state: ServerState) -> APIRouter:
    """`/v1/audio/speech` and `/v1/audio/speech/batch`."""
    router = APIRouter(route_class=BodyRoute)

    @router.post("/v1/audio/speech", response_class=Response, summary="Speak a text")
    async def speech(request: Request, body: SpeechBody) -> Response:
        state.check_text(body.input)
        request.state.facts |= {"chars": len(body.input), "format": body.response_format}
        reference = partial(reference_of, body, state)
        make = speech_maker(body.input, body, reference, None if body.whole else state.live(body.speed))
        return await respond(state, request, body.model, body, make)

    @router.post("/v1/audio/speech/batch", response_class=Response, summary="Speak several texts")
    async def batch(request: Request, body: BatchBody) -> Response:
        most = state.settings.max_batch_texts * state.settings.max_input_chars
        if (total := sum(len(item.input) for item in body.items)) > most:
            raise InvalidRequest(f"items have {total} characters of text; a batch takes {most} at most", param="items")
        for name in ("stream", "stream_format"):
            if getattr(body, name) is not None or any(getattr(item, name) is not None for item in body.items):
                raise InvalidRequest(f"{name} has no meaning in a batch: its audio comes whole", param=name)
        state.models.resolve(body.model)
        with state.admit():
            return await _speak_batch(state, request, body)

    return router


async def _speak_batch(state: ServerState, request: Request, body: BatchBody) -> Response:
    """All items, a few at a time; one that fails fails alone. A client that leaves ends them all."""
    room = asyncio.Semaphore(state.settings.batch_parallel)
    gone = asyncio.Event()
    running: set[Delivery] = set()

    async def one(index: int, item: BatchItem) -> Mapping[str, Any]:
        async with room:
            delivery = Delivery(state, {})
            try:
                if gone.is_set():
                    raise Cancelled("the client has left")
                state.check_text(item.input)
                settings = body.item_settings(item)
                reference = partial(reference_of, settings, state)
                await delivery.start(body.model, speech_maker(item.input, settings, reference, None))
                running.add(delivery)
                if gone.is_set():
                    raise Cancelled("the client has left")
                return await state.in_thread(_result, index, delivery, await delivery.pull_whole())
            except OscineError as error:
                return {"index": index, "status": "error", **body_of(error)}
            finally:
                running.discard(delivery)
                delivery.close()

    def leave() -> None:
        gone.set()
        for delivery in running:
            delivery.run.cancel()

    with request.state.incoming.calling(leave):
        results = await asyncio.gather(*(one(index, item) for index, item in enumerate(body.items)))
    if gone.is_set():
        raise Cancelled("the client has left")
    succeeded = sum(result["status"] == "success" for result in results)
    request.state.facts |= {"model": state.models.resolve(body.model), "items": len(results), "succeeded": succeeded}
    head = {
        "id": f"batch_{secrets.token_hex(8)}",
        "object": "audio.speech.batch",
        "total": len(results),
        "succeeded": succeeded,
        "failed": len(results) - succeeded,
    }
    return Response(await state.in_thread(_joined, head, results), media_type="application/json")


def _joined(head: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> bytes:
    """`head` and the results as one JSON object, written result by result: other threads get their turn in between."""
    parts = [json.dumps(result).encode("ascii") for result in results]
    return json.dumps(head)[:-1].encode("ascii") + b', "results": [' + b", ".join(parts) + b"]}"


def _result(index: int, delivery: Delivery, data: bytes) -> dict[str, Any]:
    """What a batch says of an item that was spoken."""
    stream = delivery.run.stream
    return {
        "index": index,
        "status": "success",
        "audio_data": base64.b64encode(data).decode("ascii"),
        "media_type": delivery.run.content_type,
        "sample_rate": delivery.run.sample_rate,
        "seed": stream.seed,
        "finish_reason": stream.finish_reason,
        "usage": stream.usage,
    }
