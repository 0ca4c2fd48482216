"""Frames to samples, one decoder a job, with the codec's state of its stream (AUDIO8 spec, 6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from oscine.families.audio8.codec import Codec
from oscine.types import Samples, SideDecoder


class Audio8Decoder(SideDecoder):
    """Frames of codes → samples, with the codec's state of one stream; the codec looks nowhere ahead."""

    def __init__(self, codec: Codec, device: torch.device) -> None:
        self._codec, self._device = codec, device
        self.works_beside = device.type == "cpu"
        self.warm_up = codec.config.warm_up_frames * codec.config.frame_length
        self._state = codec.open_stream()

    @torch.inference_mode()
    def push(self, frames: Sequence[torch.Tensor]) -> Samples:
        """Samples of frames int64 [codebook] each: `frame_length` samples a frame."""
        codes = torch.stack(list(frames), dim=1)[None].to(self._device)
        samples: Samples = self._codec.decode_chunk(codes, self._state)[0, 0].float().cpu().numpy()
        return samples

    def flush(self) -> Samples:
        """Nothing: every frame is decoded in full when it comes."""
        return np.zeros(0, np.float32)


@torch.inference_mode()
def stream_bytes(codec: Codec, device: torch.device) -> int:
    """Bytes of a decoder's full state: what one frame leaves, with all attention windows filled."""
    state, config = codec.open_stream(), codec.config
    codec.decode_chunk(torch.zeros(1, config.num_codebooks, 1, dtype=torch.long, device=device), state)
    position = 2 * config.post_n_layer * config.post_n_local_heads * config.transformer_head_dim * 4
    return state.num_bytes + position * config.quantizer_window
