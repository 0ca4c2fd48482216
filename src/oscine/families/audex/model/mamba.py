"""The Mamba-2 block of the hybrid language model (AUDEX spec, 3.2).

The step size is not clamped. A prompt is scanned in chunks, a token by the plain recurrence; both are the same sum, so
results do not depend on the chunk size beyond rounding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audex.config import HybridConfig
from oscine.families.audex.model.dense import Linear
from oscine.families.audex.model.lanes import Call, Prefill
from oscine.layers.mamba2 import scan_chunks, split_columns, update_state
from oscine.runtime.cache import Lane


def gated_group_norm(y: Tensor, gate: Tensor, weight: Tensor, group_size: int, eps: float) -> Tensor:
    """`y * silu(gate)`, then RMS over groups of channels, in float32, cast to y's dtype BEFORE `weight`."""
    gated = torch.unflatten(y.float() * F.silu(gate.float()), -1, (-1, group_size))
    normed = gated * torch.rsqrt(gated.square().mean(-1, keepdim=True) + eps)
    out: Tensor = normed.flatten(-2).to(y.dtype) * weight
    return out


class GatedNorm(nn.Module):
    """Holds the weight of `gated_group_norm`."""

    def __init__(self, dim: int, group_size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.group_size = group_size
        self.eps = eps

    def forward(self, y: Tensor, gate: Tensor) -> Tensor:
        """y, gate [..., dim] → same shape and dtype as y."""
        return gated_group_norm(y, gate, self.weight, self.group_size, self.eps)


class Mamba(nn.Module):
    """Input product, short causal convolution, state recurrence, gate, output product."""

    def __init__(self, config: HybridConfig, index: int) -> None:
        super().__init__()
        self.config = config
        self.conv_name, self.ssm_name = f"conv.{index}", f"ssm.{index}"  # of its states in a lane
        inner, heads = config.inner_size, config.mamba_num_heads
        self.in_proj = Linear(config.hidden_size, inner + config.conv_size + heads)
        self.conv1d = nn.Conv1d(
            config.conv_size, config.conv_size, config.conv_kernel, groups=config.conv_size, bias=config.use_conv_bias
        )
        self.A_log = nn.Parameter(torch.zeros(heads))
        self.D = nn.Parameter(torch.zeros(heads))
        self.dt_bias = nn.Parameter(torch.zeros(heads))
        self.norm = GatedNorm(inner, inner // config.n_groups, config.layer_norm_epsilon)
        self.out_proj = Linear(inner, config.hidden_size)

    def forward(self, x: Tensor, call: Call) -> Tensor:
        """x [row, dim] → same shape; the lanes' states move on."""
        config = self.config
        sizes = [config.inner_size, config.conv_size, config.mamba_num_heads]
        gate, conv_in, dt = self.in_proj(x).split(sizes, dim=-1)
        if isinstance(call, Prefill):
            y = self.norm(self._scan(conv_in, self._step_size(dt), call.lanes[0]), gate)
        else:
            y = torch.zeros_like(gate)
            for row, lane in enumerate(call.lanes):  # all of it: even silu's bits can depend on the tensor's length
                mixed = self._step(conv_in[row], self._step_size(dt[row]), lane)
                y[row] = self.norm(mixed, gate[row])
        out: Tensor = self.out_proj(y)
        return out

    def _step_size(self, dt: Tensor) -> Tensor:
        """dt [..., head] → step sizes float32, positive and not clamped."""
        return F.softplus(dt.float() + self.dt_bias.float())

    def _decay(self, step: Tensor) -> Tensor:
        """Step sizes [..., head] → the logarithm of each token's decay, float32."""
        return step * -torch.exp(self.A_log.float())

    def _split(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Conv outputs [..., conv_size] → x, B and C as `split_columns` gives them."""
        config = self.config
        return split_columns(
            F.silu(mixed), heads=config.mamba_num_heads, groups=config.n_groups, states=config.ssm_state_size
        )

    def _step(self, conv_in: Tensor, step: Tensor, lane: Lane) -> Tensor:
        """One token of one lane: conv_in [conv_size], step [head] → y [inner] in conv_in's dtype."""
        conv = torch.cat([lane.states[self.conv_name][:, 1:], conv_in[:, None]], dim=1)
        mixed = F.conv1d(conv[None], self.conv1d.weight, self.conv1d.bias, groups=len(conv))[0, :, 0]
        x, b, c = self._split(mixed)
        ssm = lane.states[self.ssm_name].clone()
        update_state(ssm, self._decay(step), step[:, None] * x, b)
        lane.states |= {self.conv_name: conv, self.ssm_name: ssm}
        y = (ssm @ c[:, :, None])[:, :, 0] + self.D.float()[:, None] * x
        return y.flatten().to(conv_in.dtype)

    def _scan(self, conv_in: Tensor, step: Tensor, lane: Lane) -> Tensor:
        """A prompt of one fresh lane: conv_in [time, conv_size], step [time, head] → y [time, inner]."""
        kernel = self.config.conv_kernel
        padded = F.pad(conv_in.T, (kernel, 0))  # one column more than the convolution needs: the state may be short
        ssm = lane.states[self.ssm_name].clone()
        mixed = F.conv1d(padded[None, :, 1:], self.conv1d.weight, self.conv1d.bias, groups=len(padded))[0].T
        x, b, c = self._split(mixed)
        decay, driven = self._decay(step), x * step[..., None]
        y = scan_chunks(decay[None], driven[None], b[None], c[None], ssm[None], self.config.chunk_size)[0]
        lane.states |= {self.conv_name: padded[:, -kernel:].clone(), self.ssm_name: ssm}
        return (y + self.D.float()[:, None] * x).flatten(1).to(conv_in.dtype)
