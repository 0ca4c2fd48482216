"""Anti-aliased SnakeBeta: up by two, snake, down by two, edges replicated, whole or as a stream (AUK spec, 3.4)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from oscine.families.auk.codec.streams import ConvStream, Stream, TransposedStream
from oscine.families.auk.config import FIR_TAPS

CUTOFF, HALF_WIDTH = 0.25, 0.3
EDGE = FIR_TAPS // 2 - 1  # replicated samples on each side of the upsampler's input
CROP = EDGE * 2 + (FIR_TAPS - 2) // 2  # of its output, on each side: exactly twice the input remains


def kaiser_sinc_taps(num_taps: int = FIR_TAPS, cutoff: float = CUTOFF, half_width: float = HALF_WIDTH) -> Tensor:
    """Low-pass taps float32 [num_taps], sum 1: a sinc at `cutoff` (in cycles a sample) under a Kaiser window."""
    attenuation = 2.285 * (num_taps // 2 - 1) * math.pi * 4 * half_width + 7.95
    if attenuation > 50:
        beta = 0.1102 * (attenuation - 8.7)
    elif attenuation >= 21:
        beta = 0.5842 * (attenuation - 21) ** 0.4 + 0.07886 * (attenuation - 21)
    else:
        beta = 0.0
    window = torch.kaiser_window(num_taps, periodic=False, beta=beta, dtype=torch.float64)
    t = torch.arange(num_taps, dtype=torch.float64) - (num_taps - 1) / 2
    taps = 2 * cutoff * window * torch.sinc(2 * cutoff * t)
    return (taps / taps.sum()).float()


class FIRFilter(nn.Module):
    """The taps of one FIR, a buffer of the checkpoint; expanded to one row a channel, cached unless switched off."""

    filter: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("filter", kaiser_sinc_taps().reshape(1, 1, -1))
        self.cached = True
        self._rows: tuple[int, Tensor, Tensor] | None = None  # channels, the buffer they were made of, rows

    def rows(self, channels: int, scale: float) -> Tensor:
        """Taps times `scale`, [channel, 1, tap]; `scale` is a constant of the caller."""
        if not self.cached:
            return (self.filter * scale).expand(channels, 1, -1)
        if self._rows is None or self._rows[0] != channels or self._rows[1] is not self.filter:
            self._rows = channels, self.filter, (self.filter * scale).expand(channels, 1, -1).contiguous()
        return self._rows[2]


class Upsample(FIRFilter):
    """Doubles the rate; never causal."""

    def open(self, channels: int) -> Stream:
        """A fresh stream of [batch, channel, time] → twice the time."""
        return TransposedStream(
            lambda: (self.rows(channels, 2.0), None), stride=2, trim=(CROP, CROP), edge=(EDGE, EDGE), groups=channels
        )


class Downsample(nn.Module):
    """Halves the rate; causal in the released model."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.lowpass = FIRFilter()
        self.pad = down_pad(causal)

    def open(self, channels: int) -> Stream:
        """A fresh stream of [batch, channel, time] → half the time."""
        rows = self.lowpass.rows
        return ConvStream(lambda: (rows(channels, 1.0), None), stride=2, pad=self.pad, replicate=True, groups=channels)


def down_pad(causal: bool) -> tuple[int, int]:
    """Samples replicated before and after the downsampler's input."""
    return (FIR_TAPS - 1, 0) if causal else (FIR_TAPS // 2 - 1, FIR_TAPS // 2)


class SnakeBeta(nn.Module):
    """`y + sin^2(y a) / (b + 1e-9)` per channel, a and b stored as logarithms when `logscale`."""

    def __init__(self, channels: int, logscale: bool) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(channels))
        self.beta = nn.Parameter(torch.zeros(channels))
        self.logscale = logscale

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, channel, time] → same shape."""
        alpha, beta = self.alpha[:, None], self.beta[:, None]
        if self.logscale:
            alpha, beta = alpha.exp(), beta.exp()
        return x + (x * alpha).sin().square() / (beta + 1e-9)


class Activation(nn.Module):
    """SnakeBeta at twice the rate."""

    def __init__(self, channels: int, *, logscale: bool, causal: bool) -> None:
        super().__init__()
        self.act = SnakeBeta(channels, logscale)
        self.upsample = Upsample()
        self.downsample = Downsample(causal)
        self.channels = channels

    def open(self) -> Stream:
        """A fresh stream of [batch, channel, time] → same shape, two samples late when causal."""
        return _ActivationStream(self)


class _ActivationStream:
    def __init__(self, module: Activation) -> None:
        self._up = module.upsample.open(module.channels)
        self._snake = module.act
        self._down = module.downsample.open(module.channels)

    def push(self, x: Tensor, final: bool) -> Tensor:
        return self._down.push(self._snake(self._up.push(x, final)), final)
