"""The benchmark runs on a miniature folder and reports every number it promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from oscine import bench
from oscine.errors import InvalidRequest
from oscine.families.auk import AuKTransformer, config
from oscine.families.auk import bench as auk
from oscine.families.auk.bench import DIT, _operations, from_folder
from oscine.families.auk.config import DiTConfig, ThinkerConfig, VAEConfig
from tests.unit.auk_factory import (
    RELEASED_ARCH,
    RELEASED_THINKER,
    RELEASED_VAE,
    TINY_ARCH,
    TINY_VAE,
    thinker_values,
    write_flat,
    write_released,
)

SIZE = {"batch": 2, "frames": 13, "repeats": 1}
TIMES = (
    "conditioner_s", "prepare_s", "dit_step_s", "dit_step_without_prepare_s", "vae_decode_s", "vae_first_chunk_s",
)  # fmt: skip
NUMBERS = (
    "rtf", "matrix_rate", "matrix_rate_share", "dit_operations", "plain_over_prepared", "conditioner_per_step_s",
    "dit_per_step_s", "vae_per_step_s", "seconds_per_step",
)  # fmt: skip


def check(report: dict[str, Any]) -> None:
    for name in TIMES:
        assert 0 < report[name]["min"] <= report[name]["p99"], name
    for name in NUMBERS:
        assert report[name] > 0, name
    parts = sum(report[f"{part}_per_step_s"] for part in ("conditioner", "dit", "vae"))
    assert report["seconds_per_step"] == pytest.approx(parts)
    assert report["rtf"] == pytest.approx(parts * report["steps"] / report["audio_s"])


@pytest.mark.parametrize("flash", [False, True])
def test_bench_of_the_miniature(flash: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_flat(tmp_path, variant="flash") if flash else write_released(tmp_path)
    size = [argument for name, value in SIZE.items() for argument in (f"--{name}", str(value))]
    assert bench.main([str(folder), *size, "--device", "cpu"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["steps"], report["guided"]) == ((4, False) if flash else (32, True))
    assert report["audio_s"] == pytest.approx(13 * 480 / 24000)
    assert report["peak_memory"] > 0
    check(report)


def workload(folder: Path, **options: Any) -> dict[str, Any]:
    return from_folder(folder, device=torch.device("cpu"), dtype=torch.float32, **{**SIZE, **options}).run()


def test_steps_guidance_and_duration_can_be_chosen(tmp_path: Path) -> None:
    folder = write_released(tmp_path)
    plain = workload(folder, steps=4, guided=False, duration_s=0.56)
    guided = workload(folder, steps=1, duration_s=0.56)
    assert [(r["steps"], r["guided"], r["frames"]) for r in (plain, guided)] == [(4, False, 29), (1, True, 29)]
    assert guided["dit_operations"] == 2 * plain["dit_operations"]
    check(plain)


def test_the_command_takes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--steps", "4", "--no-guidance", "--duration", "0.3", "--repeats", "1", "--device", "cpu"]
    assert bench.main([str(write_released(tmp_path)), *chosen]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["steps"], report["guided"], report["frames"]) == (4, False, 15)
    for arguments in (["--steps", "4"], ["--no-guidance"], ["--duration", "1"]):
        with pytest.raises(InvalidRequest, match="is for auk, not for audex"):
            bench.main(["audex-2b", "--random-weights", "--device", "cpu", *arguments])


@pytest.mark.parametrize("parts", [("conditioner",), ("dit",), ("vae", "dit")])
def test_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str], parts: tuple[str, ...]) -> None:
    """Only what is named is built and measured; what needs all parts is left out."""
    arguments = ["--parts", ",".join(parts), "--steps", "2", "--frames", "5", "--repeats", "1", "--device", "cpu"]
    assert bench.main([str(write_released(tmp_path)), *arguments]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["parts"] == list(parts)
    found = {name.removesuffix("_per_step_s") for name in report if name.endswith("_per_step_s")}
    assert found == set(parts)
    assert not {"seconds_per_step", "rtf"} & set(report)
    assert ("matrix_rate" in report) == ("dit" in parts)


@pytest.mark.parametrize("name", ["auk", "auk-flash"])
def test_random_weights_at_narrow_dimensions(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command of the documentation, with narrow models in the place of the release's."""
    monkeypatch.setattr(auk, "DIT", DiTConfig.from_dict(TINY_ARCH, TINY_VAE["latent_dim"], source="tiny"))
    monkeypatch.setattr(auk, "RELEASED_VAE", VAEConfig.from_dict(TINY_VAE))
    monkeypatch.setattr(auk, "THINKER", ThinkerConfig.from_dict(thinker_values(), source="tiny"))
    arguments = ["--random-weights", "--steps", "4", "--no-guidance", "--duration", "5", "--repeats", "1"]
    assert bench.main([name, *arguments, "--device", "cpu", "--dtype", "bfloat16"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["steps"], report["guided"], report["frames"], report["dtype"]) == (4, False, 250, "bfloat16")
    assert report["peak_memory"] > 0
    check(report)


@pytest.mark.parametrize("options", [{"steps": 8}, {"guided": True}])
def test_flash_keeps_its_recipe(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="own 4 steps"):
        workload(write_flat(tmp_path, variant="flash"), **options)


def test_the_dimensions_are_the_releases() -> None:
    assert DiTConfig.from_dict(RELEASED_ARCH, 64, source="released") == DIT
    assert VAEConfig.from_dict(RELEASED_VAE) == config.RELEASED_VAE
    assert ThinkerConfig.from_dict(RELEASED_THINKER, source="released") == auk.THINKER
    with torch.device("meta"):
        dit = AuKTransformer.from_config(DIT)
    # The specification counts about 0.71 G multiplications for a token of a branch (AUK spec, 8).
    assert _operations(dit, 250, 60) / 2 / 310 == pytest.approx(0.71e9, rel=0.1)
