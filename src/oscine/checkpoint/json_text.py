"""Reads the JSON and shows the values of files that others have written, whatever is in them."""

from __future__ import annotations

import json
from reprlib import Repr
from typing import Any, NoReturn

MAX_DEPTH = 32
"""Levels of nesting that any file of a checkpoint may have; the deepest released one has seven."""

_REPR = Repr()
_REPR.maxlevel = 4
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 120
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = 12


def parse_json(text: str | bytes, *, non_finite: bool = False) -> Any:
    """The value that a JSON text holds; `non_finite` lets the bare words Infinity and NaN pass.

    Raises ValueError for what is not JSON, or nested more than `MAX_DEPTH` levels deep.
    """
    try:
        value = json.loads(text, parse_constant=None if non_finite else _refuse_constant)
    except RecursionError:
        raise ValueError(_too_deep()) from None
    check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Raises ValueError for a value nested more than `MAX_DEPTH` levels deep, or in itself."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [item for item in level if isinstance(item, (dict, list))]
        if not inner:
            return
        parts = [part for item in inner for part in (item.values() if isinstance(item, dict) else item)]
        level = list({id(part): part for part in parts}.values())  # YAML may name one part in many places
    raise ValueError(_too_deep())


def shown(value: Any) -> str:
    """`repr` of a value for a message, shortened where it would be long."""
    return _REPR.repr(value)


def _too_deep() -> str:
    return f"it is nested more than {MAX_DEPTH} levels deep"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
