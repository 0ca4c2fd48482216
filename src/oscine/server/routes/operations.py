"""For those who run the server, and for people who look at it: health, readiness, metrics, the page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, Response

import oscine
from oscine.errors import NotReady
from oscine.server.errors import json_response
from oscine.server.state import ServerState

STATIC = Path(__file__).parents[1] / "static"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TYPES = {".js": "text/javascript", ".css": "text/css"}


def operations_routes(state: ServerState) -> APIRouter:
    """`/health`, `/ready`, `/metrics`, `/v1` and the page at `/`."""
    router = APIRouter()

    @router.get("/health", response_class=Response, summary="Whether the process answers")
    async def health() -> Response:
        return json_response({"status": "ok", "version": oscine.__version__})

    @router.get("/ready", response_class=Response, summary="Whether the default model is loaded")
    async def ready() -> Response:
        if reason := state.unready:
            raise NotReady(reason)
        return json_response({"status": "ready", "model": state.models.default})

    @router.get("/metrics", response_class=Response, summary="Counters in Prometheus's text format")
    async def metrics() -> Response:
        stats = state.models.stats()
        text = state.metrics.render(
            queue_depth=stats.waiting, running=stats.running, active=state.active, pacing=state.models.pacing()
        )
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @router.get("/v1", response_class=Response, include_in_schema=False)
    @router.get("/v1/", response_class=Response, include_in_schema=False)
    async def base() -> Response:
        return json_response({"object": "server", "name": "oscine", "version": oscine.__version__})

    @router.get("/", response_class=Response, include_in_schema=False)
    async def page() -> Response:
        return FileResponse(STATIC / "index.html", headers={"Content-Security-Policy": _POLICY})

    for path in sorted(STATIC.iterdir()):
        if path.suffix not in _TYPES:
            continue
        router.add_api_route(
            f"/static/{path.name}", _file(path, _TYPES[path.suffix]), response_class=Response, include_in_schema=False
        )
    return router


def _file(path: Path, media_type: str) -> Callable[[], Awaitable[Response]]:
    async def serve() -> Response:
        return FileResponse(path, media_type=media_type, headers={"Cache-Control": "no-cache"})

    return serve
