"""The benchmark runs on a miniature folder and reports every number it promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from oscine import bench
from oscine.bench.auk import DIT, VAE, _operations
from oscine.families.auk import AuKTransformer
from oscine.families.auk.config import DiTConfig, VAEConfig
from tests.unit.auk_factory import RELEASED_ARCH, RELEASED_VAE, write_flat, write_released


@pytest.mark.parametrize("flash", [False, True])
def test_bench_of_the_miniature(flash: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_flat(tmp_path, variant="flash") if flash else write_released(tmp_path)
    size = ["--batch", "2", "--frames", "13", "--repeats", "1", "--device", "cpu"]
    assert bench.main([str(folder), *size]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["steps"] == (4 if flash else 32)
    assert report["audio_s"] == pytest.approx(13 * 480 / 24000)
    for name in ("conditioner_s", "prepare_s", "dit_step_s", "dit_guided_step_s", "dit_forward_without_prepare_s",
                 "vae_decode_s", "vae_first_chunk_s"):  # fmt: skip
        assert 0 < report[name]["min"] <= report[name]["p99"], name
    for name in ("rtf", "matrix_rate", "matrix_rate_share", "dit_operations"):
        assert report[name] > 0, name


def test_the_dimensions_are_the_releases() -> None:
    assert DiTConfig.from_dict(RELEASED_ARCH, 64, source="released") == DIT
    assert VAEConfig.from_dict(RELEASED_VAE) == VAE
    with torch.device("meta"):
        dit = AuKTransformer.from_config(DIT)
    # The specification counts about 0.71 G multiplications for a token of a branch (AUK spec, 8).
    assert _operations(dit, 250, 60) / 2 / 310 == pytest.approx(0.71e9, rel=0.1)
