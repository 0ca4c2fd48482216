"""The documented callables of AuK do what other programs expect of the names: construction, contexts, grids."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from oscine.errors import InvalidRequest
from oscine.families.auk import (
    AuKPipeline,
    AuKRequest,
    AuKStepContext,
    AuKTransformer,
    AuKVAE,
    build_time_grid,
    get_auk_post_process_func,
)
from tests.unit.auk_factory import TINY_ARCH, random_state, write_released


@pytest.fixture
def dit() -> AuKTransformer:
    built = AuKTransformer(**TINY_ARCH, latent_dim=8)
    built.load_state_dict(random_state(built, 5))
    return built


def context(dit: AuKTransformer, seed: int, *, tokens: int = 5, ref: int = 7, guided: bool = True) -> AuKStepContext:
    generator = torch.Generator().manual_seed(seed)
    return dit.prepare(
        torch.randn(1, tokens, dit.text_hidden_dim, generator=generator),
        target_len=9,
        ref=torch.randn(1, ref, 8, generator=generator),
        ref_mask=torch.ones(1, ref, dtype=torch.bool),
        cfg_infer=guided,
        timesteps=torch.tensor([0.0, 0.5]),
    )


def test_a_grid_is_given_where_it_is_wanted() -> None:
    grid = build_time_grid(nfe=4, sway_sampling_coef=-1.0, t_grid=None, device="meta")
    assert (grid.device.type, grid.shape, grid.dtype) == ("meta", (5,), torch.float32)
    assert torch.equal(
        build_time_grid(nfe=4, sway_sampling_coef=-1.0, device=torch.device("cpu")), build_time_grid(4, -1)
    )
    with pytest.raises(ValueError, match="increasing"):
        build_time_grid(t_grid=[0.0, 0.0], device="meta")


def test_the_vae_is_the_released_one_unless_told_otherwise() -> None:
    with torch.device("meta"):
        released, small = AuKVAE(), AuKVAE(latent_dim=8, upsample_initial_channel=64, sample_rate=16000)
        partly = AuKVAE.from_config({"latent_dim": 32, "flow_hidden_channels": 256, "sample_rate": 48000})
    assert (released.sample_rate, released.hop_size, released.latent_dim) == (24000, 480, 64)
    assert (small.sample_rate, small.hop_size, small.latent_dim) == (16000, 480, 8)
    assert (partly.sample_rate, partly.hop_size, partly.latent_dim) == (48000, 480, 32)
    assert sum(value.numel() for value in partly.parameters()) < sum(value.numel() for value in released.parameters())
    assert released.decode_context_frames() == (53, 9)
    with pytest.raises(ValueError, match="use_vae"):
        AuKVAE(use_vae=False)
    with pytest.raises(TypeError, match="no_such_field"):
        AuKVAE(no_such_field=1)


def test_a_context_can_be_cloned_and_overwritten(dit: AuKTransformer) -> None:
    """The clone has its own tensors; overwritten with another request's, it makes that request's velocity."""
    first, second = context(dit, 1), context(dit, 2)
    names = [value is None for value in first.tensors()]
    assert len(names) == 15
    assert [value is None for value in second.tensors()] == names
    own = first.clone()
    for mine, theirs in zip(own.tensors(), first.tensors(), strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            assert torch.equal(mine, theirs)
            assert mine.data_ptr() != theirs.data_ptr()
    x = torch.randn(1, 9, 8, generator=torch.Generator().manual_seed(3))
    assert not torch.equal(dit.step(x, 0.0, own, 1), dit.step(x, 0.0, second, 1))
    own.copy_(second)
    assert torch.equal(dit.step(x, 0.0, own, 1), dit.step(x, 0.0, second, 1))


def test_a_context_of_another_form_overwrites_nothing(dit: AuKTransformer) -> None:
    own = context(dit, 1)
    before = own.clone()
    others = [context(dit, 2, tokens=6), context(dit, 2, ref=8), context(dit, 2, guided=False)]
    for other in [*others, replace(context(dit, 2), audio_mask=None)]:
        with pytest.raises(InvalidRequest, match="contexts differ"):
            own.copy_(other)
    for mine, theirs in zip(own.tensors(), before.tensors(), strict=True):
        assert mine is theirs is None or torch.equal(mine, theirs)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_released(tmp_path_factory.mktemp("auk"))


def stage(folder: Path, **changes: object) -> SimpleNamespace:
    fields = {"model": str(folder), "dtype": torch.float32, "enforce_eager": True, "model_config": {}}
    return SimpleNamespace(**{**fields, **changes})


def test_the_pipeline_is_built_as_a_stage_builds_it(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    built, usual = AuKPipeline(od_config=stage(folder), prefix=""), AuKPipeline.from_folder(folder)
    condition = torch.randn(6, TINY_ARCH["text_hidden_dim"], generator=torch.Generator().manual_seed(0))
    request = AuKRequest(condition=condition, gen_seconds=0.1, num_steps=2, seed=3)
    ((one,), (other,)) = built(request), usual(request)
    assert one.audio is not None
    assert other.audio is not None
    assert torch.equal(one.audio, other.audio)
    assert built.audio_sample_rate == built.vae.sample_rate == 24000
    with caplog.at_level(logging.WARNING):
        names = built.load_weights([])
        assert not caplog.records
        assert built.load_weights([("other.weight", torch.zeros(1))]) == names
    assert "other.weight" in caplog.text
    assert {"dit.proj_out.weight", "vae.conv_pre.weight"} <= names


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "must be the folder"),
        ({"model": "/no/such/folder"}, "/no/such/folder"),
        ({"model_config": {"auk_ref_cache_size": -1}}, "cache size"),
        ({"model_config": {"max_dit_graphs": 0}}, "number of graphs"),
        ({"enforce_eager": False, "diffusion_compile_granularity": "half"}, "granularity"),
    ],
)
def test_what_a_stage_cannot_ask_for_is_refused(folder: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AuKPipeline(od_config=stage(folder, **changes))


def test_a_pipeline_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="needs the parts"):
        AuKPipeline()


def test_audio_becomes_an_array_unless_a_tensor_is_asked_for() -> None:
    finish, audio = get_auk_post_process_func(None), torch.tensor([0.5, -1.0], dtype=torch.bfloat16)
    array = finish(audio)
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.float32
    assert array.tolist() == [0.5, -1.0]
    assert finish(audio, output_type="pt") is audio
    assert finish(audio, "latent") is audio
