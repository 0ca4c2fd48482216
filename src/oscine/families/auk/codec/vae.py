"""The VAE: 24 kHz audio ↔ normalised latents at 50 frames a second, always float32 (AUK spec, 3.4 and 3.5)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from oscine.checkpoint.config import field_names
from oscine.checkpoint.weights import load_strict, read_tensors
from oscine.errors import InvalidRequest
from oscine.families.auk.codec.filters import Activation, FIRFilter
from oscine.families.auk.codec.layers import (
    AmpBlock,
    AudioEncoder,
    Chain,
    DecoderStage,
    NormedWeight,
    conv,
    geometry,
    mean_of,
    open_conv,
)
from oscine.families.auk.codec.streams import Stream
from oscine.families.auk.config import RELEASED_VAE, VAEConfig

FLOW_PREFIX = "flow."  # the training-only normalising flow
EDGE_KERNEL = 7  # conv_pre and conv_post
Window = tuple[int, int, int, int]
"""(first frame, frames, first frame kept, end of the frames kept)."""


class AuKVAE(nn.Module):
    """Encoder and decoder, to be filled with `load_weights`. `changes` are fields of `VAEConfig` other than `config`'s.

    `sample_rate` in Hz and `hop_size` in samples say what a latent frame of `latent_dim` values stands for. Raises
    ConfigMismatch, which is a ValueError, as `VAEConfig.from_dict`, and TypeError for a field that is none.
    """

    global_mean: Tensor
    global_log_std: Tensor

    def __init__(self, config: VAEConfig = RELEASED_VAE, *, sample_rate: int = 24000, **changes: Any) -> None:
        super().__init__()
        if changes:
            config = VAEConfig.from_dict(asdict(replace(config, **changes)))
        self.config = config
        self.sample_rate, self.hop_size, self.latent_dim = sample_rate, config.hop_length, config.latent_dim
        width = config.upsample_initial_channel
        kernels, dilations = config.resblock_kernel_sizes, config.resblock_dilation_sizes
        self.register_buffer("global_mean", torch.zeros(config.latent_dim))
        self.register_buffer("global_log_std", torch.ones(config.latent_dim))  # a variance, whatever its name says
        self.audio_encoder = AudioEncoder(config)
        self.conv_pre = conv(config.latent_dim, width, EDGE_KERNEL)
        self.ups = nn.ModuleList(
            DecoderStage(width >> i, rate, kernel, causal=config.causal)
            for i, (rate, kernel) in enumerate(zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True))
        )
        self.resblocks = nn.ModuleList(
            AmpBlock(width >> (i + 1), kernel, dilations[j], config)
            for i in range(len(self.ups))
            for j, kernel in enumerate(kernels)
        )
        last = width >> len(self.ups)
        self.activation_post = Activation(last, logscale=config.snake_logscale, causal=config.act_causal)
        self.conv_post = conv(last, 1, EDGE_KERNEL, bias=False)
        self.eval().requires_grad_(False)

    @classmethod
    def from_config(cls, cfg: Mapping[str, Any] | VAEConfig) -> AuKVAE:
        """A module with empty weights from `model_init_kwargs`: keys that are absent are as released, unknown ignored.

        Raises ConfigMismatch, which is a ValueError, for `use_vae: false` or a kernel that a causal decoder cannot
        have. Build it under `torch.device("meta")` to own no memory before `load_weights`.
        """
        if isinstance(cfg, VAEConfig):
            return cls(cfg)
        known = field_names(VAEConfig) | {"sample_rate"}
        return cls(**{key: value for key, value in cfg.items() if key in known})

    def load_weights(
        self, path: str | Path, *, device: torch.device | str | None = None, fold_weight_norm: bool = True
    ) -> tuple[list[str], list[str]]:
        """Fills the module from `vae.safetensors`; ([], the `flow.*` keys that were left out).

        `device` None is where the module lives (the CPU for one on the meta device). Weight norm is folded on that
        device. Raises WeightMismatch, which is a ValueError, naming missing, stray and misshaped keys, or MissingFile.
        """
        target = torch.device(device) if device is not None else self.global_mean.device
        if target.type == "meta":
            target = torch.device("cpu")
        for module in self._normed():
            module.unfold()
        ignored: list[str] = []

        def skip(key: str) -> bool:
            if key.startswith(FLOW_PREFIX):
                ignored.append(key)
            return key.startswith(FLOW_PREFIX)

        load_strict(self, read_tensors(Path(path), skip=skip), dtype=torch.float32, device=target, source=str(path))
        if fold_weight_norm:
            self.remove_weight_norm()
        return [], ignored

    def remove_weight_norm(self) -> None:
        """Folds every weight-norm pair into one weight, where the module lives; idempotent."""
        for module in self._normed():
            module.fold()

    def set_decode_fast_paths(self, *, cached_filters: bool) -> None:
        """Whether FIR taps are kept expanded to one row a channel (the default); the output is the same.

        Set it before anything captures or compiles the decoder.
        """
        for module in self.modules():
            if isinstance(module, FIRFilter):
                module.cached = cached_filters

    @torch.inference_mode()
    def encode(self, wav: Tensor, *, sample: bool = False, generator: torch.Generator | None = None) -> Tensor:
        """Normalised latents float32 [1, frame, latent] of wav [1, sample]: the mean, or a draw from the posterior.

        A draw uses `generator` (on its own device), in the reference's shape [1, latent, frame]. Raises InvalidRequest,
        a ValueError, for another shape.
        """
        if wav.dim() != 2 or wav.shape[0] != 1 or wav.shape[1] < 1:
            raise InvalidRequest(f"audio to encode must be [1, samples], got {list(wav.shape)}")
        with torch.autocast(wav.device.type, enabled=False):
            mean, log_std = self.posterior(wav)
            if sample:
                where = generator.device if generator is not None else mean.device
                noise = torch.randn(mean.shape, generator=generator, device=where).to(mean.device)
                mean = mean + noise * log_std.exp()
            return (mean.transpose(1, 2).contiguous() - self.global_mean) / self.global_log_std.sqrt()

    def posterior(self, wav: Tensor) -> tuple[Tensor, Tensor]:
        """(mean, logarithm of the standard deviation), raw, each [1, latent, frame], of wav [1, sample]."""
        mean, log_std = self.audio_encoder(wav.float()[:, None]).chunk(2, dim=1)
        return mean, log_std

    @torch.inference_mode()
    def decode(self, latents: Tensor) -> Tensor:
        """Audio float32 [batch, frame * hop] in [-1, 1] of normalised latents [batch, frame, latent].

        Raises InvalidRequest, a ValueError, for another rank or width.
        """
        return self.open_decoder().push(latents, final=True)

    def open_decoder(self) -> DecodeStream:
        """A decoder to push latents into as they come; the pieces together equal `decode` of the whole."""
        return DecodeStream(self)

    def decode_context_frames(self) -> tuple[int, int]:
        """(left, right) latent frames a window must add to be exact in its middle."""
        left, right = geometry(self.config)
        return math.ceil(left), math.ceil(right)

    @torch.inference_mode()
    def decode_windows(self, latents: Tensor, tile: int, sizes: Sequence[int] = ()) -> Tensor:
        """As `decode`, in windows of at most `tile` frames that overlap by the context; equal within rounding.

        `sizes` are the window lengths allowed for the end of a clip. Raises InvalidRequest for a tile too short.
        """
        self.check_latents(latents)
        hop, parts = self.config.hop_length, []
        for start, frames, first, end in plan_tiles(latents.shape[1], tile, *self.decode_context_frames(), sizes):
            wav = self.decode(latents[:, start : start + frames])
            parts.append(wav[:, (first - start) * hop : (end - start) * hop])
        return torch.cat(parts, dim=1)

    def decoder_streams(self) -> Stream:
        """Fresh streams of the whole decoder, [batch, latent, frame] → [batch, 1, sample], not clamped."""
        config, count = self.config, len(self.config.resblock_kernel_sizes)
        chain: list[Stream] = [open_conv(self.conv_pre, EDGE_KERNEL, 1, causal=False)]
        for i, stage in enumerate(self.ups):
            blocks = [block for block in self.resblocks[i * count : (i + 1) * count] if isinstance(block, AmpBlock)]
            assert isinstance(stage, DecoderStage)
            chain += [stage.open(), mean_of(blocks)]
        chain += [self.activation_post.open(), open_conv(self.conv_post, EDGE_KERNEL, 1, causal=config.causal)]
        return Chain(chain)

    def check_latents(self, latents: Tensor) -> None:
        """Raises InvalidRequest for latents of another rank or width."""
        if latents.dim() != 3 or latents.shape[2] != self.config.latent_dim:
            raise InvalidRequest(
                f"latents must be [batch, frames, {self.config.latent_dim}], got {list(latents.shape)}"
            )

    def _normed(self) -> list[NormedWeight]:
        return [module for module in self.modules() if isinstance(module, NormedWeight)]


class DecodeStream:
    """The decoder with state: holds back the frames it looks ahead, and nothing else."""

    def __init__(self, vae: AuKVAE) -> None:
        self._vae = vae
        self._streams = vae.decoder_streams()

    @torch.inference_mode()
    def push(self, latents: Tensor, *, final: bool = False) -> Tensor:
        """Audio [batch, sample], settled by adding latents [batch, frame, latent]; `final` settles the rest."""
        self._vae.check_latents(latents)
        with torch.autocast(latents.device.type, enabled=False):
            raw = latents.float() * self._vae.global_log_std.sqrt() + self._vae.global_mean
            return self._streams.push(raw.transpose(1, 2), final)[:, 0].clamp(-1.0, 1.0)


def plan_tiles(frames: int, tile: int, left: int, right: int, sizes: Collection[int] = ()) -> list[Window]:
    """Windows that decode `frames` exactly with `left` and `right` frames of context (AUK spec, 3.5).

    One window when everything fits; the last is pinned to the clip's end and takes the smallest of `sizes` (else
    `tile`) that holds its context. Raises InvalidRequest, a ValueError, when the tile does not exceed the context.
    """
    if frames <= tile:
        return [(0, frames, 0, frames)]
    if tile <= left + right:
        raise InvalidRequest(f"a window of {tile} frames must exceed its context of {left} + {right}")
    windows: list[Window] = [(0, tile, 0, tile - right)]
    while True:
        emit = windows[-1][3]
        start = emit - left
        if start + tile >= frames:
            size = min((size for size in sizes if frames - start <= size <= tile), default=tile)
            return [*windows, (frames - size, size, emit, frames)]
        windows.append((start, tile, emit, start + tile - right))
