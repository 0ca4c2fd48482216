"""Puts the server together; the routes are split by what they serve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI

import oscine
from oscine.errors import OscineError
from oscine.server.errors import add_error_handlers
from oscine.server.gate import Gate
from oscine.server.models import ModelRegistry
from oscine.server.routes.answers import answer_routes
from oscine.server.routes.catalog import catalog_routes
from oscine.server.routes.operations import operations_routes
from oscine.server.routes.sounds import sound_routes
from oscine.server.routes.speech import speech_routes
from oscine.server.routes.websocket import websocket_routes
from oscine.server.state import ServerSettings, ServerState

_log = logging.getLogger(__name__)

_IDLE_CHECKS_S = 30.0
_WARM_UP_AGAIN_S = 30.0


def create_app(models: ModelRegistry, settings: ServerSettings | None = None) -> FastAPI:
    """An ASGI app that serves `models`; it loads the default one when it starts and closes them all when it stops."""
    state = ServerState(models, settings or ServerSettings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await state.in_thread(app.openapi)  # takes long once; asked for later it would keep others waiting
        tasks = [asyncio.create_task(_warm_up(state)), asyncio.create_task(_unload_idle(state))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await state.in_thread(state.uploads.close)
            await state.in_thread(models.close)

    app = FastAPI(
        title="oscine",
        version=oscine.__version__,
        summary="Speech from generative models",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.server = state
    for routes in (speech_routes, sound_routes, answer_routes, catalog_routes, operations_routes, websocket_routes):
        app.include_router(routes(state))
    add_error_handlers(app)
    app.add_middleware(Gate, state=state)
    return app


async def _warm_up(state: ServerState) -> None:
    """Loads the default model, again and again if need be; until then the server is not ready and says why."""
    while state.models.engine_failure is None:
        try:
            return await state.in_thread(state.warm_up)
        except OscineError as error:
            _log.error("%s is not ready: %s", state.models.default, error.message)
        except Exception as error:
            state.warm_up_fault = f"{state.models.default} has failed to speak: {type(error).__name__}"
            _log.exception("%s is not ready", state.models.default)
        await asyncio.sleep(state.models.retry_s(state.models.default) or _WARM_UP_AGAIN_S)


async def _unload_idle(state: ServerState) -> None:
    if state.models.idle_s is None:
        return
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(min(_IDLE_CHECKS_S, max(state.models.idle_s / 4, 0.05)))
            try:
                await state.in_thread(state.models.unload_idle)
            except Exception:
                _log.exception("idle models could not be unloaded")
