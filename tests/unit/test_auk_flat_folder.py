"""The flat folder: its `defaults` are the recipe of requests that ask for nothing else; Flash keeps its own."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from oscine.errors import ConfigMismatch, UnsupportedFeature
from oscine.families import load_family
from oscine.families.auk import AuKPipeline, AuKRequest, build_time_grid
from oscine.families.auk.bench import from_folder
from oscine.families.auk.config import BASE_RECIPE
from oscine.families.auk.sampler import FLASH_GRID
from oscine.families.auk.steps import AuKInputs
from oscine.families.auk.weights.folder import open_folder
from oscine.types import Request
from tests.unit.auk_factory import TINY_ARCH, TINY_VAE, write_flat

CPU = torch.device("cpu")
OWN = {"nfe": 3, "cfg": 1.5, "sway": None}
TEXT = "Hello there."


def edit(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


def inputs_of(folder: Path, **fields: Any) -> AuKInputs:
    family = load_family(folder, name="tiny", device=CPU, dtype=torch.float32)
    inputs = family.prepare(Request(text=TEXT, **fields), "r").jobs[0].inputs
    assert isinstance(inputs, AuKInputs)
    return inputs


def test_defaults_are_the_recipe_of_plain_requests(tmp_path: Path) -> None:
    """They were read over: a folder made for other steps ran 32 guided ones."""
    folder = write_flat(tmp_path, defaults=OWN)
    plain, asked = inputs_of(folder), inputs_of(folder, num_steps=5, cfg_scale=0.5)
    assert plain.grid == tuple(build_time_grid(3).tolist())
    assert plain.guidance == 1.5
    assert asked.grid == tuple(build_time_grid(5).tolist())
    assert asked.guidance == 0.5


def test_options_show_them(tmp_path: Path) -> None:
    family = load_family(write_flat(tmp_path, defaults=OWN), name="tiny", device=CPU, dtype=torch.float32)
    assert family.capabilities.options["num_steps"].default == 3
    assert family.capabilities.options["cfg_scale"].default == 1.5


@pytest.mark.parametrize("defaults", [{}, None, {"nfe": 7}, {"cfg": 0}])
def test_absent_ones_are_the_publishers(tmp_path: Path, defaults: dict[str, Any] | None) -> None:
    folder = edit(write_flat(tmp_path), defaults=defaults)
    recipe = open_folder(folder).config.recipe
    given = defaults or {}
    assert recipe.nfe == given.get("nfe", BASE_RECIPE.nfe) == given.get("nfe", 32)
    assert recipe.cfg == given.get("cfg", BASE_RECIPE.cfg) == given.get("cfg", 2.0)
    assert recipe.sway == BASE_RECIPE.sway == -1.0


@pytest.mark.parametrize(
    ("defaults", "message"),
    [
        ({"steps": 4}, "defaults has steps; nfe, cfg and sway"),
        ({"nfe": 0}, "nfe must be >= 1"),
        ({"nfe": 2.5}, "nfe must be"),
        ({"cfg": -1.0}, "cfg must be"),
        ({"cfg": "high"}, "cfg must be"),
        ({"sway": "none"}, "sway must be"),
        ({"sway": -9.0}, "no time grid"),
        ([], "defaults must be an object"),
    ],
)
def test_bad_defaults_are_named(tmp_path: Path, defaults: Any, message: str) -> None:
    with pytest.raises(ConfigMismatch, match=message):
        open_folder(edit(write_flat(tmp_path), defaults=defaults))


def test_the_pipeline_takes_them(tmp_path: Path) -> None:
    pipeline = AuKPipeline.from_folder(write_flat(tmp_path, defaults=OWN))
    generator = torch.Generator().manual_seed(0)
    condition = torch.randn(6, TINY_ARCH["text_hidden_dim"], generator=generator)
    base: dict[str, Any] = {"condition": condition, "gen_seconds": 0.1, "seed": 1, "output_type": "latent"}
    plain, spelt, other = (
        pipeline.forward(AuKRequest(**base, **options))[0].latents
        for options in ({}, {"num_steps": 3, "guidance": 1.5, "sway": None}, {"sway": -1.0})
    )
    assert plain is not None
    assert spelt is not None
    assert other is not None
    assert torch.equal(plain, spelt)
    assert not torch.equal(plain, other)


def test_flash_keeps_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Folders of Flash carry the base variant's `defaults`, as the tool that makes them writes them."""
    folder = edit(write_flat(tmp_path, variant="flash", defaults=OWN), flash_t_grid=list(FLASH_GRID))
    inputs = inputs_of(folder)
    assert (inputs.grid, inputs.guidance) == (FLASH_GRID, 0.0)
    for asked in ({"num_steps": 3}, {"cfg_scale": 1.5}):
        with pytest.raises(UnsupportedFeature, match="own 4 steps"):
            inputs_of(folder, **asked)
    pipeline = AuKPipeline.from_folder(folder)
    condition = torch.ones(4, TINY_ARCH["text_hidden_dim"])
    with caplog.at_level(logging.WARNING, logger="oscine"):
        pipeline.forward(AuKRequest(condition=condition, gen_seconds=0.1, seed=1))
        assert "own 4 steps" not in caplog.text
        pipeline.forward(AuKRequest(condition=condition, gen_seconds=0.1, seed=1, num_steps=32))
    assert "own 4 steps" in caplog.text


def test_the_benchmark_runs_them(tmp_path: Path) -> None:
    size: dict[str, Any] = {"batch": 1, "frames": 4, "repeats": 1, "parts": ("dit",)}
    folder = write_flat(tmp_path, defaults={**OWN, "cfg": 0.0})
    report = from_folder(folder, device=CPU, dtype=torch.float32, **size).run()
    assert (report["steps"], report["guided"]) == (3, False)


def test_the_vae_may_be_described_as_in_the_release(tmp_path: Path) -> None:
    init = {key: value for key, value in TINY_VAE.items() if key != "latent_dim"}
    vae = {"latent_dim": TINY_VAE["latent_dim"], "downsample_rate": 480, "target_sample_rate": 24000}
    folder = edit(write_flat(tmp_path), vae={**vae, "model_init_kwargs": init}, model_type="auk")
    assert open_folder(folder).config.vae.hop_length == 480
    assert inputs_of(folder, duration_s=0.2).frames == 10
    with pytest.raises(ConfigMismatch, match="downsample_rate 240"):
        open_folder(edit(folder, vae={**vae, "downsample_rate": 240, "model_init_kwargs": init}))
    with pytest.raises(ConfigMismatch, match="latent_dim"):
        open_folder(edit(folder, vae={**vae, "model_init_kwargs": {**init, "latent_dim": 9}}))
