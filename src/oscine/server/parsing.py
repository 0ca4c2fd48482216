"""Reads JSON bodies off the event loop and within limits: see `json_scan`."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_type_hints

import anyio.to_thread
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from oscine.errors import InvalidRequest, OscineError
from oscine.server.errors import describe_invalid
from oscine.server.json_scan import JsonLimits, JsonScan

if TYPE_CHECKING:
    from oscine.server.state import ServerSettings

B = TypeVar("B", bound=BaseModel)
T = TypeVar("T")

_QUICK = 1 << 12
"""Bytes of a body up to which it is read at once, which takes less than a thread does."""
_UTF8 = ("utf-8", "utf-8-sig")


class BodyRoute(APIRoute):
    """A route whose endpoint takes a request and a `body`: a record, read from JSON within its limits in a thread.

    FastAPI would parse and validate whatever comes on the event loop before anything could be refused.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint given its body, or the route's own handler if it takes none."""
        schema = get_type_hints(self.endpoint).get("body")
        handle = super().get_route_handler()

        async def with_body(request: Request) -> Response:
            request = BodyRequest(request.scope, request.receive)
            if schema is None:
                return await handle(request)
            response: Response = await self.endpoint(request=request, body=await read_body(request, schema))
            return response

        return with_body


class BodyRequest(Request):
    """A request that holds its body once."""

    async def body(self) -> bytes:
        """The bytes of the body. When it is refused nothing holds what has come of it."""
        if not hasattr(self, "_body"):
            parts: list[bytes] = []
            try:
                async for part in self.stream():
                    parts.append(part)
            except BaseException:
                parts.clear()
                raise
            self._body = b"".join(parts)
        return self._body


async def read_body(request: Request, schema: type[B]) -> B:
    """The JSON body as a `schema`. Raises InvalidRequest, and InputTooLong."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise InvalidRequest("the body must be a JSON object sent as application/json")
    limits = limits_of(schema, request.app.state.server.settings)
    body = await request.body()
    return await in_thread_if_long(body, lambda: validated(read_object(body, limits), schema))


async def in_thread_if_long(text: bytes | str, work: Callable[[], T]) -> T:
    """The result of work on `text`."""
    return work() if len(text) <= _QUICK else await anyio.to_thread.run_sync(work)


def limits_of(schema: type[BaseModel], settings: ServerSettings) -> JsonLimits:
    """What a body that is to become a `schema` may hold."""
    any_name = schema.model_config.get("extra") == "allow"
    has_items = "items" in schema.model_fields
    return JsonLimits(
        text_chars=settings.max_input_chars,
        texts=settings.max_batch_texts if has_items else 1,
        names=None if any_name else frozenset(schema.model_fields),
        recordings=getattr(schema, "RECORDINGS", frozenset()),
        entries=settings.max_batch_items if has_items else JsonLimits.entries,
    )


def read_object(text: bytes | str, limits: JsonLimits) -> dict[str, Any]:
    """The JSON object that `text` is. Raises InvalidRequest, and InputTooLong.

    Long strings may hold control characters, which are no JSON but do no harm.
    """
    body = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if json.detect_encoding(body) not in _UTF8:
        raise InvalidRequest("the body must be JSON in UTF-8")
    scan = JsonScan(body.removeprefix(b"\xef\xbb\xbf"), limits)
    try:
        scan.run()
        value = json.loads(scan.short, parse_constant=_refuse_constant)
    except OscineError:  # some of ours are ValueErrors
        raise
    except ValueError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    return {name: scan.put_back(item) for name, item in value.items()}


def validated(fields: Mapping[str, Any], schema: type[B]) -> B:
    """The fields as a `schema`. Raises InvalidRequest with the first thing that is wrong."""
    try:
        return schema.model_validate(fields)
    except ValidationError as error:
        message, param = describe_invalid(error.errors(include_url=False, include_input=False)[0])
        raise InvalidRequest(message, param=param) from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
