"""What there is: the models served, and their voices."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from oscine.checkpoint.voice_names import DEFAULT_VOICE
from oscine.errors import BadAudio, InvalidRequest
from oscine.options import check_cloning
from oscine.server.errors import error_body, json_response
from oscine.server.schemas import VoiceForm
from oscine.server.state import ServerState
from oscine.server.voices import openai_table
from oscine.types import Capabilities, Option, Voice


def catalog_routes(state: ServerState) -> APIRouter:
    """`/v1/models`, `/v1/audio/models` and `/v1/audio/voices`."""
    router = APIRouter()
    created = int(time.time())

    @router.get("/v1/models", response_class=Response, summary="The models served here")
    @router.get("/v1/audio/models", response_class=Response, summary="The models served here")
    async def models() -> Response:
        data = [_model(state, model_id, created) for model_id in state.models.ids]
        return json_response({"object": "list", "data": data, "models": data})

    @router.get("/v1/models/{model:path}", response_class=Response, summary="One model, with what it can do")
    async def model(model: str) -> Response:
        return json_response(_model(state, state.models.resolve(model), created))

    @router.get("/v1/audio/voices", response_class=Response, summary="The voices of a model; loads it")
    async def voices(
        model: Annotated[str | None, Query(description="the model. Default: the default one")] = None,
    ) -> Response:
        return json_response(await state.in_thread(_list_voices, state, model))

    @router.post("/v1/audio/voices", response_class=Response, summary="Store a voice made from a recording")
    async def create_voice(request: Request, form: Annotated[VoiceForm, Form()]) -> Response:
        audio = await form.audio_sample.read()
        with state.admit():
            try:
                voice = await state.in_thread(_create_voice, state, form, audio)
            except BadAudio as error:
                return json_response(error_body(error.message, 400, error.code, "audio_sample"), 400)
        request.state.facts["voice_created"] = True
        body = {"object": "audio.voice", "id": voice.name, "name": voice.name, "created_at": int(time.time())}
        return json_response(body)

    @router.delete("/v1/audio/voices/{voice_id}", response_class=Response, summary="Delete a stored voice")
    async def delete_voice(voice_id: str) -> Response:
        await state.in_thread(_delete_voice, state, voice_id)
        return json_response({"object": "audio.voice.deleted", "id": voice_id, "deleted": True})

    return router


def _model(state: ServerState, model_id: str, created: int) -> dict[str, Any]:
    capabilities = state.models.capabilities(model_id)
    return {
        "id": model_id,
        "name": model_id,
        "object": "model",
        "created": created,
        "owned_by": "oscine",
        "default": model_id == state.models.default,
        "loaded": state.models.is_loaded(model_id),
        "capabilities": None if capabilities is None else _capabilities(capabilities),
    }


def _capabilities(capabilities: Capabilities) -> dict[str, Any]:
    record = {name: getattr(capabilities, name) for name in Capabilities.__dataclass_fields__}
    edits = [{"name": e.name, "help": e.help, "slots": [asdict(slot) for slot in e.slots]} for e in capabilities.edits]
    return record | {
        "options": {name: _option(option) for name, option in capabilities.options.items()},
        "edits": edits,
    }


def _option(option: Option) -> dict[str, Any]:
    return asdict(option) | {"type": option.type.__name__}


def _list_voices(state: ServerState, name: str | None) -> dict[str, Any]:
    with state.models.use(name or state.models.default) as model:
        voices, own = model.voices, model.own_voices
        cloning = model.capabilities.voice_cloning
    listed = [_voice(voice, own) for voice in voices.values()]
    if DEFAULT_VOICE not in voices:
        first = next(iter(own), None)
        text = f"the model's own choice: {first or 'whatever voice it finds'}"
        listed.insert(0, _entry(DEFAULT_VOICE, text, "", "default"))
    return {
        "object": "list",
        "model": state.models.resolve(name or state.models.default),
        "voices": listed,
        "data": listed,
        "openai_voices": openai_table(list(own.values())),
        "voice_cloning": cloning,
    }


def _voice(voice: Voice, own: Mapping[str, Voice]) -> dict[str, Any]:
    return _entry(voice.name, voice.description, voice.language, "model" if voice.name in own else "stored")


def _entry(name: str, description: str, language: str, kind: str) -> dict[str, Any]:
    return {"id": name, "name": name, "description": description, "language": language, "kind": kind}


def _create_voice(state: ServerState, form: VoiceForm, audio: bytes) -> Voice:
    with state.models.use(form.model or state.models.default) as model:
        check_cloning(model.capabilities, "audio_sample")
        if not (form.ref_text or "").strip():
            raise InvalidRequest(
                "ref_text is missing: this model clones a voice from a recording and its exact transcript",
                param="ref_text",
            )
        recording = state.uploads.decode(audio, "audio_sample")
        return model.create_voice(form.name, recording, form.ref_text or "", description=form.speaker_description or "")


def _delete_voice(state: ServerState, voice_id: str) -> None:
    with state.models.use(state.models.default) as model:
        model.remove_voice(voice_id)
