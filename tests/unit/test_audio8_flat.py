"""The short forms that decoding runs give the bits of the plain ones."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oscine.families.audio8.backends.flat import FlatBlock, flat_attention
from oscine.families.audio8.model.dense import Attention, Block, attend_directly
from oscine.layers.norm import StepNorm, rms_norm
from oscine.layers.rope import apply_rope_complex, rope_table, rotate_interleaved, spread_interleaved
from oscine.runtime.sampling import pick, rank, truncation


def random_block(qk_norm: bool, bias: bool) -> Block:
    attention = Attention(
        dim=64, num_heads=4, num_kv_heads=2, head_dim=16, qkv_bias=bias, qk_norm=qk_norm, o_bias=bias, eps=1e-6
    )
    block = Block(attention, dim=64, hidden=96, eps=1e-6)
    generator = torch.Generator().manual_seed(3)
    for parameter in block.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.2
    return block


@pytest.mark.parametrize("time", [1, 2, 5])
@pytest.mark.parametrize(("qk_norm", "bias"), [(True, False), (False, True)])
@torch.inference_mode()
def test_a_flat_block_equals_the_block(time: int, qk_norm: bool, bias: bool) -> None:
    block = random_block(qk_norm, bias)
    x = torch.randn(3, time, 64, generator=torch.Generator().manual_seed(time))
    table = spread_interleaved(rope_table(torch.arange(time), 16, 1e4))
    expected = block(x, table, attend_directly(2, None))

    def attend(layer: int, q: Tensor, kv: Tensor) -> Tensor:
        assert layer == 7
        keys, values = torch.unflatten(kv, 0, (3, time)).transpose(1, 2).chunk(2, dim=1)
        return flat_attention(q, keys, values, None)

    rope = torch.view_as_complex(rope_table(torch.arange(time), 16, 1e4)).unsqueeze(1).repeat(3, 1, 1)
    result = FlatBlock.of(block)(x.flatten(0, 1), rope, attend, 7)
    assert torch.allclose(result.view_as(x), expected, atol=1e-6)
    assert (result.view_as(x) - x).abs().mean() > 0.05


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 5), dim=st.sampled_from([1, 8, 24, 64, 100, 256, 896]), seed=st.integers(0, 99))
def test_the_built_in_norm_has_the_bits_of_the_formula(rows: int, dim: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, weight = torch.randn(rows, 2, dim, generator=generator) * 3, torch.randn(dim, generator=generator)
    expected = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight
    assert torch.equal(rms_norm(x, weight, 1e-6), expected)
    assert torch.equal(rms_norm(x, weight.expand(2, -1), 1e-6), expected)


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 40), dim=st.sampled_from([1, 8, 24, 64, 100, 256, 896]), seed=st.integers(0, 99))
def test_the_norm_of_a_step_is_the_norm_to_the_last_bits_and_a_row_has_its_own(rows: int, dim: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    wide = torch.randn(rows, 3, dim, generator=generator) * 3
    x, gains = wide[:, :2], torch.randn(2, dim, generator=generator)
    norm = StepNorm.of(gains, 1e-6)
    result = norm(x)
    torch.testing.assert_close(result, rms_norm(x, gains, 1e-6), rtol=1e-6, atol=1e-7)
    for row in {0, rows // 2, rows - 1}:
        assert torch.equal(norm(x[row : row + 1].clone()), result[row : row + 1])
    halves = x.bfloat16()
    assert torch.equal(norm(halves), rms_norm(halves, gains, 1e-6))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 20), heads=st.integers(1, 5), half=st.sampled_from([1, 3, 8, 32, 64]), seed=st.integers(0, 99)
)
def test_pairs_turn_as_by_the_formula_and_a_row_has_its_own_bits(rows: int, heads: int, half: int, seed: int) -> None:
    x = torch.randn(rows, heads + 2, 2 * half, generator=torch.Generator().manual_seed(seed))[:, :heads]
    table = rope_table(torch.arange(seed, seed + rows), 2 * half, 1e4)
    rope = torch.view_as_complex(table).unsqueeze(1)
    result = apply_rope_complex(x, rope)
    torch.testing.assert_close(result, rotate_interleaved(x[None], table)[0], rtol=1e-6, atol=1e-6)
    for row in {0, rows // 2, rows - 1}:
        assert torch.equal(apply_rope_complex(x[row : row + 1].clone(), rope[row : row + 1]), result[row : row + 1])


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 4), head_dim=st.sampled_from([2, 6, 16, 64]), seed=st.integers(0, 99))
def test_rotation_has_the_bits_of_the_formula(rows: int, head_dim: int, seed: int) -> None:
    x = torch.randn(rows, 3, 2, head_dim, generator=torch.Generator().manual_seed(seed))
    table = rope_table(torch.arange(seed, seed + 3), head_dim, 1e4)
    a, b = x[..., 0::2], x[..., 1::2]
    cos, sin = table[:, None].unbind(-1)
    result = rotate_interleaved(x, table)
    assert torch.equal(result[..., 0::2], a * cos - b * sin)
    assert torch.equal(result[..., 1::2], b * cos + a * sin)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 4), ids=st.integers(65, 700), top_k=st.integers(1, 64))
def test_the_best_ids_are_those_of_the_whole_order(seed: int, rows: int, ids: int, top_k: int) -> None:
    """With ties, signed zeros and -inf; and a draw among them is the draw among all."""
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(rows, ids, generator=generator) * 3).round()
    logits[:, 3::7] = -0.0
    logits[:, 5::11] = float("-inf")
    whole, best = rank(logits), rank(logits, 64)
    assert torch.equal(best.order, whole.order[:, :64])
    assert torch.equal(best.scores, whole.scores[:, :64])
    assert torch.equal(best.cumulative, whole.cumulative[:, :64])
    uniform = torch.rand(rows, ids, generator=generator)
    cut = truncation(ids, logits.device, top_k=top_k, top_p=0.9, temperature=0.7)
    assert torch.equal(pick(best, uniform, cut), pick(whole, uniform, cut))
