"""Audio in: to mono 16 kHz clips of 30 s and their log-mel frames (AUDEX spec, 5.3)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from oscine.errors import BadAudio, InputTooLong
from oscine.types import Samples

SAMPLE_RATE = 16000
CLIP_SAMPLES = 480_000
MAX_CLIPS = 30
FFT_SIZE = 400
HOP_LENGTH = 160
NUM_MEL_BINS = 128
LOG_FLOOR = 1e-10
DYNAMIC_RANGE = 8.0
"""Frames lie at most this far (in powers of ten) below the loudest of their clip."""


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
    """Whisper's log-mel frames float32 [clip, bin, 3000] of clips [clip, sample]."""
    padded = F.pad(torch.from_numpy(clips)[:, None], (FFT_SIZE // 2, FFT_SIZE // 2), mode="reflect")[:, 0]
    spectrum = torch.stft(
        padded, FFT_SIZE, HOP_LENGTH, window=torch.hann_window(FFT_SIZE), center=False, return_complex=True
    )
    power = spectrum[..., :-1].abs().square()  # the last frame is dropped
    logs = (mel_filters() @ power).clamp(min=LOG_FLOOR).log10()
    loudest = logs.amax(dim=(1, 2), keepdim=True)
    return (torch.maximum(logs, loudest - DYNAMIC_RANGE) + 4.0) / 4.0


@lru_cache(maxsize=1)
def mel_filters() -> Tensor:
    """Slaney's triangles float32 [bin, frequency], 0 to 8 kHz, each of unit area."""
    edges = _mel_to_hz(np.linspace(0.0, _hz_to_mel(SAMPLE_RATE / 2), NUM_MEL_BINS + 2))
    frequencies = np.linspace(0.0, SAMPLE_RATE / 2, FFT_SIZE // 2 + 1)
    widths = np.diff(edges)
    slopes = edges[:, None] - frequencies[None, :]
    rising, falling = -slopes[:-2] / widths[:-1, None], slopes[2:] / widths[1:, None]
    filters = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (edges[2:] - edges[:-2]))[:, None]
    return torch.from_numpy(filters.astype(np.float32))


_LINEAR_HZ = 200.0 / 3.0  # hertz a mel, below 1 kHz
_BREAK_HZ = 1000.0
_LOG_STEP = np.log(6.4) / 27.0  # a mel, above


def _hz_to_mel(hz: float) -> float:
    if hz < _BREAK_HZ:
        return hz / _LINEAR_HZ
    return float(_BREAK_HZ / _LINEAR_HZ + np.log(hz / _BREAK_HZ) / _LOG_STEP)


def _mel_to_hz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    break_mel = _BREAK_HZ / _LINEAR_HZ
    above = _BREAK_HZ * np.exp(_LOG_STEP * (mels - break_mel))
    return np.where(mels < break_mel, mels * _LINEAR_HZ, above)
