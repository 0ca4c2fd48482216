"""Reading weights tensor by tensor and giving them to a module, strictly.

Rules are data (`WeightRules`); one function applies them. The module is built on the meta device, so it owns no
memory until each of its parameters is assigned, exactly once.
"""

from __future__ import annotations

import logging
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from oscine.errors import MissingFile, WeightMismatch

logger = logging.getLogger(__name__)

Tensors = Iterable[tuple[str, Tensor]]
DtypePolicy = Callable[[str], torch.dtype]
"""Parameter name → the dtype its floating values are held in."""

SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Keys that share a stem and end in `suffixes` become one tensor, `combine(*tensors)`, under stem + `target`."""

    suffixes: tuple[str, ...]
    target: str
    combine: Callable[..., Tensor]


@dataclass(frozen=True, kw_only=True)
class WeightRules:
    """How a file's keys become parameter names, applied in the order drop, rename, fold.

    `rename` holds (regular expression, replacement) pairs; each is applied once to every key.
    """

    drop_suffixes: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    folds: tuple[Fold, ...] = ()


def read_tensors(path: Path, *, skip: Callable[[str], bool] | None = None) -> Iterator[tuple[str, Tensor]]:
    """(key, tensor) pairs of a weight file on the CPU, one at a time; the suffix tells the format.

    Anything but `.safetensors` is read as a torch pickle, with `weights_only=True`, so no code in it runs. Raises
    MissingFile, or WeightMismatch for a file that cannot be read or holds anything but tensors.
    """
    if not path.is_file():
        raise MissingFile(f"{path} is missing")
    if path.suffix == ".safetensors":
        yield from _read_safetensors(path, skip or _nothing)
    else:
        kept = {key: value for key, value in read_pickle(path).items() if not (skip or _nothing)(key)}
        yield from _tensors_of(kept, path)


def read_pickle(path: Path) -> Mapping[str, Any]:
    """The mapping stored in a torch pickle, read with `weights_only=True`. Raises MissingFile or WeightMismatch."""
    if not path.is_file():
        raise MissingFile(f"{path} is missing")
    logger.info("reading %s as a pickle with weights_only=True", path)
    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError) as error:
        raise WeightMismatch(f"{path} is not a readable torch file of weights only: {error}") from error
    if not isinstance(value, Mapping):
        raise WeightMismatch(f"{path} must hold a mapping of tensors, got {type(value).__name__}")
    return value


def apply_rules(tensors: Tensors, rules: WeightRules) -> Iterator[tuple[str, Tensor]]:
    """The pairs after the rules; parts of a fold that stays incomplete come out last, under their own keys."""
    waiting: dict[tuple[int, str], dict[str, Tensor]] = {}
    for key, tensor in tensors:
        if key.endswith(rules.drop_suffixes):
            continue
        for pattern, replacement in rules.rename:
            key = re.sub(pattern, replacement, key)
        match = next(
            ((i, suffix) for i, fold in enumerate(rules.folds) for suffix in fold.suffixes if key.endswith(suffix)),
            None,
        )
        if match is None:
            yield key, tensor
            continue
        index, suffix = match
        fold, stem = rules.folds[index], key.removesuffix(suffix)
        parts = waiting.setdefault((index, stem), {})
        parts[suffix] = tensor
        if len(parts) == len(fold.suffixes):
            del waiting[index, stem]
            yield stem + fold.target, fold.combine(*(parts[name] for name in fold.suffixes))
    for (_, stem), parts in waiting.items():
        for suffix, tensor in parts.items():
            yield stem + suffix, tensor


def load_strict(
    module: nn.Module,
    tensors: Tensors,
    *,
    dtype: torch.dtype | DtypePolicy,
    device: torch.device | str,
    source: str,
    rules: WeightRules | None = None,
) -> None:
    """Assigns every parameter and persistent buffer of `module` (built on the meta device) from `tensors`.

    Floating tensors, however they are stored, are cast to `dtype` (one for all, or chosen by parameter name); the
    rest keep theirs. Raises WeightMismatch, with counts and the first ten of each kind, when a key is missing, left
    over, doubled or misshaped, or when the module keeps a tensor that no file fills.
    """
    wanted = {name: tuple(value.shape) for name, value in module.state_dict(keep_vars=True).items()}
    policy = dtype if callable(dtype) else _constant(dtype)
    filled: set[str] = set()
    unexpected: list[str] = []
    misshaped: list[str] = []
    for key, tensor in apply_rules(tensors, rules or WeightRules()):
        if key not in wanted or key in filled:
            unexpected.append(key)
        elif tuple(tensor.shape) != wanted[key]:
            filled.add(key)
            misshaped.append(f"{key} {list(tensor.shape)} in the file, {list(wanted[key])} in the model")
        else:
            filled.add(key)
            _assign(module, key, tensor.to(device, policy(key) if tensor.is_floating_point() else tensor.dtype))
    missing = sorted(set(wanted) - filled)
    _complain(source, {"missing": missing, "unexpected": sorted(unexpected), "misshaped": sorted(misshaped)})
    unfilled = [name for name, value in _all_tensors(module) if value.is_meta]
    _complain(source, {"not stored in any file": unfilled})


def _nothing(_: str) -> bool:
    return False


def _read_safetensors(path: Path, skip: Callable[[str], bool]) -> Iterator[tuple[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 (a safe_open handle is not iterable)
                if not skip(key):
                    yield key, file.get_tensor(key)
    except (SafetensorError, OSError) as error:
        raise WeightMismatch(f"{path} is not a readable safetensors file: {error}") from error


def _tensors_of(values: Mapping[str, Any], path: Path) -> Iterator[tuple[str, Tensor]]:
    for key, value in values.items():
        if not isinstance(value, Tensor):
            raise WeightMismatch(f"{path}: {key!r} must be a tensor, got {type(value).__name__}")
        yield key, value


def _constant(dtype: torch.dtype) -> DtypePolicy:
    return lambda _: dtype


def _assign(module: nn.Module, name: str, value: Tensor) -> None:
    path, _, leaf = name.rpartition(".")
    owner = module.get_submodule(path)
    if leaf in owner._parameters:
        owner._parameters[leaf] = nn.Parameter(value.contiguous(), requires_grad=False)
    else:
        owner._buffers[leaf] = value.contiguous()


def _all_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _complain(source: str, problems: Mapping[str, list[str]]) -> None:
    """Raises WeightMismatch listing what is not empty."""
    if not any(problems.values()):
        return
    lines = [f"{len(names)} {kind}: {'; '.join(names[:SHOWN])}" for kind, names in problems.items() if names]
    raise WeightMismatch(f"{source} does not fit the model: " + " | ".join(lines))
