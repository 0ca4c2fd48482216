"""Sub-modules of the language model against the reference: `sub_dense_*` and `sub_hybrid_*`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from oscine.families.audio8.backends.eager import EagerBackend
from oscine.families.audio8.model.cache import cache_shape, mixer_state
from oscine.families.audio8.model.dense import additive_mask, attend_directly
from oscine.families.audio8.model.dual_ar import DualAR
from oscine.families.audio8.model.hybrid import MixerState
from oscine.runtime.cache import SequenceCache
from tests.golden.audio8_files import GoldenFile, assert_close, find, lm_of


def causal(length: int) -> Tensor:
    order = torch.arange(length)
    return additive_mask((order[None, :] <= order[:, None])[None], torch.float32)


def prompts_of(file: GoldenFile) -> list[str]:
    """Names p of the prompts `in.<p>` that have steps beside them."""
    return sorted(key[3:-6] for key in file.tensors if key.startswith("in.") and key.endswith("_steps"))


@torch.inference_mode()
def test_dense_parts(golden_root: Path, subtests: pytest.Subtests) -> None:
    for file in find(golden_root, "sub_dense_*.safetensors"):
        model, x, x_fast = lm_of(file), file["in.x"], file["in.x_fast"]
        config, block = model.config, model.layers[0]
        table = model.slow_rope(torch.arange(x.shape[1]))
        attend = attend_directly(config.n_local_heads, causal(x.shape[1]))
        fast_attend = attend_directly(config.fast_n_local_heads, causal(x_fast.shape[1]))
        fast_table = model.fast_rope(torch.arange(x_fast.shape[1]))
        results = {
            "attention": block.attention(x, table, attend),
            "feed_forward": block.feed_forward(x),
            "block0": block(x, table, attend),
            "final_norm": model.norm(x),
            "fast_block0": model.fast_layers[0](x_fast, fast_table, fast_attend),
            "fast_stack_logits": model.fast_stack(x_fast),
            "fast_project_in": model.project_for_fast(file["in.slow_hidden"]),
            "fast_teacher_forced_logits": model.fast_teacher_forced(file["in.slow_hidden"], file["in.codes"]),
        }
        compare_all(file, results, subtests)


@torch.inference_mode()
def test_fast_frame_repeats_the_teacher_forced_pass(golden_root: Path) -> None:
    """The incremental pass over a frame, fed the file's codes, sees the logits of the whole pass, however it is cut."""
    for file in find(golden_root, "sub_dense_*.safetensors"):
        model, hidden, codes = lm_of(file), file["in.slow_hidden"], file["in.codes"]
        for parts in (None, [hidden.shape[0] - 1, 1]):
            seen: list[Tensor] = []

            def choose(index: int, logits: Tensor, seen: list[Tensor] = seen, codes: Tensor = codes) -> Tensor:
                seen.append(logits)
                return codes[:, index]

            assert torch.equal(EagerBackend(model).fast_frame(hidden, codes[:, 0], choose, parts=parts), codes)
            assert_close(torch.stack(seen, 1), file["out.fast_teacher_forced_logits"], f"{file.name} {parts}")


@torch.inference_mode()
def test_hybrid_parts(golden_root: Path, subtests: pytest.Subtests) -> None:
    for file in find(golden_root, "sub_hybrid_*.safetensors"):
        model = lm_of(file)
        results: dict[str, Tensor] = {}
        for prompt in prompts_of(file):
            results |= {f"{prompt}_{part}": value for part, value in hybrid_layer_parts(model, file, prompt).items()}
        length = file["out.rope_cos"].shape[1]
        cos, sin = model.slow_rope(torch.arange(length))[None].unbind(-1)
        results |= {"rope_cos": torch.cat([cos, cos], -1), "rope_sin": torch.cat([sin, sin], -1)}
        compare_all(file, results, subtests)


def hybrid_layer_parts(model: DualAR, file: GoldenFile, prompt: str) -> dict[str, Tensor]:
    """All that the file states of layer 0 for one prompt."""
    layer, x, steps = model.slow.layers[0], file[f"in.{prompt}"], file[f"in.{prompt}_steps"]
    table = model.slow_rope(torch.arange(x.shape[1]))
    attend = attend_directly(model.config.n_local_heads, causal(x.shape[1]))
    state = fresh_state(model)
    parts = {
        "attention": layer.self_attn(x, table, attend),
        "mlp": layer.feed_forward(x),
        "layer": layer(x, table, attend, fresh_state(model)),
        "mamba": layer.mamba(x, state),
    }
    parts |= {"conv_state": with_width(state.conv.mT, file, prompt), "ssm_state": state.ssm.clone()}
    moved = [layer.mamba(steps[:, i : i + 1], state) for i in range(steps.shape[1])]
    return parts | {"mamba_steps": torch.cat(moved, 1), "ssm_state_after": state.ssm.clone()}


def with_width(conv: Tensor, file: GoldenFile, prompt: str) -> Tensor:
    """Our window in the file's width: the file keeps one more, older column, which no later step can see."""
    extra = file[f"out.{prompt}_conv_state"].shape[-1] - conv.shape[-1]
    assert extra == 1
    return torch.cat([file[f"out.{prompt}_conv_state"][..., :extra], conv], -1)


def fresh_state(model: DualAR) -> MixerState:
    cache = SequenceCache(cache_shape(model.config, torch.float32), "cpu")
    cache.ensure(1, 0)
    return mixer_state(cache, 0, slice(0, 1))


@torch.inference_mode()
def test_mixer_prefix_then_suffix_equals_one_pass(golden_root: Path) -> None:
    """The state carried between two calls is the whole of what the first one leaves."""
    for file in find(golden_root, "sub_hybrid_*.safetensors"):
        model = lm_of(file)
        for prompt in prompts_of(file):
            x = file[f"in.{prompt}"]
            for at in range(1, x.shape[1]):
                state = fresh_state(model)
                mixer = model.slow.layers[0].mamba
                both = torch.cat([mixer(x[:, :at], state), mixer(x[:, at:], state)], 1)
                assert_close(both, file[f"out.{prompt}_mamba"], f"{file.name} {prompt} cut at {at}")


def compare_all(file: GoldenFile, results: dict[str, Tensor], subtests: pytest.Subtests) -> None:
    expected = {key.removeprefix("out.") for key in file.tensors if key.startswith("out.")}
    unknown = expected - set(results)
    assert not unknown, f"{file.name} holds outputs this test does not know: {sorted(unknown)}"
    for key in sorted(expected):
        with subtests.test(f"{file.name}:{key}"):
            assert_close(results[key], file[f"out.{key}"], f"{file.name} {key}")
