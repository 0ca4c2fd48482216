"""Audio in: to mono 16 kHz clips of 30 s and their log-mel frames (AUDEX spec, 5.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oscine.errors import BadAudio, InputTooLong
from oscine.layers.log_mel import SAMPLE_RATE, log_mel_frames, power_spectrum
from oscine.types import Samples

CLIP_SAMPLES = 480_000
MAX_CLIPS = 30
NUM_MEL_BINS = 128


def normalize(wave: npt.NDArray[Any]) -> Samples:
    """Mono float32 [sample] of a wave [sample], [sample, channel] or [channel, sample], channels being at most two.

    int16 is scaled to [-1, 1]; anything louder than 1 is scaled down to 1, nothing is scaled up. Raises BadAudio.
    """
    samples = wave.astype(np.float32) / (32768.0 if wave.dtype == np.int16 else 1.0)
    if samples.ndim == 2 and samples.shape[1] <= 2:
        samples = samples.mean(axis=1)
    elif samples.ndim == 2 and samples.shape[0] <= 2:
        samples = samples.mean(axis=0)
    if samples.ndim != 1:
        raise BadAudio(f"audio must be mono or stereo, got an array of shape {wave.shape}", param="audio")
    if not np.isfinite(samples).all():
        raise BadAudio("audio holds NaN or infinite samples", param="audio")
    peak = float(np.abs(samples).max(initial=0.0))
    return np.asarray(samples / peak if peak > 1.0 else samples, dtype=np.float32)


def num_clips(num_samples: int) -> int:
    """Clips that so many samples at 16 kHz make; no audio is one clip of silence. Raises InputTooLong beyond 30."""
    clips = max(1, -(-num_samples // CLIP_SAMPLES))
    if clips > MAX_CLIPS:
        seconds, limit = num_samples / SAMPLE_RATE, MAX_CLIPS * CLIP_SAMPLES // SAMPLE_RATE
        raise InputTooLong(f"audio may last at most {limit} s, got {seconds:.1f} s; cut it up", param="audio")
    return clips


def cut_clips(samples: Samples) -> npt.NDArray[np.float32]:
    """Consecutive clips [clip, sample] of samples [sample] at 16 kHz, the last one padded with zeros."""
    clips = np.zeros((num_clips(len(samples)), CLIP_SAMPLES), dtype=np.float32)
    clips.reshape(-1)[: len(samples)] = samples
    return clips


def log_mel(clips: npt.NDArray[np.float32]) -> Tensor:
    """Whisper's log-mel frames float32 [clip, bin, 3000] of clips [clip, sample]; the last frame is dropped."""
    return log_mel_frames(power_spectrum(torch.from_numpy(clips))[..., :-1], NUM_MEL_BINS)
