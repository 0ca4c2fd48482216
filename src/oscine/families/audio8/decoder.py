"""Frames to samples, one decoder a job, with the codec's state of its stream (AUDIO8 spec, 6)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from oscine.families.audio8.codec.kinds import AnyCodec
from oscine.types import Decoder, Samples


class Audio8Decoder(Decoder):
    """Frames of codes → samples, with the codec's state of one stream."""

    def __init__(self, codec: AnyCodec, device: torch.device) -> None:
        self._codec, self._device = codec, device
        self.runs_in_background = device.type == "cpu"
        self.warm_up = codec.config.warm_up_frames * codec.config.frame_length
        self._state = codec.open_stream()

    @torch.inference_mode()
    def push(self, frames: Sequence[torch.Tensor]) -> Samples:
        """Samples settled by frames int64 [codebook] each: `frame_length` samples a frame, less what is held back."""
        codes = torch.stack(list(frames), dim=1)[None].to(self._device)
        samples: Samples = self._codec.decode_chunk(codes, self._state)[0, 0].float().cpu().numpy()
        return samples

    @torch.inference_mode()
    def flush(self) -> Samples:
        """The samples of the last frames, where the codec looks ahead."""
        samples: Samples = self._codec.flush(self._state)[0, 0].float().cpu().numpy()
        return samples
