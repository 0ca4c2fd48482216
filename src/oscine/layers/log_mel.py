"""Whisper's log-mel frames of 16 kHz audio, as the audio encoders read them."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

SAMPLE_RATE, FFT_SIZE, HOP_LENGTH = 16_000, 400, 160
LOG_FLOOR = 1e-10
DYNAMIC_RANGE = 8.0
"""Frames lie at most this far (in powers of ten) below the loudest."""

_BREAK_HZ, _BREAK_MEL, _LOG_STEP = 1000.0, 15.0, math.log(6.4) / 27  # Slaney's scale: linear below, logarithmic above


@lru_cache(maxsize=4)
def mel_filters(num_bins: int) -> Tensor:
    """Slaney's triangles float32 [bin, frequency], 0 to 8 kHz, each of unit area."""
    top = _BREAK_MEL + math.log(SAMPLE_RATE / 2 / _BREAK_HZ) / _LOG_STEP
    mels = torch.linspace(0, top, num_bins + 2, dtype=torch.float64)
    above = _BREAK_HZ * torch.exp(_LOG_STEP * (mels - _BREAK_MEL))
    edges = torch.where(mels < _BREAK_MEL, mels * _BREAK_HZ / _BREAK_MEL, above)
    frequencies = torch.linspace(0, SAMPLE_RATE / 2, FFT_SIZE // 2 + 1, dtype=torch.float64)
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (frequencies - low) / (centre - low), (high - frequencies) / (high - centre)
    return (torch.minimum(rising, falling).clamp(min=0) * (2.0 / (high - low))).float()


def power_spectrum(audio: Tensor) -> Tensor:
    """Power float32 [..., frequency, 1 + sample // HOP_LENGTH] of audio [..., sample], reflected at both ends."""
    window = torch.hann_window(FFT_SIZE, device=audio.device)
    return torch.stft(audio.float(), FFT_SIZE, HOP_LENGTH, window=window, return_complex=True).abs().square()


def log_mel_frames(power: Tensor, num_bins: int) -> Tensor:
    """Features float32 [..., bin, frame] of power [..., frequency, frame], scaled by the loudest frame of each clip."""
    logs = (mel_filters(num_bins).to(power.device) @ power).clamp(min=LOG_FLOOR).log10()
    loudest = logs.amax(dim=(-2, -1), keepdim=True)
    return (torch.maximum(logs, loudest - DYNAMIC_RANGE) + 4.0) / 4.0
