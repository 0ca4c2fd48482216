"""Judges of realism: small networks on the wave folded at several periods, and on complex spectrograms."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

PERIODS = (2, 3, 5, 7, 11)  # samples
PERIOD_WIDTHS = (16, 64, 128, 256)
WINDOWS = (1024, 512, 256)  # samples; hop = window / 4
SPECTROGRAM_WIDTH = 16
SLOPE = 0.2


class PeriodDiscriminator(nn.Module):
    """The wave as rows of `period` samples → score map; convolutions run over rows only (HiFi-GAN)."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self.period = period
        widths = (1, *PERIOD_WIDTHS)
        self.layers = nn.ModuleList(
            weight_norm(nn.Conv2d(cin, cout, (5, 1), stride=(3, 1), padding=(2, 0)))
            for cin, cout in itertools.pairwise(widths)
        )
        self.out = weight_norm(nn.Conv2d(widths[-1], 1, (3, 1), padding=(1, 0)))

    def forward(self, audio: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Audio [batch, 1, sample], speech near unit level → (score map, activations of each layer)."""
        padded = F.pad(audio, (0, -audio.shape[-1] % self.period))
        x = padded.unflatten(-1, (-1, self.period)).contiguous(memory_format=torch.channels_last)
        return _scored(x, self.layers, self.out)


class SpectrogramDiscriminator(nn.Module):
    """One resolution: compressed real and imaginary parts → score map; strides run over frequency only."""

    def __init__(self, window: int, channels: int) -> None:
        super().__init__()
        self.window = window
        self.register_buffer("hann", torch.hann_window(window), persistent=False)
        first = nn.Conv2d(2, channels, (3, 7), stride=(1, 2), padding=(1, 3))
        rest = (
            nn.Conv2d(channels, channels, (3, 7), stride=(1, 2), dilation=(dilation, 1), padding=(dilation, 3))
            for dilation in (1, 2, 4)
        )
        self.layers = nn.ModuleList(weight_norm(layer) for layer in (first, *rest))
        self.out = weight_norm(nn.Conv2d(channels, 1, 3, padding=1))

    def forward(self, audio: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Audio [batch, 1, sample], speech near unit level → (score map, activations of each layer)."""
        spectrum = torch.stft(
            audio[:, 0], self.window, self.window // 4, window=self.hann, return_complex=True, pad_mode="constant"
        )
        parts = torch.view_as_real(spectrum).permute(0, 3, 2, 1) / self.window**0.5  # [batch, 2, frame, bin]
        x = parts * (parts.square().sum(1, keepdim=True) + 1e-4).pow(-0.25)
        return _scored(x.contiguous(memory_format=torch.channels_last), self.layers, self.out)


def _scored(x: Tensor, layers: nn.ModuleList, out: nn.Module) -> tuple[Tensor, list[Tensor]]:
    features = []
    for layer in layers:
        x = F.leaky_relu(layer(x), SLOPE)
        features.append(x)
    return out(x), features


class Discriminator(nn.Module):
    """All periods and resolutions."""

    def __init__(self, level: float = 1.0) -> None:
        super().__init__()
        self.level = level
        waves = [PeriodDiscriminator(period) for period in PERIODS]
        spectra = [SpectrogramDiscriminator(window, SPECTROGRAM_WIDTH) for window in WINDOWS]
        self.parts = nn.ModuleList([*waves, *spectra])
        initialise(self)

    def forward(self, audio: Tensor) -> list[tuple[Tensor, list[Tensor]]]:
        """Audio [batch, 1, sample] whose speech has root mean square `level` → each part's scores and features."""
        return [part(audio / self.level) for part in self.parts]


@torch.no_grad()
def initialise(discriminator: nn.Module) -> None:
    """Weights that keep the variance through every layer.

    With the library's defaults the scores hardly depend on the input: 700 steps later real and fake speech still had
    the same score, 0.5; with these weights they part within a hundred.
    """
    for module in discriminator.modules():
        if isinstance(module, nn.Conv2d):
            fan_in = module.weight[0].numel()
            module.weight = torch.randn_like(module.weight) * (2.0 / (1.0 + SLOPE**2) / fan_in) ** 0.5
            if module.bias is not None:
                module.bias.zero_()


def discriminator_loss(real: list[tuple[Tensor, list[Tensor]]], fake: list[tuple[Tensor, list[Tensor]]]) -> Tensor:
    """Squared distance of real scores from 1 and of fake ones from 0, mean over parts."""
    losses = [(1 - r).square().mean() + f.square().mean() for (r, _), (f, _) in zip(real, fake, strict=True)]
    return torch.stack(losses).mean()


def generator_losses(
    real: list[tuple[Tensor, list[Tensor]]], fake: list[tuple[Tensor, list[Tensor]]]
) -> tuple[Tensor, Tensor]:
    """(Squared distance of fake scores from 1, relative L1 between real and fake features), means over parts."""
    score = torch.stack([(1 - f).square().mean() for f, _ in fake]).mean()
    pairs = [(r.detach(), f) for (_, rs), (_, fs) in zip(real, fake, strict=True) for r, f in zip(rs, fs, strict=True)]
    match = torch.stack([F.l1_loss(f, r) / r.abs().mean().clamp_min(1e-3) for r, f in pairs]).mean()
    return score, match
