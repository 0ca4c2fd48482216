"""The dense blocks on flat rows [row * time, dim], in as few calls as it takes: what decoding runs.

`dense.Block` is the simple path with the same formulas; of a model this small, most of a step is the overhead of calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audio8.model.dense import Block, grouped_attention
from oscine.kernels.fp16 import Fp16Linear
from oscine.kernels.vector import pad_to_vector_width
from oscine.layers.norm import StepNorm
from oscine.layers.rope import apply_rope_complex

FlatAttend = Callable[[int, Tensor, Tensor], Tensor]
"""(layer, queries [n, head, head_dim], keys and values [n, 2 * kv_head, head_dim]) → [n, head * head_dim]."""


Product = Callable[[Tensor], Tensor]
"""A linear map: x [n, in] → [n, out]."""


def product_of(layer: nn.Module) -> Product:
    """The map of an `nn.Linear` or `Fp16Linear`, with the layer's own storage."""
    if isinstance(layer, Fp16Linear):
        return layer.matrix
    assert isinstance(layer, nn.Linear)
    return product_with(layer.weight.detach(), None if layer.bias is None else layer.bias.detach())


def product_with(weight: Tensor, bias: Tensor | None = None) -> Product:
    """x [n, in] → `x weightᵀ + bias`, weight [out, in]."""
    turned = weight.t()
    if bias is None:
        return lambda x: torch.mm(x, turned)
    return lambda x: torch.addmm(bias, x, turned)


@dataclass(frozen=True, kw_only=True, slots=True)
class FlatBlock:
    """Weights of a `dense.Block`; `head_norm` norms queries and keys, with a gain for each head."""

    heads: int
    kv_heads: int
    head_dim: int
    attention_norm: StepNorm
    wqkv: Product
    head_norm: StepNorm | None
    wo: Product
    ffn_norm: StepNorm
    w1: Product
    w2: Product
    w3: Product

    @classmethod
    def of(cls, block: Block) -> FlatBlock:
        """The weights of a block, which are not to change afterwards."""
        attention, mlp = block.attention, block.feed_forward
        return cls(
            heads=attention.num_heads,
            kv_heads=attention.num_kv_heads,
            head_dim=attention.head_dim,
            attention_norm=StepNorm.of(block.attention_norm.weight, block.attention_norm.eps),
            wqkv=product_of(attention.wqkv),
            head_norm=None if attention.q_norm is None else StepNorm.of(attention.gains(), attention.q_norm.eps),
            wo=product_of(attention.wo),
            ffn_norm=StepNorm.of(block.ffn_norm.weight, block.ffn_norm.eps),
            w1=product_of(mlp.w1),
            w2=product_of(mlp.w2),
            w3=product_of(mlp.w3),
        )

    def __call__(self, x: Tensor, rope: Tensor, attend: FlatAttend, layer: int) -> Tensor:
        """x [n, dim], rope complex64 [n, 1, head_dim / 2] (see `apply_rope_complex`) → same shape as x."""
        heads, kv_heads = self.heads, self.kv_heads
        every = self.wqkv(self.attention_norm(x)).view(x.shape[0], -1, self.head_dim)
        turned, v = every.split_with_sizes((heads + kv_heads, kv_heads), 1)
        if self.head_norm is not None:
            turned = self.head_norm(turned)
        q, k = apply_rope_complex(turned, rope).split_with_sizes((heads, kv_heads), 1)
        x = x + self.wo(attend(layer, q, torch.cat([k, v], 1)))
        h = self.ffn_norm(x)
        return x + self.w2(pad_to_vector_width(F.silu, self.w1(h)) * self.w3(h))


def flat_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """`grouped_attention` of q [row * time, head, head_dim] → [row * time, head * head_dim]."""
    rows, kv_heads = keys.shape[:2]
    if q.shape[0] > rows:
        return grouped_attention(torch.unflatten(q, 0, (rows, -1)), keys, values, mask).flatten(0, 1)
    stacked = q.view(rows, kv_heads, -1, q.shape[-1])
    return F.scaled_dot_product_attention(stacked, keys, values, attn_mask=mask).flatten(1)
