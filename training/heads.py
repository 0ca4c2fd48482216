"""Heads that exist in training alone: what features in the middle of the codec's decoder should know.

The phase of the voice and the teacher's spectrum are told by linear maps of the features, so the features hold them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.losses import mel_filters

PHASE_BLOCK = 2
"""Decoder blocks before the features from which the phase is read in training."""

PHASE_HOP = 50
"""Samples between two of those features: 24,000 / (20 * 4 * 2 * 3)."""

ENVELOPE_HOP, ENVELOPE_WINDOW, ENVELOPE_BANDS = 300, 900, 60
"""The spectrum that latents, 300 samples apart, must know of; the window is short enough to show single sounds."""


class PhaseHead(nn.Module):
    """Reads the harmonics of the voice off features in the middle of the decoder; exists only in training."""

    def __init__(self, channels: int, harmonics: int) -> None:
        super().__init__()
        self.out = nn.Conv1d(channels, 2 * harmonics, 1)
        self.register_buffer("numbers", torch.arange(1, harmonics + 1)[None, :, None], persistent=False)

    def forward(self, features: Tensor, phase: Tensor, voiced: Tensor) -> Tensor:
        """features [B, channel, time], phase and voiced [B, time] → mean squared error where voiced."""
        angles = 2.0 * torch.pi * phase[:, None] * self.get_buffer("numbers")
        target = torch.cat([angles.cos(), angles.sin()], dim=1)
        error = (self.out(features) - target).square().mean(1)
        return (error * voiced).sum() / voiced.sum().clamp_min(1.0)


class EnvelopeHead(nn.Module):
    """Reads the teacher's log-mel spectrum off features; exists only in training. Time steps are ENVELOPE_HOP apart."""

    def __init__(self, channels: int, stride: int, sample_rate: int) -> None:
        super().__init__()
        self.out = nn.Conv1d(channels, ENVELOPE_BANDS, stride, stride=stride)
        filters = mel_filters(ENVELOPE_WINDOW // 2 + 1, ENVELOPE_BANDS, sample_rate)
        self.register_buffer("filters", filters, persistent=False)
        self.register_buffer("hann", torch.hann_window(ENVELOPE_WINDOW), persistent=False)

    def target(self, audio: Tensor) -> Tensor:
        """Log-mel spectra [B, band, step] centred in steps of audio [B, 1, sample]."""
        side = (ENVELOPE_WINDOW - ENVELOPE_HOP) // 2
        hann = self.get_buffer("hann")
        spectrum = torch.stft(
            F.pad(audio[:, 0], (side, side)),
            ENVELOPE_WINDOW,
            ENVELOPE_HOP,
            window=hann,
            center=False,
            return_complex=True,
        )
        return (self.get_buffer("filters") @ spectrum.abs() * (2.0 / ENVELOPE_WINDOW)).clamp_min(1e-4).log()

    def forward(self, features: Tensor, target: Tensor, skipped: int) -> Tensor:
        """Mean distance of what features [B, channel, time] say from `target`, the first `skipped` steps left out."""
        return F.l1_loss(self.out(features)[..., skipped:], target[..., skipped:])
