"""Spectral losses of the codec: what is compared is mel and magnitude spectra at several resolutions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

RESOLUTIONS = ((128, 10), (256, 20), (512, 40), (1024, 80), (2048, 100))  # (window, mel bands); hop = window / 4
FLOOR = 1e-4


def mel_filters(num_bins: int, num_bands: int, sample_rate: int) -> Tensor:
    """Triangular filters [band, bin] evenly spaced on the mel scale from 0 to half the sample rate, unit peak."""
    top = 2595.0 * torch.log10(torch.tensor(1.0 + sample_rate / 2 / 700.0))
    hertz = 700.0 * (10.0 ** (torch.linspace(0.0, float(top), num_bands + 2) / 2595.0) - 1.0)
    bins = torch.linspace(0.0, sample_rate / 2, num_bins)
    rising = (bins - hertz[:-2, None]) / (hertz[1:-1] - hertz[:-2])[:, None]
    falling = (hertz[2:, None] - bins) / (hertz[2:] - hertz[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp_min(0.0)


class SpectralLoss(nn.Module):
    """Log-mel L1 plus log-magnitude L1 and relative magnitude error, averaged over resolutions."""

    def __init__(self, sample_rate: int) -> None:
        super().__init__()
        for window, bands in RESOLUTIONS:
            filters = mel_filters(window // 2 + 1, bands, sample_rate)
            self.register_buffer(f"mel_{window}", filters, persistent=False)
            self.register_buffer(f"hann_{window}", torch.hann_window(window), persistent=False)

    def magnitude(self, audio: Tensor, window: int) -> Tensor:
        """Audio [batch, 1, sample] → magnitudes [batch, bin, frame], scaled so that a full-scale sine is near 1."""
        hann = self.get_buffer(f"hann_{window}")
        spectrum = torch.stft(
            audio[:, 0], window, window // 4, window=hann, center=True, pad_mode="constant", return_complex=True
        )
        power = torch.view_as_real(spectrum).square().sum(-1)
        return (power + 1e-9).sqrt() * (2.0 / window)

    def log_mel(self, audio: Tensor, window: int = 1024) -> Tensor:
        """Natural-log mel spectrum [batch, band, frame]."""
        mel = self.get_buffer(f"mel_{window}") @ self.magnitude(audio, window)
        return mel.clamp_min(FLOOR).log()

    def forward(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Output and target [batch, 1, sample] → (log-mel L1, magnitude loss)."""
        mel_loss, magnitude_loss = output.new_zeros(()), output.new_zeros(())
        for window, _ in RESOLUTIONS:
            a, b = self.magnitude(output, window), self.magnitude(target, window)
            filters = self.get_buffer(f"mel_{window}")
            mel_loss = mel_loss + F.l1_loss(_log(filters @ a), _log(filters @ b))
            error = torch.linalg.vector_norm(a - b) / torch.linalg.vector_norm(b).clamp_min(1e-3)
            magnitude_loss = magnitude_loss + error + 0.5 * F.l1_loss(_log(a), _log(b))
        return mel_loss / len(RESOLUTIONS), magnitude_loss / len(RESOLUTIONS)


def _log(magnitude: Tensor) -> Tensor:
    return magnitude.clamp_min(FLOOR).log()


class WaveLoss(nn.Module):
    """Distance of complex spectra, which tells phases apart, relative to the target; fades above FADE_HZ."""

    WINDOWS = (512, 1024)
    FADE_HZ = 600.0

    def __init__(self, sample_rate: int) -> None:
        super().__init__()
        for window in self.WINDOWS:
            hertz = torch.linspace(0.0, sample_rate / 2, window // 2 + 1)
            weight = 1.0 / (1.0 + (hertz / self.FADE_HZ).square())
            self.register_buffer(f"weight_{window}", weight[None, :, None], persistent=False)
            self.register_buffer(f"hann_{window}", torch.hann_window(window), persistent=False)

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Output and target [batch, 1, sample] → about 1 for silence, 0 for the target itself."""
        losses = []
        for window in self.WINDOWS:
            hann, weight = self.get_buffer(f"hann_{window}"), self.get_buffer(f"weight_{window}")
            a, b = (
                torch.view_as_real(
                    torch.stft(x[:, 0], window, window // 4, window=hann, pad_mode="constant", return_complex=True)
                )
                for x in (output, target)
            )
            error = ((a - b).square().sum(-1) + 1e-9).sqrt()
            size = (b.square().sum(-1) + 1e-9).sqrt()
            losses.append((error * weight).mean() / (size * weight).mean().clamp_min(1e-4))
        return torch.stack(losses).mean()
