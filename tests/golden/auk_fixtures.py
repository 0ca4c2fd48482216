"""What the AuK golden tests share: the fixture folder, the parts loaded from it, and the comparison."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from oscine.checkpoint.config import read_json
from oscine.families.auk import AuKTransformer, AuKVAE
from oscine.families.auk.config import AuKConfig, ThinkerConfig
from oscine.families.auk.model.thinker import Thinker
from oscine.families.auk.weights.folder import AuKFolder, open_folder
from oscine.families.auk.weights.rules import Fusion, load_dit, load_thinker


@dataclass(frozen=True)
class Golden:
    root: Path

    @property
    def folder(self) -> AuKFolder:
        found = sorted(self.root.glob("*/config.yaml"))
        if not found:
            pytest.skip(f"no checkpoint folder in {self.root}")
        return open_folder(found[0].parent)

    @property
    def config(self) -> AuKConfig:
        return self.folder.config

    @property
    def spec(self) -> dict[str, Any]:
        return read_json(self.path("cases.json"))

    @property
    def single(self) -> float:
        return float(self.spec["tolerance"]["single"])

    @property
    def loop(self) -> float:
        return float(self.spec["tolerance"]["loop"])

    def path(self, name: str) -> Path:
        path = self.root / name
        if not path.exists():
            pytest.skip(f"no {path.name} in {self.root}")
        return path

    def cases(self, name: str) -> dict[str, Tensor]:
        return load_file(self.path(name))

    def misc(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.path("cases_misc.json").read_text(encoding="utf-8"))
        return loaded

    def dit(self) -> tuple[AuKTransformer, Fusion]:
        with torch.device("meta"):
            dit = AuKTransformer.from_config(self.config.dit)
        return dit, load_dit(dit, self.folder.dit, device="cpu", dtype=torch.float32)

    def vae(self) -> AuKVAE:
        with torch.device("meta"):
            vae = AuKVAE.from_config(self.config.vae)
        vae.load_weights(self.folder.vae)
        return vae

    def thinker(self) -> Thinker:
        config = ThinkerConfig.from_dict(read_json(self.folder.encoder / "config.json"), source="encoder")
        with torch.device("meta"):
            thinker = Thinker(config)
        load_thinker(thinker, self.folder.encoder, device="cpu", dtype=torch.float32)
        return thinker


def golden(golden_root: Path) -> Golden:
    root = golden_root / "auk"
    if not root.is_dir():
        pytest.skip(f"no auk folder in {golden_root}")
    return Golden(root)


def check(name: str, actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """max|a - b| <= tolerance * max|b|, exact for what is not a float."""
    assert actual.shape == expected.shape, f"{name}: {tuple(actual.shape)} for {tuple(expected.shape)}"
    if not expected.is_floating_point():
        assert torch.equal(actual, expected), f"{name}: {int((actual != expected).sum())} values differ"
        return
    error = (actual.double() - expected.double()).abs()
    scale = float(expected.abs().max())
    at = int(error.argmax())
    assert float(error.max()) <= tolerance * scale, (
        f"{name}: max abs {error.max():.3g}, relative {float(error.max()) / scale:.3g} > {tolerance:g}, flat index {at}"
    )


def check_all(actual: dict[str, Tensor], expected: dict[str, Tensor], inputs: set[str], tolerance: float) -> None:
    """Every tensor of a case file is an input, or was computed and agrees; a kind nobody knows is a failure."""
    unknown = sorted(set(expected) - set(actual) - inputs)
    assert not unknown, f"no test for {unknown}"
    for name in sorted(set(actual) & set(expected)):
        check(name, actual[name], expected[name], tolerance)
