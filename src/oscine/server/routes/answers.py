"""Models that hear: transcriptions, and answers to a recording in words or speech."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from oscine.audio.encode import encode
from oscine.audio.formats import check_available
from oscine.checkpoint.voice_names import DEFAULT_VOICE, OPENAI_VOICES
from oscine.errors import Cancelled, InvalidRequest, UnknownVoice
from oscine.options import check_task
from oscine.server import forms
from oscine.server.errors import json_response
from oscine.server.hearing import ChatBody, TranscriptionForm
from oscine.server.parsing import BodyRoute, validated
from oscine.server.schemas import VoiceId
from oscine.server.state import ServerState
from oscine.server.telling import ChatWording, TranscriptWording, finish_of, start, tell, usage_of
from oscine.types import Capabilities, Task
from oscine.types import Request as Wanted

if TYPE_CHECKING:
    from oscine.api import Result


def answer_routes(state: ServerState) -> APIRouter:
    """`/v1/audio/transcriptions` and `/v1/chat/completions`."""
    router = APIRouter(route_class=BodyRoute)

    @router.post(
        "/v1/audio/transcriptions",
        response_class=Response,
        summary="Write down the words of a recording; a multipart form with `file`",
        openapi_extra={
            "requestBody": {"content": {"multipart/form-data": {"schema": TranscriptionForm.model_json_schema()}}}
        },
    )
    async def transcribe(request: Request) -> Response:
        fields, files = await forms.form(request, files=("file",))
        form = validated(forms.typed(fields, TranscriptionForm), TranscriptionForm)
        if "file" not in files:
            raise InvalidRequest("file: the recording is missing", param="file")

        def wanted(capabilities: Capabilities) -> Wanted:
            check_task("transcribe", capabilities)
            audio = state.uploads.decode(files.pop("file"), "file", max_seconds=state.settings.max_audio_s)
            return Wanted(task="transcribe", audio=audio, **form.options_for(capabilities))

        if form.stream:
            return await tell(state, request, state.models.resolve(form.model), wanted, TranscriptWording())
        result = await _answer(state, request, form.model, wanted)
        headers = {"X-Finish-Reason": result.finish_reason}
        if form.response_format == "text":
            return Response(result.text + "\n", headers=headers, media_type="text/plain; charset=utf-8")
        usage = {"type": "tokens", **result.usage}
        return json_response({"text": result.text, "usage": usage}, headers=headers)

    @router.post("/v1/chat/completions", response_class=Response, summary="Answer a recording")
    async def chat(request: Request, body: ChatBody) -> Response:
        encoded, question = body.parts()
        state.check_text(question, "messages")
        _check_chat(body, question)

        def wanted(capabilities: Capabilities) -> Wanted:
            task: Task = "converse" if body.speaks else "ask"
            check_task(task, capabilities)
            data = state.recordings.read(encoded, "messages")
            audio = state.uploads.decode(data, "messages", max_seconds=state.settings.max_audio_s)
            return Wanted(task=task, text=question, audio=audio, **body.options_for(capabilities))

        model = state.models.resolve(body.model)
        if body.stream:
            return await tell(state, request, model, wanted, ChatWording(model, include_usage=body.wants_usage))
        result = await _answer(state, request, body.model, wanted)
        return await state.in_thread(lambda: json_response(_completion(body, model, result)))

    return router


def _check_chat(body: ChatBody, question: str) -> None:
    """Raises for combinations that no model here serves."""
    if body.speaks and question:
        raise InvalidRequest("a spoken answer is given to spoken words alone; leave the text out", param="messages")
    if not body.speaks and not question:
        raise InvalidRequest("a question about the recording is missing: add a part of type text", param="messages")
    if body.speaks and body.stream:
        raise InvalidRequest("a spoken answer comes whole; leave stream out", param="stream")
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options belong to stream", param="stream_options")
    if body.audio is None:
        return
    if not body.speaks:
        raise InvalidRequest('audio belongs to the modality "audio"', param="audio")
    check_available(body.audio.format)
    voice = body.audio.voice.id if isinstance(body.audio.voice, VoiceId) else body.audio.voice
    if voice not in (None, "", DEFAULT_VOICE, *OPENAI_VOICES):
        raise UnknownVoice(f"no voice named {voice!r}: answers have the model's own voice", param="audio")


async def _answer(
    state: ServerState, request: Request, model_name: str, wanted: Callable[[Capabilities], Wanted]
) -> Result:
    """The finished result of a request; a client that leaves ends it. `wanted` is called in a thread."""
    with ExitStack() as opened:
        model, stream = await start(state, request, state.models.resolve(model_name), wanted, opened)
        result: Result = await state.in_thread(model.finish, stream)
    request.state.facts |= {
        "seed": result.seed,
        "finish_reason": result.finish_reason,
        "tokens": result.usage["output_tokens"],
    }
    if result.finish_reason == "cancelled":
        raise Cancelled("the client has left")
    state.metrics.used(result.usage)
    return result


def _completion(body: ChatBody, model: str, result: Result) -> dict[str, Any]:
    """The answer in the shape of a chat completion."""
    now = int(time.time())
    message: dict[str, Any] = {"role": "assistant", "content": result.text, "refusal": None}
    if body.speaks:
        name = body.audio.format if body.audio else "wav"
        message["content"] = None
        message["audio"] = {
            "id": f"audio_{secrets.token_hex(8)}",
            "data": base64.b64encode(encode(name, result.audio, result.sample_rate, seed=result.seed)).decode("ascii"),
            "transcript": result.text,
            "expires_at": now,
        }
    return {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "object": "chat.completion",
        "created": now,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": finish_of(result.finish_reason),
                "logprobs": None,
            }
        ],
        "usage": usage_of(result.usage),
    }
