"""The VAE's decoder as one function of tensors at a fixed length, for compilers and captured graphs (AUK spec, 3.5).

A clip shorter than the length is padded, and every operation that looks to the right is given what lies beyond the
clip's true end: zeros for a convolution, the last value for a filter. So the result is exact, the clip's tail included,
and the number of valid frames is a tensor, not a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from oscine.families.auk.codec.filters import CROP, EDGE, Activation, down_pad
from oscine.families.auk.codec.layers import AmpBlock, DecoderStage, NormedWeight, conv_pad
from oscine.families.auk.codec.vae import EDGE_KERNEL, AuKVAE
from oscine.families.auk.config import FIR_TAPS

Snake = tuple[Tensor, Tensor, bool]
"""(alpha, beta, whether they are logarithms)."""
Filtered = Callable[[Tensor, Tensor, Snake, tuple[Tensor, Tensor], bool], Tensor]
"""The form of `activation`."""


def activation(x: Tensor, count: Tensor, snake: Snake, taps: tuple[Tensor, Tensor], causal: bool) -> Tensor:
    """Anti-aliased SnakeBeta of x [batch, channel, time] whose first `count` samples are the signal; same shape.

    The filters are sums of shifted slices, so that a compiler makes a few loops of everything here. `taps` are those of
    the upsampler and of the downsampler, [tap] each; `causal` is about the downsampler.
    """
    alpha, beta, logscale = snake
    alpha, beta = (alpha.exp(), beta.exp()) if logscale else (alpha, beta)
    y = _doubled(held(x, count), taps[0])
    y = y + (y * alpha[:, None]).sin().square() / (beta[:, None] + 1e-9)
    y = y if causal else held(y, 2 * count)
    padded = F.pad(y, down_pad(causal), mode="replicate")
    time = x.shape[-1]
    total = taps[1][0] * padded[..., : 2 * time : 2]
    for k in range(1, FIR_TAPS):
        total = total + taps[1][k] * padded[..., k : k + 2 * time - 1 : 2]
    return total


def _doubled(x: Tensor, taps: Tensor) -> Tensor:
    """The upsampler, one sum for the even and one for the odd outputs: x [batch, channel, time] → twice the time."""
    padded, time = F.pad(x, (EDGE, EDGE), mode="replicate"), x.shape[-1]
    phases = []
    for phase in (0, 1):
        first = (CROP + phase) % 2  # the taps that meet a sample in this phase are every second one
        total = None
        for k in range(first, FIR_TAPS, 2):
            start = (CROP + phase - k) // 2
            term = 2.0 * taps[k] * padded[..., start : start + time]
            total = term if total is None else total + term
        phases.append(total)
    return torch.stack([phase for phase in phases if phase is not None], dim=-1).flatten(-2)


def held(x: Tensor, count: Tensor) -> Tensor:
    """x [batch, channel, time] with everything from `count` on replaced by the last sample before it."""
    positions = torch.arange(x.shape[-1], device=x.device)
    return x[..., torch.minimum(positions, count - 1)]


def silenced(x: Tensor, count: Tensor) -> Tensor:
    """x [batch, channel, time] with zeros from `count` on."""
    return torch.where(torch.arange(x.shape[-1], device=x.device) < count, x, 0.0)


class WholeDecoder:
    """The decoder over all frames at once; `filtered` is `activation`, or a compiled form of it."""

    def __init__(self, vae: AuKVAE, filtered: Filtered = activation) -> None:
        self._vae, self._filtered = vae, filtered

    def decode(self, latents: Tensor, frames: Tensor) -> Tensor:
        """Audio [batch, time * hop] in [-1, 1]; of latents [batch, time, latent] the first `frames` are the clip.

        `frames` is a number in a tensor without dims. Samples beyond `frames * hop` mean nothing.
        """
        vae, config, count = self._vae, self._vae.config, frames
        raw = latents.float() * vae.global_log_std.sqrt() + vae.global_mean
        x = _conv(vae.conv_pre, raw.transpose(1, 2), count, EDGE_KERNEL, 1, causal=False)
        blocks = iter(vae.resblocks)
        for stage in vae.ups:
            assert isinstance(stage, DecoderStage)
            x = _raised(stage, x, count)
            count = count * stage.rate
            x = self._mean(x, count, blocks)
        x = self._active(vae.activation_post, x, count)
        return _conv(vae.conv_post, x, count, EDGE_KERNEL, 1, causal=config.causal)[:, 0].clamp(-1.0, 1.0)

    def _mean(self, x: Tensor, count: Tensor, blocks: Iterator[torch.nn.Module]) -> Tensor:
        """The mean of the next blocks, one for each kernel size."""
        kernels = self._vae.config.resblock_kernel_sizes
        total = self._amp(next(blocks), x, count)
        for _ in kernels[1:]:
            total = total + self._amp(next(blocks), x, count)
        return total / len(kernels)

    def _amp(self, block: torch.nn.Module, x: Tensor, count: Tensor) -> Tensor:
        assert isinstance(block, AmpBlock)
        for i, dilation in enumerate(block.dilations):
            y = self._active(block.activations[2 * i], x, count)
            y = _conv(block.convs1[i], y, count, block.kernel, dilation, causal=block.causal)
            y = self._active(block.activations[2 * i + 1], y, count)
            x = x + _conv(block.convs2[i], y, count, block.kernel, 1, causal=block.causal)
        return x

    def _active(self, module: torch.nn.Module, x: Tensor, count: Tensor) -> Tensor:
        assert isinstance(module, Activation)
        snake = module.act.alpha, module.act.beta, module.act.logscale
        taps = module.upsample.filter.flatten(), module.downsample.lowpass.filter.flatten()
        return self._filtered(x, count, snake, taps, self._vae.config.act_causal)


def _conv(module: torch.nn.Module, x: Tensor, count: Tensor, kernel: int, dilation: int, *, causal: bool) -> Tensor:
    """One convolution of the decoder, same length."""
    assert isinstance(module, NormedWeight)
    weight, bias = module.both()
    pad = conv_pad(kernel, dilation, causal=causal)
    x = silenced(x, count) if pad[1] else x
    return F.conv1d(F.pad(x, pad), weight, bias, dilation=dilation)


def _raised(stage: DecoderStage, x: Tensor, count: Tensor) -> Tensor:
    """One upsampling convolution, `rate` times as long."""
    weights, (left, _) = stage[0], stage.trim
    assert isinstance(weights, NormedWeight)
    weight, bias = weights.both()
    x = silenced(x, count) if left else x
    out = F.conv_transpose1d(x, weight, bias, stride=stage.rate)
    return out[..., left : left + x.shape[-1] * stage.rate]
