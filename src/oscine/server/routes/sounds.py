"""Audio that is not speech from a text: sounds from a caption, and edits of a recording."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import Response

from oscine.errors import InvalidRequest
from oscine.options import check_task
from oscine.server import forms
from oscine.server.parsing import BodyRoute, read_body, validated
from oscine.server.responses import respond
from oscine.server.schemas import EditBody, OutputSettings, SoundBody
from oscine.server.state import ServerState
from oscine.server.stream import AudioRun
from oscine.types import Capabilities, Edit
from oscine.types import Request as Wanted

if TYPE_CHECKING:
    from oscine.api import Model


def sound_routes(state: ServerState) -> APIRouter:
    """`/v1/audio/generations` and `/v1/audio/edits`."""
    router = APIRouter(route_class=BodyRoute)

    @router.post("/v1/audio/generations", response_class=Response, summary="Make the sound a caption describes")
    async def generate(request: Request, body: SoundBody) -> Response:
        state.check_text(body.input)
        request.state.facts |= {"chars": len(body.input), "format": body.response_format}
        wanted = Wanted(task="sound", text=body.input, **body.options())
        return await respond(state, request, body.model, body, _maker(lambda capabilities: wanted, body, state))

    @router.post(
        "/v1/audio/edits",
        response_class=Response,
        summary="Change a recording by a named task or by instructions; JSON or a multipart form",
        openapi_extra={"requestBody": {"content": {"application/json": {"schema": EditBody.model_json_schema()}}}},
    )
    async def edit(request: Request) -> Response:
        body, upload = await _edit_body(request)
        for name, text in {"ref_text": body.ref_text or "", **body.slots()}.items():
            state.check_text(text, name)
        request.state.facts |= {"task": body.task, "format": body.response_format}

        def wanted(capabilities: Capabilities) -> Wanted:
            check_task("edit", capabilities)
            return _wanted_edit(body, upload, state)

        return await respond(state, request, body.model, body, _maker(wanted, body, state))

    return router


def _maker(
    wanted: Callable[[Capabilities], Wanted], output: OutputSettings, state: ServerState
) -> Callable[[Model], AudioRun]:
    """What starts the request with a model; `wanted` is called in a thread, since it may read audio."""

    def make(model: Model) -> AudioRun:
        live = None if output.whole else state.live(None)
        return AudioRun(model, partial(model.run, wanted(model.capabilities), live=live), output, whole=output.whole)

    return make


def _wanted_edit(body: EditBody, upload: bytes | None, state: ServerState) -> Wanted:
    slots = body.slots()
    if slots and body.task is None:
        raise InvalidRequest(f"unknown field {next(iter(slots))!r}: no task is given", param=next(iter(slots)))
    data = upload
    if data is None and body.audio:
        data = state.recordings.read(body.audio, "audio")
    audio = None if data is None else state.uploads.decode(data, "audio", max_seconds=state.settings.max_audio_s)
    return Wanted(
        task="edit",
        audio=audio,
        edit=None if body.task is None else Edit(name=body.task, slots=slots),
        ref_text=body.ref_text or None,
        **body.options(),
    )


async def _edit_body(request: Request) -> tuple[EditBody, bytes | None]:
    """The fields, and the uploaded recording if the body is a form."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        return await read_body(request, EditBody), None
    fields, files = await forms.form(request, files=("audio",))
    return validated(forms.typed(fields, EditBody), EditBody), files.get("audio")
