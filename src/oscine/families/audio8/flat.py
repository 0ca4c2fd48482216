"""The dense blocks on flat rows [row * time, dim], in as few calls as it takes: what decoding runs.

`dense.Block` is the simple path with the same formulas; of a model this small, most of a step is the overhead of calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audio8.dense import Block, grouped_attention
from oscine.layers.exact import in_rows
from oscine.layers.norm import rms_norm
from oscine.layers.rope import turn_interleaved

FlatAttend = Callable[[int, Tensor, Tensor], Tensor]
"""(layer, queries [n, head, head_dim], keys and values [n, 2 * kv_head, head_dim]) → [n, head * head_dim]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """A linear map: `weight` is the layer's, seen as [in, out]."""

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, linear: nn.Linear) -> Product:
        """The map of a layer, with the layer's own storage."""
        bias = linear.bias
        return cls(weight=linear.weight.detach().t(), bias=None if bias is None else bias.detach())

    def __call__(self, x: Tensor) -> Tensor:
        """x [n, in] → [n, out]."""
        return torch.mm(x, self.weight) if self.bias is None else torch.addmm(self.bias, x, self.weight)


@dataclass(frozen=True, kw_only=True, slots=True)
class FlatBlock:
    """Weights of a `dense.Block`; `gains` [head + kv_head, head_dim] are those of its query and key norms."""

    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    attention_norm: Tensor
    wqkv: Product
    gains: Tensor | None
    wo: Product
    ffn_norm: Tensor
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
            eps=block.attention_norm.eps,
            attention_norm=block.attention_norm.weight.detach(),
            wqkv=Product.of(attention.wqkv),
            gains=None if attention.q_norm is None else attention.gains().detach(),
            wo=Product.of(attention.wo),
            ffn_norm=block.ffn_norm.weight.detach(),
            w1=Product.of(mlp.w1),
            w2=Product.of(mlp.w2),
            w3=Product.of(mlp.w3),
        )

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor, attend: FlatAttend, layer: int) -> Tensor:
        """x [n, dim], factors [n, 1, head_dim] of the positions for `turn_interleaved` → same shape as x."""
        heads, kv_heads = self.heads, self.kv_heads
        every = self.wqkv(rms_norm(x, self.attention_norm, self.eps)).view(x.shape[0], -1, self.head_dim)
        turned, v = every.split_with_sizes((heads + kv_heads, kv_heads), 1)
        if self.gains is not None:
            turned = rms_norm(turned, self.gains, self.eps)
        q, k = turn_interleaved(turned, cos, sin).split_with_sizes((heads, kv_heads), 1)
        x = x + self.wo(attend(layer, q, torch.cat([k, v], 1)))
        h = rms_norm(x, self.ffn_norm, self.eps)
        return x + self.w2(in_rows(F.silu, self.w1(h)) * self.w3(h))


def flat_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """`grouped_attention` of q [row * time, head, head_dim] → [row * time, head * head_dim]."""
    rows, kv_heads = keys.shape[:2]
    if q.shape[0] > rows:
        return grouped_attention(torch.unflatten(q, 0, (rows, -1)), keys, values, mask).flatten(0, 1)
    stacked = torch.unflatten(q, 1, (kv_heads, -1))
    return F.scaled_dot_product_attention(stacked, keys, values, attn_mask=mask).flatten(1)
