"""First weights of the codec's decoder: variance kept through the layers, codes that mean what they say, mean gains."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audio8.codec.layers import StreamState
from oscine.families.audio8.codec.spectral import SpectralCodec, StepBlock
from training.coded import Segment
from training.factors import code_features

RESIDUAL_SHARE, SPECTRA_SHARE = 0.3, 0.1


@torch.no_grad()
def initialise(codec: SpectralCodec) -> None:
    """Weights that keep the variance through every layer, and residual branches that already count a little."""
    for module in codec.modules():
        if isinstance(module, nn.Linear):
            module.weight.normal_(0.0, module.in_features**-0.5)
            module.bias.zero_()
    for module in codec.modules():
        if isinstance(module, StepBlock):
            module.taps.normal_(0.0, StepBlock.KERNEL**-0.5)
            module.project.weight.mul_(RESIDUAL_SHARE)
    codec.spectra.weight.mul_(SPECTRA_SHARE)


@torch.no_grad()
def start_codebooks(codec: SpectralCodec, centres: Tensor) -> None:
    """Fills every codebook with what its codes mean, `factors.code_features`."""
    for table in codec.codebooks:
        table.weight.copy_(code_features(centres))


@torch.no_grad()
def start_gains(codec: SpectralCodec, batch: Segment) -> None:
    """Sets the biases of the spectra to the mean gains of pulses where there are any, and of noise where not."""
    config, lookahead = codec.config, codec.config.lookahead
    codes, starts = F.pad(batch.codes, (0, lookahead), value=-1), F.pad(batch.starts, (0, lookahead))
    source = codec.source(codes, StreamState(), starts)
    late = F.pad(batch.audio[:, 0], (lookahead * config.frame_length, config.fft_length - config.hop_length))
    power = [_power(x) for x in (source[:-1], source[-1:], codec.transform(late))]
    pulses, noise, target = power[0], power[1].mean((0, 1)), power[2]
    voiced = pulses.mean(-1) > pulses.mean()
    silent = ~voiced & (target.mean(-1) > target.mean() / 100.0)
    gain = 0.5 * (target[voiced].mean(0) / pulses[voiced].mean(0)).log()
    hiss = 0.5 * (target[silent].mean(0) / noise).log() - 1.0
    bias = torch.stack([gain, torch.zeros_like(gain), hiss])
    codec.spectra.bias.copy_(bias.flatten().repeat(config.spectra_per_step))


def _power(spectra: Tensor) -> Tensor:
    """Squared magnitude [..., bin] of [..., 2 * bin]."""
    real, imaginary = spectra.chunk(2, dim=-1)
    return real.square() + imaginary.square() + 1e-8
