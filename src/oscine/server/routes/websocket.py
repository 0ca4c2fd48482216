"""Speech while the text is still being written, over a WebSocket."""

from __future__ import annotations

import json

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketState

from oscine.errors import QueueFull
from oscine.server.errors import TRY_AGAIN_LATER, body_of
from oscine.server.session import SpeechSession
from oscine.server.state import ServerState


def websocket_routes(state: ServerState) -> APIRouter:
    """`/v1/audio/speech/stream`."""
    router = APIRouter()

    @router.websocket("/v1/audio/speech/stream")
    async def stream(socket: WebSocket) -> None:
        await socket.accept()
        try:
            with state.session():
                code = await SpeechSession(state, socket).run()
        except QueueFull as error:
            await socket.send_text(json.dumps({"type": "error", **body_of(error)}))
            code = TRY_AGAIN_LATER
        if WebSocketState.DISCONNECTED not in (socket.client_state, socket.application_state):
            await socket.close(code)

    return router
