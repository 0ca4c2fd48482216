"""Audio that comes in: any rate and channel layout → mono at the model's rate (AUK spec, section 5)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oscine.audio.resample import resample
from oscine.errors import BadAudio
from oscine.types import Samples

MAX_TRAILING_CHANNELS = 8
SILENCE_PEAK = 1e-4  # -80 dBFS


def prepare_audio(audio: Tensor | npt.ArrayLike, rate: int, to_rate: int) -> Samples:
    """Mono float32 samples at `to_rate`: channels averaged first, then resampled; loudness is left alone.

    Takes [samples], [channels, samples], and [samples, channels] with at most 8 channels. Raises BadAudio for audio
    that is empty, not finite, silent or of more than two dimensions, and for an impossible rate.
    """
    array = np.asarray(audio.detach().cpu() if isinstance(audio, Tensor) else audio, dtype=np.float32)
    if array.ndim not in (1, 2):
        raise BadAudio(f"audio must have one or two dimensions, got shape {list(array.shape)}", param="audio")
    if not array.size:
        raise BadAudio("the audio is empty", param="audio")
    if array.ndim == 2:
        trailing = array.shape[1] <= MAX_TRAILING_CHANNELS < array.shape[0]
        array = array.mean(axis=1 if trailing else 0, dtype=np.float32)
    if not np.isfinite(array).all():
        raise BadAudio("the audio holds NaN or infinite samples", param="audio")
    if float(np.abs(array).max()) < SILENCE_PEAK:
        raise BadAudio("the audio is silent (its peak is below -80 dBFS)", param="audio")
    try:
        return resample(array, rate, to_rate)
    except ValueError as error:
        raise BadAudio(str(error), param="audio") from error


def whole_frames(samples: Samples, hop: int) -> Tensor:
    """[1, sample] cut to whole latent frames. Raises BadAudio for less than one frame."""
    count = len(samples) // hop * hop
    if not count:
        raise BadAudio(f"the audio is shorter than one frame ({len(samples)} of {hop} samples)", param="audio")
    return torch.from_numpy(np.ascontiguousarray(samples[:count]))[None]
