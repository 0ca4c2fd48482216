"""Finding and reading the Audio8 fixture files, and comparing with them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model.dual_ar import DualAR
from oscine.families.audio8.weights import build_lm

ATOL, RTOL = 5e-5, 1e-4
"""The tolerance the fixtures state for hidden states and logits in float32 on the CPU."""


@dataclass(frozen=True, kw_only=True)
class GoldenFile:
    """One fixture file: its tensors (integers as int64) and its parsed metadata."""

    path: Path
    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.path.stem

    def __getitem__(self, key: str) -> Tensor:
        return self.tensors[key]

    def __contains__(self, key: str) -> bool:
        return key in self.tensors


def read(path: Path) -> GoldenFile:
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        meta = {key: json.loads(value) for key, value in (file.metadata() or {}).items()}
    tensors = {k: v.long() if v.dtype in (torch.int32, torch.uint8) else v for k, v in tensors.items()}
    return GoldenFile(path=path, tensors=tensors, meta=meta)


def find(root: Path, pattern: str) -> list[GoldenFile]:
    """Every file of a kind; skips the test, by name, when there is none."""
    paths = sorted((root / "audio8").glob(pattern))
    if not paths:
        pytest.skip(f"no audio8/{pattern} in {root}")
    return [read(path) for path in paths]


def lm_of(file: GoldenFile) -> DualAR:
    """The language model a `lm_*` or `sub_*` file was made with: its own weights, its twin's, or the folder's."""
    kind, suffix = file.name.split("_", 1)
    twin = read(file.path.with_name(f"lm_{suffix}.safetensors")) if kind == "sub" else file
    own = [(k.removeprefix("weights."), v) for k, v in twin.tensors.items() if k.startswith("weights.")]
    if not own:
        folder = file.path.parent / f"ckpt_{suffix}"
        if not (folder / "model.safetensors").is_file():
            pytest.skip(f"{file.name} needs the weights in {folder}")
        own = list(read_weights(folder / "model.safetensors"))
    return build_lm(LMConfig.from_dict(file.meta["config"], source=file.name), own, dtype=torch.float32, device="cpu")


def read_weights(path: Path) -> Iterator[tuple[str, Tensor]]:
    with safe_open(path, "pt") as file:
        for key in file.keys():  # noqa: SIM118
            yield key, file.get_tensor(key)


def assert_close(actual: Tensor, expected: Tensor, what: str, *, atol: float = ATOL, rtol: float = RTOL) -> None:
    """Fails with the case, the largest absolute and relative error, and where."""
    assert actual.shape == expected.shape, f"{what}: shape {list(actual.shape)}, expected {list(expected.shape)}"
    error = (actual.double() - expected.double()).abs()
    bad = ~(error <= atol + rtol * expected.double().abs())
    if not bad.any():
        return
    where = [int(i) for i in torch.unravel_index(error.nan_to_num(float("inf")).argmax(), error.shape)]
    relative = (error / expected.double().abs().clamp_min(1e-12)).max()
    pytest.fail(
        f"{what}: {int(bad.sum())} of {bad.numel()} values off; largest absolute error {float(error.max()):.3g}"
        f" at {where}, largest relative {float(relative):.3g}"
    )


def assert_equal(actual: Tensor, expected: Tensor, what: str) -> None:
    """Fails with the case and the first place that differs."""
    assert actual.shape == expected.shape, f"{what}: shape {list(actual.shape)}, expected {list(expected.shape)}"
    if not torch.equal(actual, expected):
        pytest.fail(f"{what}: differs first at {(actual != expected).nonzero()[0].tolist()}")
