"""Reads multipart forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request
from pydantic import BaseModel
from starlette.datastructures import UploadFile

from oscine.errors import InvalidRequest

_FIELDS = 64
"""Text fields of a form; no task has half as many."""
_BYTES_OF_A_CHARACTER = 4


async def form(request: Request, files: Sequence[str]) -> tuple[dict[str, str], dict[str, bytes]]:
    """Text fields and the bytes of `files` of a multipart form. Raises InvalidRequest for a field given twice."""
    fields: dict[str, str] = {}
    contents: dict[str, bytes] = {}
    longest = _BYTES_OF_A_CHARACTER * request.app.state.server.settings.max_input_chars
    async with request.form(max_files=len(files), max_fields=_FIELDS, max_part_size=longest) as data:
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
