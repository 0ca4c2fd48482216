"""Sampling and whole runs against the reference's numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from oscine.compat.auk import POSTERIOR_SEED_OFFSET
from oscine.families.auk import AuKPipeline, AuKRequest, build_time_grid, sample_latents
from oscine.families.auk.duration import nominal_seconds
from oscine.families.auk.sampler import FLASH_GRID, Velocity, euler
from tests.golden.auk_fixtures import Golden, check, golden


@pytest.fixture(scope="module")
def fixture(golden_root: Path) -> Golden:
    return golden(golden_root)


def test_time_grids_are_exact(fixture: Golden) -> None:
    cases = fixture.cases("cases_sampler.safetensors")
    assert torch.equal(torch.tensor(FLASH_GRID), torch.tensor(fixture.spec["flash_t_grid"]))
    for name in (name for name in cases if name.startswith("grid.")):
        kind = name.removeprefix("grid.")
        if kind == "flash":
            grid = build_time_grid(t_grid=FLASH_GRID)
            assert torch.equal(build_time_grid(4, -1.0), grid)
        else:
            steps, _, sway = kind.removeprefix("nfe").partition("_")
            coefficient = None if sway in ("", "none", "uniform") else float(sway.removeprefix("sway"))
            grid = build_time_grid(int(steps), coefficient)
        assert torch.equal(grid, cases[name]), name


def trajectory(noise: Tensor | None, states: list[Tensor]) -> Any:
    """A sampler that starts from `noise` and notes the state after each step."""

    def run(velocity: Velocity, drawn: Tensor, grid: Tensor) -> Tensor:
        x = drawn if noise is None else noise
        for index in range(len(grid) - 1):
            x = x + (grid[index + 1] - grid[index]) * velocity(x, index)
            states.append(x[0])
        return x

    return run


def test_every_sampler_case_agrees(fixture: Golden) -> None:
    cases = fixture.cases("cases_sampler.safetensors")
    dit, _ = fixture.dit()
    for name, case in fixture.spec["sampler"].items():
        grid = cases[case["grid"]] if isinstance(case["grid"], str) else case["grid"]
        states: list[Tensor] = []
        noise = None if "seed" in case else cases["noise"]
        final = sample_latents(
            dit,
            text=cases["text"],
            c_mask=torch.ones(cases["text"].shape[:2], dtype=torch.bool),
            ref=cases["ref"] if case["ref"] else None,
            ref_mask=torch.ones(cases["ref"].shape[:2], dtype=torch.bool) if case["ref"] else None,
            gen_frames=case.get("frames", cases["noise"].shape[1]),
            cfg_strength=case["cfg"],
            t_grid=grid,
            seed=case.get("seed"),
            sampler=trajectory(noise, states) if noise is not None else euler,
        )
        check(f"{name}.final", final, cases[f"{name}.final"], fixture.loop)
        if f"{name}.traj" in cases:
            check(f"{name}.traj", torch.stack(states), cases[f"{name}.traj"], fixture.loop)
    left = {n.split(".")[0] for n in cases} - set(fixture.spec["sampler"]) - {"grid", "noise", "text", "ref"}
    assert not left, f"no test for {left}"


def test_seeded_noise_is_the_references(fixture: Golden) -> None:
    cases = fixture.cases("cases_sampler.safetensors")
    for name, case in fixture.spec["sampler"].items():
        if "seed" in case:
            noise = torch.randn(cases[f"{name}.noise"].shape[1:], generator=torch.Generator().manual_seed(case["seed"]))
            assert torch.equal(noise, cases[f"{name}.noise"][0])


def test_every_whole_run_agrees(fixture: Golden) -> None:
    cases, conditions = fixture.cases("cases_pipeline.safetensors"), fixture.cases("cases_text.safetensors")
    (dit, fusion), vae = fixture.dit(), fixture.vae()
    for name, case in fixture.spec["pipeline"].items():
        flash = case["t_grid"] == "flash"
        config = replace(fixture.config, variant="flash" if flash else "base")
        assert case.get("vae_seed_offset", POSTERIOR_SEED_OFFSET) == POSTERIOR_SEED_OFFSET
        pipeline = AuKPipeline(config, dit, vae, fusion)
        rate, hop = config.sample_rate, config.vae.hop_length
        request = AuKRequest(
            condition=conditions[case["condition"]],
            audio=cases[f"{name}.{case['ref']}"] if case["ref"] else None,
            sample_rate=rate,
            gen_seconds=nominal_seconds(case["frames"], sample_rate=rate, hop_length=hop),
            num_steps=case["nfe"],
            guidance=case["cfg"],
            sway=case["sway"],
            t_grid=None if flash else case["t_grid"],
            seed=case["seed"],
            vae_sample=case["vae_sample"],
        )
        if case["ref"]:
            reference = pipeline.reference_latents(request)
            assert reference is not None
            check(f"{name}.ref_latents", reference, cases[f"{name}.ref_latents"], fixture.single)
        [latents] = pipeline.forward(replace(request, output_type="latent"))
        [audio] = pipeline.forward([request])
        assert latents.latents is not None
        assert audio.audio is not None
        check(f"{name}.latents", latents.latents, cases[f"{name}.latents"], fixture.loop)
        check(f"{name}.wav", audio.audio[None], cases[f"{name}.wav"], fixture.loop)
    left = {name.split(".")[0] for name in cases} - set(fixture.spec["pipeline"])
    assert not left, f"no test for {left}"
