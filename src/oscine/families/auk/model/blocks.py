"""Blocks of the AuK transformer; names are the checkpoint's (AUK spec, 3.2)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.auk.model.layouts import Heads, Layout, Rope
from oscine.kernels.vector import pad_to_vector_width
from oscine.layers.norm import RMSNorm

LN_EPS = 1e-6
RMS_EPS = 1.1920929e-07  # float32 machine epsilon, in every dtype
TIME_DIM = 256
CONV_KERNEL, CONV_GROUPS = 31, 16


def layer_norm(x: Tensor) -> Tensor:
    """Layer norm of the last dim without affine."""
    return F.layer_norm(x, x.shape[-1:], eps=LN_EPS)


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Normalised x, scaled and shifted."""
    return layer_norm(x) * (1 + scale) + shift


def rotate(x: Tensor, rope: Rope) -> Tensor:
    """x [batch, head, time, head_dim] with its pairs (2j, 2j + 1) turned, in float32."""
    cos, sin = rope
    a, b = torch.unflatten(x.float(), -1, (-1, 2)).unbind(-1)
    cos, sin = cos[..., ::2], sin[..., ::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2).to(x.dtype)


def rope_table(inv_freq: Tensor, positions: Tensor) -> Rope:
    """(cos, sin) float32 [row, 1, time, head_dim] of integer positions [row, time]; every angle twice."""
    angles = positions.float()[..., None] * inv_freq.float()
    angles = angles.repeat_interleave(2, dim=-1)[:, None]
    return angles.cos(), angles.sin()


def compressed_positions(mask: Tensor) -> Tensor:
    """Positions that count the valid tokens of mask [row, time] only, so that padding moves nobody (AUK spec, 3.3)."""
    return (mask.cumsum(dim=-1) - 1).clamp(min=0)


class TimeEmbedding(nn.Module):
    """Sinusoid of the time in float32, then two linears."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.time_mlp = nn.Sequential(nn.Linear(TIME_DIM, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, time: Tensor) -> Tensor:
        """time [row] in 0..1 → [row, dim]."""
        half = TIME_DIM // 2
        omega = torch.exp(torch.arange(half, dtype=torch.float32, device=time.device) * (-math.log(10000) / (half - 1)))
        angles = 1000 * time.float()[:, None] * omega
        weight = self.time_mlp[0].weight
        assert isinstance(weight, Tensor)
        embedded: Tensor = self.time_mlp(torch.cat([angles.sin(), angles.cos()], dim=-1).to(weight.dtype))
        return embedded


class ConvPositionEmbedding(nn.Module):
    """Two grouped convolutions with Mish; padding is zeroed before the first and after each."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        pad = CONV_KERNEL // 2
        self.conv1d = nn.Sequential(
            nn.Conv1d(dim, dim, CONV_KERNEL, groups=CONV_GROUPS, padding=pad),
            nn.Mish(),
            nn.Conv1d(dim, dim, CONV_KERNEL, groups=CONV_GROUPS, padding=pad),
            nn.Mish(),
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x [row, time, dim], mask [row, time] → same shape as x."""
        keep = None if mask is None else mask[:, None].to(x.dtype)
        y = x.transpose(1, 2)
        y = y if keep is None else y * keep
        for layer in self.conv1d:
            y = layer(y)
            if keep is not None and isinstance(layer, nn.Conv1d):
                y = y * keep
        return y.transpose(1, 2)


class AudioEmbedding(nn.Module):
    """Latents → model width, shared by target and reference, applied to each by itself."""

    def __init__(self, latent_dim: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(latent_dim, dim)
        self.conv_pos_embed = ConvPositionEmbedding(dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x [row, time, latent] → [row, time, dim]."""
        h = self.linear(x.to(self.linear.weight.dtype))
        embedded: Tensor = h + self.conv_pos_embed(h, mask)
        return embedded


class AdaNorm(nn.Module):
    """The linear that turns a time vector into modulation values, one set of `parts` vectors."""

    def __init__(self, dim: int, parts: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, parts * dim)


class FeedForward(nn.Module):
    """SwiGLU without biases."""

    def __init__(self, dim: int, inner: int) -> None:
        super().__init__()
        self.linear_in = nn.Linear(dim, 2 * inner, bias=False)
        self.linear_out = nn.Linear(inner, dim, bias=False)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """x [batch, time, dim] → same shape."""
        a, b = layout.apply(self.linear_in, x).chunk(2, dim=-1)
        return layout.apply(self.linear_out, pad_to_vector_width(F.silu, a) * b)


def _heads(packed: Tensor, dim_head: int, norms: tuple[nn.Module, nn.Module], rope: Rope) -> Heads:
    """q, k, v [batch, head, time, head_dim] of a packed projection: q and k normed per head, then turned."""
    q, k, v = (torch.unflatten(part, -1, (-1, dim_head)).transpose(1, 2) for part in packed.chunk(3, dim=-1))
    return rotate(norms[0](q), rope), rotate(norms[1](k), rope), v


class JointAttention(nn.Module):
    """Attention of a double block over [audio | text], with projections of their own."""

    def __init__(self, dim: int, heads: int, dim_head: int) -> None:
        super().__init__()
        inner = heads * dim_head
        self.dim_head = dim_head
        self.to_qkv, self.to_qkv_c = nn.Linear(dim, 3 * inner), nn.Linear(dim, 3 * inner)
        self.q_norm, self.k_norm = RMSNorm(dim_head, RMS_EPS), RMSNorm(dim_head, RMS_EPS)
        self.c_q_norm, self.c_k_norm = RMSNorm(dim_head, RMS_EPS), RMSNorm(dim_head, RMS_EPS)
        self.to_out = nn.ModuleList([nn.Linear(inner, dim)])
        self.to_out_c = nn.Linear(inner, dim)

    def forward(self, audio: Tensor, text: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Outputs of the audio and of the text stream."""
        audio_heads = _heads(
            layout.apply(self.to_qkv, audio), self.dim_head, (self.q_norm, self.k_norm), layout.rope_audio
        )
        text_heads = _heads(
            layout.apply(self.to_qkv_c, text), self.dim_head, (self.c_q_norm, self.c_k_norm), layout.rope_text
        )
        audio_out, text_out = layout.joint(audio_heads, text_heads)
        return (
            layout.zeroed(layout.apply(self.to_out[0], audio_out), "audio"),
            layout.zeroed(layout.apply(self.to_out_c, text_out), "text"),
        )


class SingleAttention(nn.Module):
    """Attention of a single block."""

    def __init__(self, dim: int, heads: int, dim_head: int) -> None:
        super().__init__()
        self.dim_head = dim_head
        self.to_qkv = nn.Linear(dim, 3 * heads * dim_head)
        self.q_norm, self.k_norm = RMSNorm(dim_head, RMS_EPS), RMSNorm(dim_head, RMS_EPS)
        self.to_out = nn.ModuleList([nn.Linear(heads * dim_head, dim)])

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """x [batch, time, dim] → same shape."""
        heads = _heads(layout.apply(self.to_qkv, x), self.dim_head, (self.q_norm, self.k_norm), layout.rope_single)
        return layout.zeroed(layout.apply(self.to_out[0], layout.single(heads)), "single")


class DoubleBlock(nn.Module):
    """One double-stream block."""

    def __init__(self, dim: int, heads: int, dim_head: int, inner: int) -> None:
        super().__init__()
        self.attn_norm_c, self.attn_norm_x = AdaNorm(dim, 6), AdaNorm(dim, 6)
        self.attn = JointAttention(dim, heads, dim_head)
        self.ff_c, self.ff_x = FeedForward(dim, inner), FeedForward(dim, inner)

    def forward(
        self, text: Tensor, audio: Tensor, text_rows: Tensor, audio_rows: Tensor, layout: Layout
    ) -> tuple[Tensor, Tensor]:
        """(text, audio) after the block; rows [request or 1, 6 dim] are what the two AdaNorms gave."""
        t = layout.spread(text_rows, "text").chunk(6, dim=-1)  # shift, scale, gate of attention, then of the FF
        a = layout.spread(audio_rows, "audio").chunk(6, dim=-1)
        audio_out, text_out = self.attn(modulate(audio, a[0], a[1]), modulate(text, t[0], t[1]), layout)
        text, audio = text + t[2] * text_out, audio + a[2] * audio_out
        text = text + t[5] * self.ff_c(modulate(text, t[3], t[4]), layout)
        return text, audio + a[5] * self.ff_x(modulate(audio, a[3], a[4]), layout)


class SingleBlock(nn.Module):
    """One single-stream block."""

    def __init__(self, dim: int, heads: int, dim_head: int, inner: int) -> None:
        super().__init__()
        self.attn_norm = AdaNorm(dim, 6)
        self.attn = SingleAttention(dim, heads, dim_head)
        self.ff = FeedForward(dim, inner)

    def forward(self, x: Tensor, rows: Tensor, layout: Layout) -> Tensor:
        """x [batch, time, dim] → same shape; rows [request or 1, 6 dim]."""
        m = layout.spread(rows, "single").chunk(6, dim=-1)
        x = x + m[2] * self.attn(modulate(x, m[0], m[1]), layout)
        out: Tensor = x + m[5] * self.ff(modulate(x, m[3], m[4]), layout)
        return out
