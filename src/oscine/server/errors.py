"""What an error looks like over HTTP: one body for every status, made from the class of the error."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from oscine.errors import Cancelled, NotReady, OscineError, QueueFull

_log = logging.getLogger(__name__)

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_CODES = {
    400: "invalid_request",
    401: "invalid_api_key",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "input_too_long",
    429: "queue_full",
}
NORMAL, POLICY, INTERNAL_ERROR, TRY_AGAIN_LATER = 1000, 1008, 1011, 1013
"""Codes to close a WebSocket with (RFC 6455, 7.4.1, and its registry)."""
_PARAMS = {"text": "input"}
"""Fields of `Request` that have another name over HTTP."""
_RETRY_AFTER_S = 2
_LONGEST_NAME = 60
"""Characters repeated of a field name that a client made up."""


def error_body(message: str, status: int, code: str, param: str | None = None) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`, all four keys always there."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def body_of(error: Exception) -> dict[str, Any]:
    """The body for any exception; of one that is not ours the message says nothing."""
    if isinstance(error, OscineError):
        param = _PARAMS.get(error.param or "", error.param)
        return error_body(error.message, error.status, error.code, param)
    return error_body("something went wrong on the server; its log says what", 500, "internal_error")


def error_response(error: Exception) -> Response:
    """The whole response for an exception, with `Retry-After` where trying again can help."""
    status = error.status if isinstance(error, OscineError) else 500
    headers = {}
    if isinstance(error, QueueFull):
        headers["Retry-After"] = str(max(1, error.retry_after_s))
    elif isinstance(error, NotReady):
        headers["Retry-After"] = str(_RETRY_AFTER_S)
    return json_response(body_of(error), status, headers)


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON in ASCII: whatever a client sent can be repeated to it, lone surrogates too."""
    return Response(json.dumps(body), status, headers, "application/json")


def describe_invalid(first: Mapping[str, Any]) -> tuple[str, str | None]:
    """Message and field of the first error that pydantic has found in a body, a form or a query."""
    path = [str(part)[:_LONGEST_NAME] for part in first["loc"] if part not in ("body", "query", "path", "header")]
    param = path[0] if path else None
    if first["type"] == "extra_forbidden":
        return f"unknown field {'.'.join(path)!r}; see the OpenAPI document at /openapi.json", param
    if not path:
        return f"the body must be a form: {first['msg']}", None
    return f"{'.'.join(path)}: {first['msg']}", param


def add_error_handlers(app: FastAPI) -> None:
    """Makes `app` answer every failure with `error_body`."""

    async def ours(request: Request, error: Exception) -> Response:
        request.state.error = error
        if isinstance(error, OscineError) and error.status >= 500 and not isinstance(error, NotReady):
            _log.error("%s: %s", type(error).__name__, error.message)
        return error_response(error)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        message, param = describe_invalid(error.errors()[0])
        return json_response(error_body(message, 400, "invalid_request", param), 400)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        status = error.status_code
        code = _CODES.get(status, "http_error")
        return json_response(error_body(str(error.detail), status, code), status, error.headers)

    async def unexpected(request: Request, error: Exception) -> Response:
        return error_response(error)

    app.add_exception_handler(OscineError, ours)
    app.add_exception_handler(Cancelled, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unexpected)
