"""Latents to samples, one decoder a job (AUK spec, 3.5)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from oscine.families.auk.codec.vae import AuKVAE
from oscine.types import Decoder, Samples


class AuKDecoder(Decoder):
    """Latents → samples; holds back the frames the decoder looks ahead."""

    def __init__(self, vae: AuKVAE) -> None:
        self._stream = vae.open_decoder()
        self._device, self._width = vae.global_mean.device, vae.config.latent_dim

    def push(self, frames: Sequence[Tensor]) -> Samples:
        """Samples that latents [latent] each have settled."""
        return self._samples(torch.stack(list(frames))[None], final=False)

    def flush(self) -> Samples:
        """The rest, with the edges of the clip's true end."""
        return self._samples(torch.zeros(1, 0, self._width, device=self._device), final=True)

    def _samples(self, latents: Tensor, *, final: bool) -> Samples:
        samples: Samples = self._stream.push(latents, final=final)[0].cpu().numpy()
        return samples
