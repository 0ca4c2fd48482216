"""What a checkpoint folder holds, read from its configuration and file headers; no tensor is read."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oscine.checkpoint.json_text import parse_json
from oscine.errors import ConfigMismatch, MissingFile, UnknownModel, WeightMismatch
from oscine.registry import families

_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors format
_WEIGHT_SUFFIXES = (".safetensors", ".pth")


@dataclass(frozen=True, kw_only=True)
class WeightFile:
    """One file of weights; counts are None for a pickle, which cannot be looked into without loading it.

    `parameters` counts values by the format's dtype name ("F32", "BF16", ...).
    """

    name: str
    size: int
    tensors: int | None = None
    parameters: Mapping[str, int] | None = None


@dataclass(frozen=True, kw_only=True)
class FolderInfo:
    """A checkpoint folder at a glance. `licence` is what the folder itself states, else "not stated"."""

    path: Path
    model_type: str
    config: Mapping[str, Any]
    weights: tuple[WeightFile, ...]
    other_files: Mapping[str, int]
    ignored_code: tuple[str, ...]
    licence: str

    @property
    def num_parameters(self) -> int:
        """Parameters in all files that can be counted."""
        return sum(sum(file.parameters.values()) for file in self.weights if file.parameters)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weight files on disk."""
        return sum(file.size for file in self.weights)


def describe_folder(path: Path) -> FolderInfo:
    """What `path` holds. Raises UnknownModel if it is no folder, WeightMismatch for a damaged weight file, and as
    `read_config`."""
    if not path.is_dir():
        raise UnknownModel(f"no folder {str(path)!r}", param="model")
    config = read_config(path)
    files = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
    weights = [p for p in files if p.suffix in _WEIGHT_SUFFIXES]
    return FolderInfo(
        path=path,
        model_type=str(config.get("model_type", "unknown")),
        config=config,
        weights=tuple(_weight_file(p, path) for p in weights),
        other_files={_name(p, path): p.stat().st_size for p in files if p not in weights and p.suffix != ".py"},
        ignored_code=tuple(_name(p, path) for p in files if p.suffix == ".py"),
        licence=_licence(path, config),
    )


def model_type_of(path: Path) -> str:
    """The `model_type` of the checkpoint in `path`, which decides its family. Raises as `read_config`, and
    ConfigMismatch if none is stated."""
    model_type = read_config(path).get("model_type")
    if not isinstance(model_type, str):
        raise ConfigMismatch(f"{path}: config.json states no model_type, so no family can be chosen")
    return model_type


def read_config(path: Path) -> dict[str, Any]:
    """The folder's config.json, with the `model_type` that a family recognises in the folder, if one does.

    Raises MissingFile without a configuration, ConfigMismatch for one that cannot be read.
    """
    file, config = path / "config.json", {}
    try:
        if file.is_file():
            config = parse_json(file.read_text(encoding="utf-8"), non_finite=True)
            if not isinstance(config, dict):
                raise ConfigMismatch(f"{file}: expected an object, got {type(config).__name__}")
        for spec in families():
            if spec.recognise and (model_type := spec.recognise(path, config)):
                return {**config, "model_type": model_type}
    except ValueError as error:
        raise ConfigMismatch(f"the configuration in {path} cannot be read: {error}") from error
    if config:
        return config
    raise MissingFile(f"{path} holds no config.json; is it the folder of a checkpoint?")


def read_safetensors_header(path: Path) -> dict[str, Any]:
    """The JSON header of a safetensors file, its tensors checked against the file's size. Raises WeightMismatch."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size - 8, _MAX_HEADER_BYTES):
                raise ValueError(f"its header claims {length} bytes")
            header = parse_json(file.read(length), non_finite=True)
        end = max((entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"), default=0)
        if 8 + length + end != size:
            raise ValueError(f"its tensors end at byte {8 + length + end}, the file at {size}")
    except (ValueError, struct.error, KeyError, TypeError, AttributeError) as error:
        raise WeightMismatch(f"{path} is damaged or no safetensors file: {error}; download it again") from error
    return dict(header)


def _weight_file(path: Path, root: Path) -> WeightFile:
    if path.suffix != ".safetensors":
        return WeightFile(name=_name(path, root), size=path.stat().st_size)
    header = read_safetensors_header(path)
    header.pop("__metadata__", None)
    parameters: dict[str, int] = {}
    for entry in header.values():
        parameters[entry["dtype"]] = parameters.get(entry["dtype"], 0) + math.prod(entry["shape"])
    return WeightFile(name=_name(path, root), size=path.stat().st_size, tensors=len(header), parameters=parameters)


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _licence(path: Path, config: Mapping[str, Any]) -> str:
    """From config.json, the head of README.md, or the first line of a licence file, in that order."""
    stated = config.get("license") or config.get("licence")
    if stated:
        return str(stated)
    readme = path / "README.md"
    if readme.is_file():
        head = readme.read_text(encoding="utf-8", errors="replace").split("---")
        found = re.search(r"^license(?:_name)?:\s*(\S.*)$", head[1], re.M) if len(head) > 2 and not head[0] else None
        if found:
            return found.group(1).strip()
    for file in sorted(path.glob("LICEN[CS]E*")):
        lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line.strip() for line in lines if line.strip()), file.name)
    return "not stated"
