"""Rotary position embeddings: the two pairings in use and their tables.

Interleaved (GPT-J) rotates the pairs (0,1), (2,3), ...; half-split (NeoX) rotates (j, j + dim/2). Mixing them up
loads cleanly and sounds plausible, so the names are spelled out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oscine.kernels.vector import VECTOR_LOOP


def rope_table(positions: Tensor, head_dim: int, base: float, *, round_to: torch.dtype | None = None) -> Tensor:
    """(cos, sin) of `position * base^(-2j/head_dim)` → float32 [..., head_dim / 2, 2].

    `positions` integer [...]. `round_to=torch.bfloat16` rounds the entries to that type before use: load-bearing in
    the Audio8 dense backbone, its fast model and the codec, even in float32 models (AUDIO8 spec, 3.2).
    """
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device)[: head_dim // 2] / head_dim
    angles = positions.float()[..., None] * (1.0 / (base**exponent))
    table = torch.stack([angles.cos(), angles.sin()], dim=-1)
    return table if round_to is None else table.to(round_to).float()


def spread_interleaved(table: Tensor) -> Tensor:
    """The factors of each entry and of its partner: (cos, cos) and (-sin, sin) for a pair → [..., 2, head_dim].

    Made of a table [..., head_dim / 2, 2] once, for all calls of `turn_interleaved` at the same positions.
    """
    cos, sin = table.unbind(-1)
    return torch.stack([torch.stack([cos, cos], dim=-1), torch.stack([-sin, sin], dim=-1)], dim=-3).flatten(-2)


def factors(spread: Tensor) -> tuple[Tensor, Tensor]:
    """`spread` [..., 2, head_dim] as the two arguments of `turn_interleaved`, [..., 1, head_dim] each (views)."""
    cos, sin = spread.unsqueeze(-3).unbind(-2)
    return cos, sin


def turn_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates x [..., time, head, head_dim] by `factors` [..., time, 1, head_dim] in float32, pairs (2j, 2j+1)."""
    wide = x.float()
    partners = torch.unflatten(wide, -1, (-1, 2)).flip(-1).flatten(-2)
    return (wide * cos + partners * sin).to(x.dtype)


def apply_rope_complex(x: Tensor, rope: Tensor) -> Tensor:
    """`turn_interleaved` in fewer calls: as a product of complex numbers, where a row's bits are then its own.

    x [..., head, head_dim], rope complex64 [..., 1, head_dim / 2], a `rope_table` seen as complex numbers.
    """
    wide = x if x.dtype == torch.float32 else x.float()
    pairs = wide.view(*x.shape[:-1], -1, 2)
    if x.shape[-1] % VECTOR_LOOP == 0:
        turned = torch.view_as_real(torch.view_as_complex(pairs) * rope)
    else:
        (a, b), cos, sin = pairs.unbind(-1), rope.real, rope.imag
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1)
    turned = turned.view(x.shape)
    return turned if x.dtype == torch.float32 else turned.to(x.dtype)


def rotate_interleaved(x: Tensor, table: Tensor) -> Tensor:
    """Rotates x [..., time, head, head_dim] by `table` [..., time, head_dim / 2, 2] in float32, pairs (2j, 2j+1)."""
    return turn_interleaved(x, *factors(spread_interleaved(table)))


def rotate_half_split(x: Tensor, table: Tensor) -> Tensor:
    """Rotates x [..., time, head, head_dim] by `table` [..., time, head_dim / 2, 2], float32, pairs (j, j + dim/2)"""
    a, b = x.float().chunk(2, dim=-1)
    cos, sin = table.unsqueeze(-3).unbind(-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)
