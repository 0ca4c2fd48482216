"""The transformer layers of Whisper-like audio encoders; submodules are named as in the checkpoints."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYER_NORM_EPS = 1e-5


class EncoderAttention(nn.Module):
    """Unmasked self-attention; the key product has no bias."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim, bias=False)
        self.v_proj = nn.Linear(dim, dim)
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """x [clip, position, dim] → same shape."""
        q, k, v = (
            torch.unflatten(layer(x), -1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        out: Tensor = self.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return out


class EncoderLayer(nn.Module):
    """One pre-norm layer."""

    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.self_attn = EncoderAttention(dim, heads)
        self.self_attn_layer_norm = nn.LayerNorm(dim, eps=LAYER_NORM_EPS)
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)
        self.final_layer_norm = nn.LayerNorm(dim, eps=LAYER_NORM_EPS)

    def forward(self, x: Tensor) -> Tensor:
        """x [clip, position, dim] → same shape."""
        x = x + self.self_attn(self.self_attn_layer_norm(x))
        out: Tensor = x + self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))
        return out
