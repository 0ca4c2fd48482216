"""Frames to samples, one decoder a job (AUDEX spec, 6.4 and 6.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from oscine.families.audex.speech_decoder import SpeechDecoder, SpeechSession
from oscine.families.audex.xcodec import XCodecDecoder
from oscine.types import Samples


class SpeechStreamDecoder:
    """Speech codes to samples; a push decodes all that the look-ahead lets it."""

    def __init__(self, decoder: SpeechDecoder) -> None:
        self._session = SpeechSession(decoder)

    @torch.inference_mode()
    def push(self, frames: Sequence[Any]) -> Samples:
        """Samples of the frames that now have their look-ahead."""
        return _joined(self._session.push([int(frame) for frame in frames]))

    @torch.inference_mode()
    def flush(self) -> Samples:
        """Samples of the last frames."""
        return _joined(self._session.flush())


class SoundDecoder:
    """Codec frames to samples, all at the end: the codec is not causal."""

    def __init__(self, decoder: XCodecDecoder) -> None:
        self._decoder = decoder
        self._frames: list[Sequence[int]] = []

    def push(self, frames: Sequence[Any]) -> Samples:
        """Nothing yet."""
        self._frames.extend(frames)
        return np.zeros(0, np.float32)

    @torch.inference_mode()
    def flush(self) -> Samples:
        """The whole clip."""
        return _joined([self._decoder.decode_ids(self._frames)]) if self._frames else np.zeros(0, np.float32)


class SilentDecoder:
    """For text answers: their frames are tokens, which nobody hears."""

    def push(self, frames: Sequence[Any]) -> Samples:
        """Nothing."""
        return np.zeros(0, np.float32)

    def flush(self) -> Samples:
        """Nothing."""
        return np.zeros(0, np.float32)


def _joined(chunks: Sequence[torch.Tensor]) -> Samples:
    if not chunks:
        return np.zeros(0, np.float32)
    samples: Samples = torch.cat(list(chunks)).cpu().numpy()
    return samples
