"""Causal building blocks of the codec, each usable on a whole signal or chunk by chunk (AUDIO8 spec, 3.5).

Every block takes `forward(x, state=None)`. Without a state the input is a whole signal with silence before
it. With a `StreamState` it is the next piece of a stream: the block finds in the state what it must remember
and replaces it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class StreamState:
    """What a stream remembers: per causal block its last inputs, pending overlap, or last keys and values.

    Its size does not grow once the attention windows are full. It belongs to one stream.
    """

    def __init__(self) -> None:
        self.tensors: dict[nn.Module, tuple[Tensor, ...]] = {}
        self.positions: dict[nn.Module, int] = {}

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors held."""
        return sum(t.numel() * t.element_size() for held in self.tensors.values() for t in held)

    def store(self, block: nn.Module, *tensors: Tensor) -> None:
        """Keeps copies, so that no larger buffer stays alive behind a slice."""
        self.tensors[block] = tuple(t.detach().clone() for t in tensors)


class Chain(nn.Sequential):
    """Blocks in sequence, handing the stream state to each."""

    def forward(self, x: Tensor, state: StreamState | None = None) -> Tensor:
        """x [batch, channel, time] → output of the last block."""
        for block in self:
            x = block(x, state)
        return x


class CausalConv(nn.Module):
    """Convolution that sees no future sample; output length ceil(time / stride).

    history (k_eff - stride)   input   zeros up to a multiple of stride
    [0 0 0 ... 0]              [x x x x x x x]   [0]
    """

    def __init__(
        self, cin: int, cout: int, kernel: int, *, stride: int = 1, dilation: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(cin, cout, kernel, stride=stride, dilation=dilation, groups=groups)
        self.stride = stride
        self.num_history = (kernel - 1) * dilation + 1 - stride

    def forward(self, x: Tensor, state: StreamState | None = None) -> Tensor:
        """x [batch, cin, time] → [batch, cout, ceil(time / stride)].

        A stream's piece must be a multiple of the stride long, else ValueError.
        """
        ragged = -x.shape[-1] % self.stride
        if state is None:
            return self._convolve(F.pad(x, (self.num_history, ragged)))
        if ragged:
            raise ValueError(f"a piece of {x.shape[-1]} steps is no multiple of the stride {self.stride}")
        if self.num_history == 0:
            return self._convolve(x)
        held = state.tensors.get(self)
        history = x.new_zeros(*x.shape[:-1], self.num_history) if held is None else held[0]
        joined = torch.cat([history, x], dim=-1)
        state.store(self, joined[..., joined.shape[-1] - self.num_history :])
        return self._convolve(joined)

    def _convolve(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y


class CausalConvTranspose(nn.Module):
    """Upsampling by `stride`; the last kernel - stride samples overlap with what the next input will add."""

    def __init__(self, cin: int, cout: int, kernel: int, *, stride: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(cin, cout, kernel, stride=stride)
        self.stride = stride
        self.num_overlap = kernel - stride

    def forward(self, x: Tensor, state: StreamState | None = None) -> Tensor:
        """x [batch, cin, time] → [batch, cout, time * stride]."""
        length = x.shape[-1] * self.stride
        if state is None:
            whole: Tensor = self.conv(x)[..., :length]
            return whole
        raw = F.conv_transpose1d(x, self.conv.weight, None, stride=self.stride)
        held = state.tensors.get(self)
        if held is not None:
            raw[..., : self.num_overlap] += held[0]
        state.store(self, raw[..., length:])
        bias = self.conv.bias
        return raw[..., :length] if bias is None else raw[..., :length] + bias[:, None]


class Snake(nn.Module):
    """`x + sin(alpha x)^2 / (alpha + 1e-9)` with one alpha a channel, which may be negative."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x: Tensor, state: StreamState | None = None) -> Tensor:
        """x [batch, channel, time] → same shape."""
        share = 1.0 / (self.alpha + 1e-9)
        if torch.is_grad_enabled():
            return torch.addcmul(x, torch.sin(self.alpha * x).square(), share)
        wave = (self.alpha * x).sin_()  # in place: fresh memory costs more than the arithmetic
        return torch.addcmul(x, wave.mul_(wave), share)


class ResidualUnit(nn.Module):
    """Two activated convolutions (7 wide and dilated, then 1 wide) added to the input."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.block = Chain(
            Snake(channels),
            CausalConv(channels, channels, 7, dilation=dilation),
            Snake(channels),
            CausalConv(channels, channels, 1),
        )

    def forward(self, x: Tensor, state: StreamState | None = None) -> Tensor:
        """x [batch, channel, time] → same shape."""
        y: Tensor = self.block(x, state)
        return x + y


class ConvNeXt(nn.Module):
    """Depthwise convolution, then a two-layer network per time step, scaled and added to the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dwconv = CausalConv(channels, channels, 7, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pwconv1 = nn.Linear(channels, 4 * channels)
        self.pwconv2 = nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.full((channels,), 1e-6))

    def forward(self, x: Tensor, state: StreamState | None = None) -> Tensor:
        """x [batch, channel, time] → same shape."""
        y: Tensor = self.norm(self.dwconv(x, state).transpose(1, 2))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.transpose(1, 2)
