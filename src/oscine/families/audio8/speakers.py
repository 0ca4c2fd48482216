"""The voices a checkpoint was trained with, as `preprocessor_config.json` names them; a key of our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from oscine.errors import ConfigMismatch
from oscine.types import Gender


@dataclass(frozen=True, kw_only=True)
class Speaker:
    """One of them: the N of its `<|speaker:N|>` tag, and how it is heard."""

    tag: int
    gender: Gender = ""


def parse_speakers(value: Any, source: str) -> dict[str, Speaker]:
    """Speakers by name, from a mapping of names to tags, or to `{"tag": N, "gender": ...}`. Raises ConfigMismatch."""
    if not isinstance(value, Mapping):
        raise ConfigMismatch(f"{source}: speakers must map names to speakers, got {value!r}")
    return {name: _speaker(name, stated, source) for name, stated in value.items()}


def _speaker(name: str, value: Any, source: str) -> Speaker:
    stated: Any = {"tag": value} if type(value) is int else value
    if not isinstance(stated, Mapping) or not {"tag"} <= set(stated) <= {"tag", "gender"}:
        raise ConfigMismatch(
            f"{source}: speakers: {name!r} must be an integer or have a tag and a gender, got {value!r}"
        )
    tag, gender = stated["tag"], stated.get("gender", "")
    if type(tag) is not int or tag < 0:
        raise ConfigMismatch(f"{source}: speakers: the tag of {name!r} must be an integer >= 0, got {tag!r}")
    if gender not in get_args(Gender):
        raise ConfigMismatch(
            f"{source}: speakers: the gender of {name!r} must be one of {get_args(Gender)}, got {gender!r}"
        )
    return Speaker(tag=tag, gender=gender)
