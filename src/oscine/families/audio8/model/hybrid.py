"""Falcon-H1 backbone of the 0.1B class: each layer adds a Mamba-2 mixer and attention (AUDIO8 spec, 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audio8.config import HybridConfig, LMConfig
from oscine.families.audio8.model.dense import Attend
from oscine.kernels.vector import pad_to_vector_width
from oscine.layers.mamba2 import scan_chunks, split_columns, update_state
from oscine.layers.norm import RMSNorm
from oscine.layers.rope import rotate_half_split


@dataclass(frozen=True, kw_only=True)
class MixerState:
    """A layer's recurrent state, updated in place.

    `conv` [row, d_conv - 1, conv_dim] holds the last columns that entered the convolution, `ssm` float32
    [row, head, head_dim, d_state] the state of the scan.
    """

    conv: Tensor
    ssm: Tensor


def scaled(x: Tensor, factor: float) -> Tensor:
    """x * factor; x itself when the factor is 1, as it is in the release."""
    return x if factor == 1.0 else x * factor


class Mixer(nn.Module):
    """Mamba-2: gated state-space scan over heads, with a short causal convolution in front."""

    def __init__(self, dim: int, config: HybridConfig) -> None:
        super().__init__()
        self.config = config
        inner, conv_dim, heads = config.mamba_d_ssm, config.conv_dim, config.mamba_n_heads
        self.in_proj = nn.Linear(dim, inner + conv_dim + heads, bias=False)
        self.conv1d = nn.Conv1d(conv_dim, conv_dim, config.mamba_d_conv, groups=conv_dim, bias=config.mamba_conv_bias)
        self.dt_bias = nn.Parameter(torch.empty(heads))
        self.A_log = nn.Parameter(torch.empty(heads))
        self.D = nn.Parameter(torch.empty(heads))
        self.out_proj = nn.Linear(inner, dim, bias=False)

    def forward(self, u: Tensor, state: MixerState, keep: Tensor | None = None) -> Tensor:
        """u [row, time, dim] → same shape; `state` moves on by `time`.

        `keep` [row, time, 1] is 0 at left padding, which must not enter the convolution nor the scan.
        """
        config = self.config
        u = scaled(u, config.ssm_in_multiplier)
        projected = self._scale_sections(self.in_proj(u if keep is None else u * keep))
        sizes = [config.mamba_d_ssm, config.conv_dim, config.mamba_n_heads]
        gate, columns, dt = torch.split(projected, sizes, dim=-1)
        columns = self._convolve(columns, state.conv)
        if keep is not None:
            columns = columns * keep
        y = self._scan(columns, dt, state.ssm)
        out: Tensor = self.out_proj(y.to(gate.dtype) * pad_to_vector_width(F.silu, gate))
        return out

    def _scale_sections(self, projected: Tensor) -> Tensor:
        """The in-projection with `ssm_multipliers` on its sections gate, x, B, C, dt."""
        config = self.config
        if set(config.ssm_multipliers) == {1.0}:
            return projected
        inner, bc = config.mamba_d_ssm, config.mamba_n_groups * config.mamba_d_state
        sections = torch.split(projected, [inner, inner, bc, bc, config.mamba_n_heads], dim=-1)
        return torch.cat([s * m for s, m in zip(sections, config.ssm_multipliers, strict=True)], dim=-1)

    def _convolve(self, columns: Tensor, history: Tensor) -> Tensor:
        """Depthwise causal convolution and SiLU of columns [row, time, conv_dim]; `history` moves on in place."""
        time, kept = columns.shape[1], history.shape[1]
        padded = torch.cat([history, columns], dim=1)
        history.copy_(padded[:, time:])
        taps = self.conv1d.weight[:, 0].t()  # [d_conv, conv_dim]
        out = padded[:, kept:] * taps[kept]
        for tap in range(kept):
            out = out + padded[:, tap : tap + time] * taps[tap]
        return pad_to_vector_width(F.silu, out if self.conv1d.bias is None else out + self.conv1d.bias)

    def _scan(self, columns: Tensor, dt: Tensor, state: Tensor) -> Tensor:
        """The state-space recurrence in float32 → [row, time, d_ssm]; `state` moves on in place."""
        config = self.config
        x, b, c = split_columns(
            columns, heads=config.mamba_n_heads, groups=config.mamba_n_groups, states=config.mamba_d_state
        )
        dt = pad_to_vector_width(F.softplus, dt.float() + self.dt_bias.float())  # [row, time, head]
        decay, driven = dt * -torch.exp(self.A_log.float()), dt[..., None] * x
        if x.shape[1] == 1:
            update_state(state, decay[:, 0], driven[:, 0], b[:, 0])
            y = (state * c[:, 0, :, None, :]).sum(-1)[:, None]
        else:
            y = scan_chunks(decay, driven, b, c, state, config.mamba_chunk_size)
        return (y + x * self.D.float()[:, None]).flatten(-2)


class HybridAttention(nn.Module):
    """Separate projections without bias and half-split RoPE with an unrounded table."""

    def __init__(self, config: LMConfig, hybrid: HybridConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.num_heads = config.n_head
        self.num_kv_heads = config.n_local_heads
        self.key_multiplier = hybrid.key_multiplier
        self.q_proj = nn.Linear(config.dim, config.n_head * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.dim, config.n_local_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.dim, config.n_local_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.n_head * config.head_dim, config.dim, bias=False)

    def forward(self, x: Tensor, table: Tensor, attend: Attend) -> Tensor:
        """x [row, time, dim], table of its positions → same shape as x."""
        q, k, v = self.q_proj(x), scaled(self.k_proj(x), self.key_multiplier), self.v_proj(x)
        turned = rotate_half_split(torch.unflatten(torch.cat([q, k], dim=-1), -1, (-1, self.head_dim)), table)
        q, k = torch.split(turned, [self.num_heads, self.num_kv_heads], dim=-2)
        kv = torch.cat([k, torch.unflatten(v, -1, (-1, self.head_dim))], dim=-2)
        out: Tensor = self.o_proj(attend(q, kv))
        return out


class HybridMLP(nn.Module):
    """Gated feed-forward with a factor on the gate and one on the output."""

    def __init__(self, config: LMConfig, hybrid: HybridConfig) -> None:
        super().__init__()
        self.gate_multiplier, self.down_multiplier = hybrid.mlp_multipliers
        self.gate_proj = nn.Linear(config.dim, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.dim, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [row, time, dim] → same shape."""
        gate = pad_to_vector_width(F.silu, scaled(self.gate_proj(x), self.gate_multiplier))
        return scaled(self.down_proj(self.up_proj(x) * gate), self.down_multiplier)


class HybridLayer(nn.Module):
    """Mixer and attention side by side on one normed input, then the feed-forward."""

    def __init__(self, config: LMConfig, hybrid: HybridConfig) -> None:
        super().__init__()
        self.hybrid = hybrid
        self.input_layernorm = RMSNorm(config.dim, config.norm_eps)
        self.mamba = Mixer(config.dim, hybrid)
        self.self_attn = HybridAttention(config, hybrid)
        self.pre_ff_layernorm = RMSNorm(config.dim, config.norm_eps)
        self.feed_forward = HybridMLP(config, hybrid)

    def forward(
        self, x: Tensor, table: Tensor, attend: Attend, state: MixerState, keep: Tensor | None = None
    ) -> Tensor:
        """x [row, time, dim] → same shape; `state` moves on."""
        hybrid = self.hybrid
        u = self.input_layernorm(x)
        mixed = scaled(self.mamba(u, state, keep), hybrid.ssm_out_multiplier)
        attended = self.self_attn(scaled(u, hybrid.attention_in_multiplier), table, attend)
        x = x + (mixed + scaled(attended, hybrid.attention_out_multiplier))
        out: Tensor = x + self.feed_forward(self.pre_ff_layernorm(x))
        return out
