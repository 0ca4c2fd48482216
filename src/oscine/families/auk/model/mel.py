"""Whisper-style log-mel features of 16 kHz audio, valid frames only (AUK spec, 3.1)."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

MEL_RATE, N_FFT, HOP, TOP_HZ = 16_000, 400, 160, 8000.0
MAX_SAMPLES = 300 * MEL_RATE  # the reference's processor cuts here
TAIL = 400  # zeros after the clip: the valid frames become those of a clip padded to the maximum
_LINEAR_HZ, _LINEAR_MEL, _LOG_STEP = 1000.0, 15.0, math.log(6.4) / 27


def mel_frames(num_samples: int) -> int:
    """Valid frames of a clip of `num_samples` at 16 kHz."""
    return -(-min(num_samples, MAX_SAMPLES) // HOP)


@lru_cache(maxsize=4)
def mel_filters(num_bins: int) -> Tensor:
    """Slaney filters float32 [N_FFT / 2 + 1, num_bins] from 0 to 8000 Hz, each of unit area."""
    top = _LINEAR_MEL + math.log(TOP_HZ / _LINEAR_HZ) / _LOG_STEP
    mels = torch.linspace(0, top, num_bins + 2, dtype=torch.float64)
    above = _LINEAR_HZ * torch.exp(_LOG_STEP * (mels - _LINEAR_MEL))
    edges = torch.where(mels < _LINEAR_MEL, mels * _LINEAR_HZ / _LINEAR_MEL, above)
    bins = torch.linspace(0, MEL_RATE / 2, N_FFT // 2 + 1, dtype=torch.float64)
    low, centre, high = edges[:-2], edges[1:-1], edges[2:]
    rising = (bins[:, None] - low) / (centre - low)
    falling = (high - bins[:, None]) / (high - centre)
    filters = torch.minimum(rising, falling).clamp(min=0) * (2.0 / (high - low))
    return filters.float()


def log_mel(audio: Tensor, num_bins: int) -> Tensor:
    """Features float32 [num_bins, frame] of 16 kHz audio [sample]; longer than 300 s is cut."""
    audio = audio[:MAX_SAMPLES].float()
    frames = mel_frames(len(audio))
    padded = torch.nn.functional.pad(audio, (0, TAIL))
    window = torch.hann_window(N_FFT, device=audio.device)
    spectrum = torch.stft(padded, N_FFT, HOP, window=window, center=True, pad_mode="reflect", return_complex=True)
    power = spectrum.abs().square()  # [bin, frame]
    logs = (mel_filters(num_bins).to(audio.device).T @ power).clamp(min=1e-10).log10()
    logs = torch.maximum(logs, logs.max() - 8.0)[:, :frames]
    return (logs + 4.0) / 4.0
