"""Strict reading of a checkpoint's JSON into frozen dataclasses.

A record's annotations say the types, `bounded` fields the ranges. Every complaint names the file, the key, the value
and what is allowed.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import math
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from oscine.checkpoint.json_text import parse_json, shown
from oscine.errors import ConfigMismatch, MissingFile

logger = logging.getLogger(__name__)

Record = TypeVar("Record")

MOST = 1 << 24
"""The largest size or number of anything, where a field does not say otherwise: what is built stays within memory."""
MOST_LAYERS = 1024
"""Of layers, codebooks, experts: whatever is built one by one."""
MOST_POSITIONS = 1 << 20
"""Of tokens: tables are made of as many."""
MOST_ENTRIES = 64
"""Of a list."""

MISSPELLING_LIKENESS = 0.87
"""Similarity (difflib ratio) from which an unknown key counts as a misspelling of an absent field."""


def bounded(
    default: Any = dataclasses.MISSING,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    choices: tuple[Any, ...] | None = None,
) -> Any:
    """A dataclass field whose value (or each entry of a tuple) must lie in the range; `above` excludes its end.

    An integer is at most `MOST` in any case.
    """
    return dataclasses.field(
        default=default, metadata={"least": least, "most": most, "above": above, "choices": choices}
    )


def read_json(path: Path, *, non_finite: bool = False) -> dict[str, Any]:
    """The JSON object of a file; `non_finite` lets the bare words Infinity and NaN pass.

    Raises MissingFile if absent, ConfigMismatch if it is not one valid object.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MissingFile(f"{path} is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigMismatch(f"{path} cannot be read: {error}") from error
    try:
        value = parse_json(text, non_finite=non_finite)
    except ValueError as error:
        raise ConfigMismatch(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigMismatch(f"{path} must hold one JSON object, got {type(value).__name__}")
    return value


def read_json_if_present(path: Path) -> dict[str, Any] | None:
    """As `read_json`, or None when there is no such file."""
    return read_json(path) if path.exists() else None


def parse_record(cls: type[Record], values: Mapping[str, Any], *, source: str) -> Record:
    """A record of `cls` from the keys of `values` that name its fields; other keys are not looked at.

    `source` names the file in messages. JSON lists become tuples. Raises ConfigMismatch for an absent required key,
    a wrong type or a value out of range.
    """
    hints = typing.get_type_hints(cls)
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if field.name in values:
            arguments[field.name] = _checked(values[field.name], hints[field.name], field, source)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ConfigMismatch(f"{source}: key {field.name!r} is missing")
    return cls(**arguments)


def section(values: Mapping[str, Any], key: str, *, source: str) -> Mapping[str, Any]:
    """The object under `key`. Raises ConfigMismatch if there is none."""
    value = values.get(key)
    if not isinstance(value, Mapping):
        raise ConfigMismatch(f"{source}: {key} must be an object, got {shown(value)}")
    return value


def positive_integer(values: Mapping[str, Any], key: str, *, source: str) -> int:
    """The integer under `key`, at least 1. Raises ConfigMismatch if there is none."""
    value = values.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
        raise ConfigMismatch(f"{source}: {key} must be a positive integer, {MOST} at most, got {shown(value)}")
    return value


def lift_rope(values: Mapping[str, Any], *names: str, source: str) -> dict[str, Any]:
    """`values` with those of `names` that it lacks taken from `rope_parameters`, or `rope_scaling` in older files.

    Writers of either age put rotary settings in one place or the other. Raises ConfigMismatch if that is no object.
    """
    key = "rope_parameters" if "rope_parameters" in values else "rope_scaling"
    rope = section(values, key, source=source) if values.get(key) is not None else {}
    return {**{name: rope[name] for name in names if name in rope}, **values}


def field_names(*records: type[Any]) -> frozenset[str]:
    """Names of all fields of the records: the keys they read."""
    return frozenset(field.name for record in records for field in dataclasses.fields(record))


def check_unknown_keys(
    values: Mapping[str, Any], known: Collection[str], ignored: Collection[str], *, source: str
) -> None:
    """Logs the keys of `values` that are neither known nor ignored on purpose, as one warning.

    Raises ConfigMismatch when such a key looks like a misspelling of a known key that is absent: silence there would
    load a model with a default in place of the value that was meant.
    """
    unknown = sorted(set(values) - set(known) - set(ignored))
    absent = sorted(set(known) - set(values))
    for key in unknown:
        close = difflib.get_close_matches(key, absent, n=1, cutoff=MISSPELLING_LIKENESS)
        if close:
            raise ConfigMismatch(f"{source}: unknown key {key!r}: did you mean {close[0]!r}?")
    if unknown:
        logger.warning("%s: ignoring unknown keys %s", source, ", ".join(unknown))


def require(broken: Iterable[tuple[bool, str]], *, source: str) -> None:
    """Raises ConfigMismatch with the statement of the first (is broken, statement) pair that is broken."""
    for is_broken, statement in broken:
        if is_broken:
            raise ConfigMismatch(f"{source}: {statement}")


def _checked(value: Any, hint: Any, field: dataclasses.Field[Any], source: str) -> Any:
    """The value in the field's type. Raises ConfigMismatch if it does not fit."""
    result, fits = _convert(value, hint)
    if not fits:
        raise ConfigMismatch(f"{source}: {field.name} must be {_describe(hint)}, got {shown(value)}")
    items = result if isinstance(result, tuple) else (result,)
    if len(items) > MOST_ENTRIES:
        raise ConfigMismatch(f"{source}: {field.name} has {len(items)} entries; at most {MOST_ENTRIES} are allowed")
    for item in items:
        for limits in (field.metadata, {"most": MOST} if type(item) is int else {}):
            if item is not None and not _in_range(item, limits):
                raise ConfigMismatch(f"{source}: {field.name} must be {_allowed(limits)}, got {shown(value)}")
    return result


def _convert(value: Any, hint: Any) -> tuple[Any, bool]:
    """(value in the type `hint`, whether it fits)."""
    if isinstance(hint, types.UnionType):
        options = [_convert(value, option) for option in typing.get_args(hint)]
        return next((option for option in options if option[1]), (value, False))
    if typing.get_origin(hint) is tuple:
        items = [_convert(item, typing.get_args(hint)[0]) for item in value] if isinstance(value, list) else []
        return tuple(item for item, _ in items), isinstance(value, list) and all(fits for _, fits in items)
    if hint is float:
        fits = type(value) in (int, float) and math.isfinite(value)
        return (float(value) if fits else value), fits
    return value, type(value) is hint  # bool is not an int here


def _in_range(value: Any, limits: Mapping[str, Any]) -> bool:
    least, most, above, choices = (limits.get(key) for key in ("least", "most", "above", "choices"))
    return (
        (least is None or value >= least)
        and (most is None or value <= most)
        and (above is None or value > above)
        and (choices is None or value in choices)
    )


def _allowed(limits: Mapping[str, Any]) -> str:
    if limits.get("choices") is not None:
        return "one of " + ", ".join(repr(choice) for choice in limits["choices"])
    signs = {"least": ">=", "most": "<=", "above": ">"}
    return " and ".join(f"{sign} {limits[key]}" for key, sign in signs.items() if limits.get(key) is not None)


def _describe(hint: Any) -> str:
    names = {int: "an integer", float: "a finite number", bool: "true or false", str: "a string"}
    if isinstance(hint, types.UnionType):
        return " or ".join(_describe(option) for option in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"a list, each entry {_describe(typing.get_args(hint)[0])}"
    return "null" if hint is type(None) else names.get(hint, str(hint))
