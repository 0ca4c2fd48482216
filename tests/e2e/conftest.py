"""A tiny checkpoint in the released layout, loaded through the public API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import oscine
from oscine.types import AudioInput

FIXTURES = Path(__file__).parents[1] / "golden" / "data" / "audio8"


@pytest.fixture(scope="session", params=["dense", "hybrid"])
def checkpoint(request: pytest.FixtureRequest) -> Path:
    return FIXTURES / f"ckpt_{request.param}_a"


@pytest.fixture(scope="session")
def voices_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("voices")


@pytest.fixture(scope="session")
def model(checkpoint: Path, voices_dir: Path) -> Iterator[oscine.Model]:
    with oscine.load(checkpoint, device="cpu", voices_dir=voices_dir) as model:
        yield model


@pytest.fixture(scope="session")
def reference() -> AudioInput:
    rng = np.random.default_rng(3)
    time = np.arange(24000) / 24000
    tone = 0.3 * np.sin(2 * np.pi * 220 * time) * (1 + 0.3 * np.sin(2 * np.pi * 3 * time))
    return AudioInput(samples=(tone + 0.01 * rng.standard_normal(24000)).astype(np.float32), sample_rate=24000)
