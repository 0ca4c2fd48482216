"""What the Audex golden tests share: finding fixtures, building modules from them, comparing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from oscine.checkpoint.weights import WeightRules, load_strict

FAMILY = "audex"


def fixtures(golden_root: Path, pattern: str) -> list[Path]:
    """Files of the family that match; skips by name when there are none."""
    found = sorted((golden_root / FAMILY).glob(pattern))
    if not found:
        pytest.skip(f"no {FAMILY}/{pattern} below {golden_root}")
    return found


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors, metadata with its JSON parsed) of a fixture; metadata that is no JSON stays text."""
    with safe_open(path, "pt") as file:
        raw = file.metadata() or {}
    return load_file(path), {key: _parsed(value) for key, value in raw.items()}


def fill(module: nn.Module, tensors: Mapping[str, Tensor], rules: WeightRules | None = None) -> None:
    """Gives a module built on the meta device the fixture's weights `w.*`, strictly."""
    own = [(key.removeprefix("w."), value) for key, value in tensors.items() if key.startswith("w.")]
    load_strict(module, own, dtype=torch.float32, device="cpu", source="the fixture", rules=rules)


def record(modules: dict[str, nn.Module]) -> dict[str, Any]:
    """Outputs of modules by name, filled while they run."""
    outputs: dict[str, Any] = {}
    for name, module in modules.items():
        module.register_forward_hook(lambda _m, _a, out, name=name: outputs.__setitem__(name, out))
    return outputs


def check(name: str, actual: Tensor, expected: Tensor, tol: float) -> None:
    """Equal shapes; values within `tol * max(1, max|expected|)`; equal where they are not floating."""
    assert actual.shape == expected.shape, f"{name}: {tuple(actual.shape)} for {tuple(expected.shape)}"
    if not expected.is_floating_point():
        wrong = (actual != expected).nonzero().tolist()
        assert not wrong, f"{name}: {len(wrong)} of {expected.numel()} differ, first at {wrong[:5]}"
        return
    if not expected.numel():
        return
    error = (actual.double() - expected.double()).abs()
    bound = tol * max(1.0, float(expected.abs().max()))
    assert float(error.max()) <= bound, (
        f"{name}: max abs error {float(error.max()):.3g} > {bound:.3g} at flat index {int(error.argmax())}; "
        f"max rel {float((error / expected.double().abs().clamp_min(1e-12)).max()):.3g}"
    )


def _parsed(value: str) -> Any:
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value
