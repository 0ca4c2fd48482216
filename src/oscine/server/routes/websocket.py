"""Speech while the text is still being written, over a WebSocket."""

from __future__ import annotations

import json

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketState

from oscine.errors import QueueFull
from oscine.server.errors import body_of
from oscine.server.session import SpeechSession
from oscine.server.state import ServerState

_TRY_AGAIN_LATER = 1013


def websocket_routes(state: ServerState) -> APIRouter:
    """`/v1/audio/speech/stream`."""
    router = APIRouter()

    @router.websocket("/v1/audio/speech/stream")
    async def stream(socket: WebSocket) -> None:
        await socket.accept()
        try:
            with state.admit():
                await SpeechSession(state, socket).run()
        except QueueFull as error:
            await socket.send_text(json.dumps({"type": "error", **body_of(error)}))
            await socket.close(_TRY_AGAIN_LATER)
            return
        if socket.client_state is WebSocketState.CONNECTED:
            await socket.close()

    return router
