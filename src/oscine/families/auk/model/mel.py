"""Whisper-style log-mel features of 16 kHz audio, valid frames only (AUK spec, 3.1)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from oscine.layers.log_mel import HOP_LENGTH, SAMPLE_RATE, log_mel_frames, power_spectrum

MEL_RATE = SAMPLE_RATE
MAX_SAMPLES = 300 * MEL_RATE  # the reference's processor cuts here
TAIL = 400  # zeros after the clip: the valid frames become those of a clip padded to the maximum


def mel_frames(num_samples: int) -> int:
    """Valid frames of a clip of `num_samples` at 16 kHz."""
    return -(-min(num_samples, MAX_SAMPLES) // HOP_LENGTH)


def log_mel(audio: Tensor, num_bins: int) -> Tensor:
    """Features float32 [num_bins, frame] of 16 kHz audio [sample]; longer than 300 s is cut."""
    audio = audio[:MAX_SAMPLES]
    return log_mel_frames(power_spectrum(F.pad(audio, (0, TAIL))), num_bins)[:, : mel_frames(len(audio))]
