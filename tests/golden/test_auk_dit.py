"""The DiT against the reference's numbers: parts, blocks, whole forwards, prepare and step."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from oscine.families.auk import AuKStepContext, AuKTransformer
from oscine.families.auk.model.blocks import RMS_EPS, compressed_positions, layer_norm, rope_table, rotate
from oscine.families.auk.model.layouts import Padded
from oscine.layers.norm import rms_norm
from tests.golden.auk_fixtures import Golden, check, check_all, golden

INPUTS = {
    "time.t", "rope.mask", "rope.q", "rmsnorm.x", "layernorm.x", "audio_embed.x", "audio_embed.mask", "conv_pos.x",
    "project_text.text", "double.c", "double.x", "double.t", "double.mask", "double.c_mask", "single.x", "single.mask",
    *(f"full.{name}" for name in ("x", "ref", "text", "time", "mask", "ref_mask", "c_mask", "text_zero_tail")),
    # What the original computes under padding; the rule adopted here differs on purpose.
    "full.official_positions.masked_b2", "full.official_positions.one_masked_ref_frame",
}  # fmt: skip


@pytest.fixture(scope="module")
def fixture(golden_root: Path) -> Golden:
    return golden(golden_root)


@pytest.fixture(scope="module")
def dit(fixture: Golden) -> AuKTransformer:
    return fixture.dit()[0]


def block_context(dit: AuKTransformer, text: Tensor | None, audio: Tensor | None, single: Tensor) -> AuKStepContext:
    """A context of which only masks, biases and rotary tables matter; masks [row, time]."""

    def bias(mask: Tensor) -> Tensor:
        return torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))[:, None, None]

    def rope(mask: Tensor) -> tuple[Tensor, Tensor]:
        return rope_table(dit.rotary_embed.inv_freq, compressed_positions(mask))

    text, audio = single if text is None else text, single if audio is None else audio
    return AuKStepContext(
        c=torch.zeros(1),
        c_mask=text,
        prompt=None,
        target_mask=None,
        audio_mask=audio,
        single_mask=single,
        joint_bias=bias(torch.cat([audio, text], dim=1)),
        single_bias=bias(single),
        rope_text=rope(text),
        rope_audio=rope(audio),
        rope_single=rope(single),
        branches=1,
        target_len=1,
    )


def parts(dit: AuKTransformer, c: dict[str, Tensor]) -> dict[str, Tensor]:
    frequencies = dit.rotary_embed.inv_freq
    length = c["rope.q"].shape[2]
    cos, sin = rope_table(frequencies, torch.arange(length)[None])
    masked_cos, masked_sin = rope_table(frequencies, compressed_positions(c["rope.mask"]))
    ones = torch.ones(c["rmsnorm.x"].shape[-1])
    conv = dit.audio_embed.conv_pos_embed
    return {
        "time.emb": dit.time_embed(c["time.t"]),
        "modulation.table": dit.modulation_table(c["time.t"]),
        f"rope.cos_{length}": cos[0, 0],
        f"rope.sin_{length}": sin[0, 0],
        "rope.q_rot": rotate(c["rope.q"], (cos, sin)),
        "rope.masked_cos": masked_cos[0, 0],
        "rope.masked_sin": masked_sin[0, 0],
        "rmsnorm.out": rms_norm(c["rmsnorm.x"], norm_weight(dit, ones), RMS_EPS),
        "layernorm.out": layer_norm(c["layernorm.x"]),
        "audio_embed.out": dit.audio_embed(c["audio_embed.x"]),
        "audio_embed.out_masked": dit.audio_embed(c["audio_embed.x"], c["audio_embed.mask"]),
        "conv_pos.out": conv(c["conv_pos.x"]),
        "conv_pos.out_masked": conv(c["conv_pos.x"], c["audio_embed.mask"]),
        "project_text.out": dit.project_text(c["project_text.text"]),
    }


def norm_weight(dit: AuKTransformer, ones: Tensor) -> Tensor:
    weight = dit.transformer_blocks[0].attn.q_norm.weight
    return weight if weight.shape == ones.shape else ones


def blocks(dit: AuKTransformer, c: dict[str, Tensor]) -> dict[str, Tensor]:
    double, single = dit.transformer_blocks[0], dit.single_transformer_blocks[0]
    time = F.silu(c["double.t"])
    out: dict[str, Tensor] = {}
    for suffix, masked in (("", False), ("_masked", True)):
        text, audio, both = (c[name] if masked else torch.ones_like(c[name]) for name in MASKS)
        layout = Padded(block_context(dit, text, audio, torch.cat([text, audio], dim=1)))
        rows = double.attn_norm_c.linear(time), double.attn_norm_x.linear(time)
        out[f"double.c_out{suffix}"], out[f"double.x_out{suffix}"] = double(c["double.c"], c["double.x"], *rows, layout)
        layout = Padded(block_context(dit, None, None, both))
        out[f"single.out{suffix}"] = single(c["single.x"], single.attn_norm.linear(time), layout)
    scale, shift = dit.norm_out.linear(time)[:, None].chunk(2, dim=-1)
    out["head.out"] = dit.proj_out(layer_norm(c["single.x"]) * (1 + scale) + shift)
    return out


MASKS = ("double.c_mask", "double.mask", "single.mask")


def forwards(dit: AuKTransformer, c: dict[str, Tensor]) -> dict[str, Tensor]:
    x, ref, text, time = (c[f"full.{name}"] for name in ("x", "ref", "text", "time"))
    mask, ref_mask, c_mask = (c[f"full.{name}"] for name in ("mask", "ref_mask", "c_mask"))
    masks = {"mask": mask, "ref_mask": ref_mask, "c_mask": c_mask}
    ones = torch.ones_like(ref_mask[:1])

    def one(**options: Any) -> Tensor:
        return dit(x[:1], text[:1], time[0], **options)

    frames, tokens, refs = (int(m[1].sum()) for m in (mask, c_mask, ref_mask))
    out = {
        "noref": one(),
        "noref_b2": dit(x, text, time),
        "ref": one(ref=ref[:1]),
        "ref_ones_mask": one(ref=ref[:1], ref_mask=ones),
        "zero_len_ref": one(ref=ref[:1, :0]),
        "masked_b2": dit(x, text, time, ref=ref, **masks),
        "cfg_masked_b2": dit(x, text, time, ref=ref, cfg_infer=True, **masks),
        "row1_trimmed": dit(x[1:, :frames], text[1:, :tokens], time[1], ref=ref[1:, :refs]),
        "cfg_b1": one(ref=ref[:1], cfg_infer=True, drop_text=True),  # the drop flags are ignored
        "cfg_noref": one(cfg_infer=True),
        "drop_text": one(ref=ref[:1], drop_text=True),
        "drop_audio": one(ref=ref[:1], drop_audio_cond=True),
        "drop_both": one(ref=ref[:1], drop_text=True, drop_audio_cond=True),
        "inferred_text_mask": dit(x[:1], c["full.text_zero_tail"], time[0], mask=torch.ones_like(mask[:1])),
        "ref_trimmed_one_frame": one(ref=ref[:1, :-1]),
    }
    enabled, dit.attn_mask_enabled = dit.attn_mask_enabled, False
    try:
        out["masked_b2.attn_mask_disabled"] = dit(x, text, time, ref=ref, **masks)
    finally:
        dit.attn_mask_enabled = enabled
    return {f"full.out.{name}": value for name, value in out.items()}


def steps(dit: AuKTransformer, c: dict[str, Tensor]) -> dict[str, Tensor]:
    x, ref, text = (c[f"full.{name}"][:1] for name in ("x", "ref", "text"))
    times = c["time.t"][:-1]
    ones = torch.ones_like(c["full.ref_mask"][:1])
    context = dit.prepare(text, target_len=x.shape[1], ref=ref, ref_mask=ones, cfg_infer=True, timesteps=times)
    assert context.branches == 2
    rows = [dit.step(x, 0.0, context, i if i % 2 else torch.tensor(i)) for i in range(len(times))]
    out = {"step.out": torch.stack(rows)}
    for field in fields(context):
        value = getattr(context, field.name)
        if isinstance(value, tuple):
            out |= {f"step.ctx.{field.name}_{part}": value[index] for index, part in enumerate(("cos", "sin"))}
        elif isinstance(value, Tensor):
            out[f"step.ctx.{field.name}"] = value
    return out


def test_every_case_agrees(fixture: Golden, dit: AuKTransformer) -> None:
    cases = fixture.cases("cases_dit.safetensors")
    computed = {**parts(dit, cases), **blocks(dit, cases), **forwards(dit, cases), **steps(dit, cases)}
    check_all(computed, cases, INPUTS, fixture.single)


def test_a_padded_row_equals_its_run_without_padding(fixture: Golden, dit: AuKTransformer) -> None:
    cases = fixture.cases("cases_dit.safetensors")
    trimmed = cases["full.out.row1_trimmed"]
    check("row 1", forwards(dit, cases)["full.out.masked_b2"][1:, : trimmed.shape[1]], trimmed, fixture.single)


def test_packed_requests_equal_padded_ones(fixture: Golden, dit: AuKTransformer) -> None:
    """The engine's path without padding gives what the reference's masked batch gives."""
    c = fixture.cases("cases_dit.safetensors")
    counts = [[int(c[f"full.{name}"][row].sum()) for name in ("mask", "ref_mask", "c_mask")] for row in (0, 1)]
    contexts, xs = [], []
    for row, (frames, refs, tokens) in enumerate(counts):
        text, ref = c["full.text"][row : row + 1, :tokens], c["full.ref"][row : row + 1, :refs]
        contexts.append(dit.prepare(text, target_len=frames, ref=ref, cfg_infer=True))
        xs.append(c["full.x"][row, :frames])
    outs = dit.step_packed(xs, contexts, dit.modulation_table(c["full.time"]))
    expected = c["full.out.cfg_masked_b2"].unflatten(0, (2, 2))
    for row, out in enumerate(outs):
        check(f"row {row}", out, expected[:, row, : out.shape[1]], fixture.single)
