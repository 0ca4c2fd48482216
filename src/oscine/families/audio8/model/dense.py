"""Blocks of the dense slow model and of the fast model (AUDIO8 spec, 3.2 and 3.4).

An attention module makes queries, keys and values; what they are attended with is a function handed in. That is the
only difference between a pass without a cache and a cached one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.layers.mlp import SwiGLU
from oscine.layers.norm import RMSNorm, rms_norm
from oscine.layers.rope import factors, rope_table, spread_interleaved, turn_interleaved

Attend = Callable[[Tensor, Tensor], Tensor]
"""(queries [row, time, head, head_dim], keys and values [row, time, 2 * kv_head, head_dim]) → [row, time, dim]."""

LayerAttend = Callable[[int, Tensor, Tensor], Tensor]
"""`Attend` of the layer whose index comes first."""


def grouped_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q k^T / sqrt(head_dim) + mask) v with several query heads to a key head → [row, time, head * head_dim].

    q [row, time, head, head_dim], keys and values [row, kv_head, width, head_dim], mask as `additive_mask` gives it.
    The queries of a key head are laid side by side, so keys are never repeated.
    """
    rows, time, heads, head_dim = q.shape
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    if time == 1:
        stacked = q.reshape(rows, kv_heads, group, head_dim)
        out = F.scaled_dot_product_attention(stacked, keys, values, attn_mask=mask)
        return out.reshape(rows, 1, heads * head_dim)
    stacked = q.reshape(rows, time, kv_heads, group, head_dim).permute(0, 2, 3, 1, 4)
    stacked = stacked.reshape(rows, kv_heads, group * time, head_dim)
    wide = None if mask is None else mask.unsqueeze(2).expand(-1, -1, group, -1, -1).flatten(2, 3)
    out = F.scaled_dot_product_attention(stacked, keys, values, attn_mask=wide)
    out = out.reshape(rows, kv_heads, group, time, head_dim).permute(0, 3, 1, 2, 4)
    return out.reshape(rows, time, heads * head_dim)


def additive_mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where `visible` bool [row, time, width], -inf elsewhere → [row, 1, time, width]."""
    hidden = torch.full((), float("-inf"), dtype=dtype, device=visible.device)
    return torch.where(visible, torch.zeros_like(hidden), hidden)[:, None]


def attend_directly(kv_heads: int, mask: Tensor | None) -> Attend:
    """Attention among the positions of one pass, without a cache."""

    def attend(q: Tensor, kv: Tensor) -> Tensor:
        heads_first = kv.transpose(1, 2)
        return grouped_attention(q, heads_first[:, :kv_heads], heads_first[:, kv_heads:], mask)

    return attend


class RopeTable:
    """Rows of a rotary table by position; made on first use for each device, so a meta-built module loses nothing.

    Rows are [head_dim / 2, 2] as `rope_table` makes them, or [2, head_dim] as `turn_interleaved` takes them (`spread`).
    """

    def __init__(
        self, length: int, head_dim: int, base: float, round_to: torch.dtype | None, *, spread: bool = False
    ) -> None:
        self.length = length
        self.head_dim = head_dim
        self.base = base
        self.round_to = round_to
        self.spread = spread
        self._tables: dict[torch.device, Tensor] = {}
        self._complex: dict[torch.device, Tensor] = {}

    def complex_on(self, device: torch.device) -> Tensor:
        """The whole table as `apply_rope_complex` takes it, complex64 [length, 1, head_dim / 2]."""
        if device not in self._complex:
            self._complex[device] = torch.view_as_complex(self._rows(device)).unsqueeze(1)
        return self._complex[device]

    def on(self, device: torch.device) -> Tensor:
        """The whole table, float32 [length, ...]."""
        if device not in self._tables:
            table = self._rows(device)
            self._tables[device] = spread_interleaved(table) if self.spread else table
        return self._tables[device]

    def _rows(self, device: torch.device) -> Tensor:
        return rope_table(torch.arange(self.length, device=device), self.head_dim, self.base, round_to=self.round_to)

    def __call__(self, positions: Tensor) -> Tensor:
        """positions int64 [...], below `length` → float32 [..., ...], the row of each."""
        return self.on(positions.device)[positions]


class Attention(nn.Module):
    """Fused query/key/value projection, optional per-head norms, interleaved RoPE, output projection."""

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        qkv_bias: bool,
        qk_norm: bool,
        o_bias: bool,
        eps: float,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.wqkv = nn.Linear(dim, (num_heads + 2 * num_kv_heads) * head_dim, bias=qkv_bias)
        self.wo = nn.Linear(num_heads * head_dim, dim, bias=o_bias)
        self.q_norm = RMSNorm(head_dim, eps) if qk_norm else None
        self.k_norm = RMSNorm(head_dim, eps) if qk_norm else None

    def gains(self) -> Tensor:
        """Weights of the norms of queries and keys, one row a head [head + kv_head, head_dim]; there must be norms."""
        assert self.q_norm is not None
        assert self.k_norm is not None
        weights = [self.q_norm.weight.expand(self.num_heads, -1), self.k_norm.weight.expand(self.num_kv_heads, -1)]
        return torch.cat(weights)

    def forward(self, x: Tensor, table: Tensor, attend: Attend) -> Tensor:
        """x [row, time, dim], spread table of its positions → same shape as x."""
        num_heads, num_kv_heads = self.num_heads, self.num_kv_heads
        heads = torch.unflatten(self.wqkv(x), -1, (-1, self.head_dim))
        turned = heads.narrow(-2, 0, num_heads + num_kv_heads)
        if self.q_norm is not None:
            turned = rms_norm(turned, self.gains(), self.q_norm.eps)
        turned = turn_interleaved(turned, *factors(table))
        k, v = turned.narrow(-2, num_heads, num_kv_heads), heads.narrow(-2, num_heads + num_kv_heads, num_kv_heads)
        out: Tensor = self.wo(attend(turned.narrow(-2, 0, num_heads), torch.cat([k, v], dim=-2)))
        return out


class Block(nn.Module):
    """Pre-norm attention and feed-forward, each added to its input."""

    def __init__(self, attention: Attention, *, dim: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = SwiGLU(dim, hidden)
        self.attention_norm = RMSNorm(dim, eps)
        self.ffn_norm = RMSNorm(dim, eps)

    def forward(self, x: Tensor, table: Tensor, attend: Attend) -> Tensor:
        """x [row, time, dim] → same shape."""
        x = x + self.attention(self.attention_norm(x), table, attend)
        out: Tensor = x + self.feed_forward(self.ffn_norm(x))
        return out
