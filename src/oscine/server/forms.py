"""Reads bodies whose fields are not all known beforehand: JSON objects and multipart forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile

from oscine.errors import InvalidRequest
from oscine.server.parsing import parse_aside

B = TypeVar("B", bound=BaseModel)


async def json_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object. Raises InvalidRequest."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/json":
        raise InvalidRequest("the body must be a JSON object sent as application/json, or a multipart form")
    try:
        body = await parse_aside(await request.body())
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object")
    return body


async def form(request: Request, files: Sequence[str]) -> tuple[dict[str, str], dict[str, bytes]]:
    """Text fields and the bytes of `files` of a multipart form. Raises InvalidRequest for a field given twice."""
    fields: dict[str, str] = {}
    contents: dict[str, bytes] = {}
    async with request.form(max_files=len(files)) as data:
        for name, value in data.multi_items():
            if name in fields or name in contents:
                raise InvalidRequest(f"{name} is given twice", param=name)
            if isinstance(value, UploadFile):
                if name not in files:
                    raise InvalidRequest(f"{name} is no file; files go into {', '.join(files)}", param=name)
                contents[name] = await value.read()
            else:
                fields[name] = value
    return fields, contents


def typed(fields: Mapping[str, str], schema: type[BaseModel]) -> dict[str, Any]:
    """Form fields as the types of `schema`: what reads as a number or a boolean there becomes one."""
    values: dict[str, Any] = {}
    for name, text in fields.items():
        field = schema.model_fields.get(name)
        if text == "" and field is not None:
            continue
        values[name] = text if field is None else _converted(text, str(field.annotation))
    return values


def _converted(text: str, annotation: str) -> Any:
    try:
        if "bool" in annotation:
            return {"true": True, "false": False}.get(text.lower(), text)
        if "int" in annotation:
            return int(text)
        if "float" in annotation:
            return float(text)
    except ValueError:
        return text  # the schema says what is wrong with it
    return text


def validated(fields: Mapping[str, Any], schema: type[B]) -> B:
    """The fields as a `schema`; raises what FastAPI raises for a wrong body."""
    try:
        return schema.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error
