"""`AuKPipeline`: condition and clip → one waveform, without an engine: the reference path (AUK spec, 6 and 7)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oscine.errors import InvalidRequest
from oscine.families.auk.audio import prepare_audio, whole_frames
from oscine.families.auk.backends.compiled import (
    MAX_GRAPHS,
    CompiledDecoder,
    CompiledTransformer,
    Granularity,
    check_granularity,
    check_max_graphs,
    compiled_transformer,
)
from oscine.families.auk.backends.graphs import captured
from oscine.families.auk.codec.vae import AuKVAE
from oscine.families.auk.config import AuKConfig
from oscine.families.auk.duration import check_budget, gen_frames
from oscine.families.auk.model.dit import AuKTransformer
from oscine.families.auk.sampler import FLASH_GRID, Transformer, check_finite, sample_latents
from oscine.families.auk.steps import REFERENCE_CACHE
from oscine.families.auk.weights.folder import open_folder
from oscine.families.auk.weights.rules import Fusion, load_dit
from oscine.runtime.store import RecentStore, content_key
from oscine.seeds import MAX_SEED, fresh_seed

log = logging.getLogger(__name__)

POSTERIOR_SEED_OFFSET = 0x5EED0A0C
OUTPUT_TYPES = ("audio", "latent")


@dataclass(frozen=True, kw_only=True)
class AuKRequest:
    """One waveform to generate. `condition` is the fused condition [token, hidden] or [1, token, hidden].

    `audio` (see `prepare_audio` for its shapes) at `sample_rate` Hz is the voice or the clip to edit. `gen_seconds`
    None: as long as the clip. `generator` draws the noise, else a CPU generator seeded with `seed`. `vae_sample`
    draws the clip's latents from the posterior instead of taking the mean. `num_steps`, `guidance` None and `sway`
    "recipe" are the checkpoint's own; `sway` None is none.
    """

    condition: Tensor
    audio: Tensor | npt.NDArray[np.float32] | None = None
    sample_rate: int = 24000
    gen_seconds: float | None = None
    num_steps: int | None = None
    guidance: float | None = None
    sway: float | Literal["recipe"] | None = "recipe"
    t_grid: Sequence[float] | None = None
    vae_sample: bool = False
    seed: int | None = None
    generator: torch.Generator | None = None
    output_type: Literal["audio", "latent"] = "audio"


@dataclass(frozen=True, kw_only=True)
class AuKOutput:
    """What came of a request: float32 mono `audio` [sample], or `latents` [1, frame, latent], and the seed used."""

    sample_rate: int
    seed: int | None
    audio: Tensor | None = None
    latents: Tensor | None = None


class AuKPipeline:
    """DiT and VAE of one checkpoint: from its parts, from a folder, or from a vLLM-Omni stage's `od_config`.

    Of that are read `model` (the folder), `dtype`, `enforce_eager`, `diffusion_compile_granularity` and, in
    `model_config`, `auk_ref_cache_size` and `max_dit_graphs`; `prefix` means nothing. Calls must not overlap.
    """

    audio_sample_rate = 24000

    def __init__(
        self,
        config: AuKConfig | None = None,
        dit: AuKTransformer | None = None,
        vae: AuKVAE | None = None,
        fusion: Fusion | None = None,
        *,
        od_config: Any = None,
        prefix: str = "",
        reference_cache: int = REFERENCE_CACHE,
        granularity: Granularity = "off",
        max_graphs: int = MAX_GRAPHS,
    ) -> None:
        if od_config is not None:
            settings = getattr(od_config, "model_config", None) or {}
            reference_cache = settings.get("auk_ref_cache_size", reference_cache)
            max_graphs = settings.get("max_dit_graphs", max_graphs)
            if not getattr(od_config, "enforce_eager", True):
                granularity = getattr(od_config, "diffusion_compile_granularity", "regional")
            config, dit, vae, fusion = _parts_of(od_config)
        if config is None or dit is None or vae is None or fusion is None:
            raise InvalidRequest("AuKPipeline needs the parts of a checkpoint, or an od_config with its folder")
        check_granularity(granularity)
        self.config, self.dit, self.vae, self.fusion = config, dit, vae, fusion
        self.granularity, self._max_graphs = granularity, check_max_graphs(max_graphs)
        self._compiled: tuple[CompiledTransformer, CompiledDecoder] | None = None
        self._references: RecentStore[Tensor] = RecentStore(_check_cache_size(reference_cache))
        self._told = False

    @classmethod
    def from_folder(
        cls,
        path: str | Path,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        reference_cache: int = REFERENCE_CACHE,
        granularity: Granularity = "off",
        max_graphs: int = MAX_GRAPHS,
    ) -> AuKPipeline:
        """Loads DiT (in `dtype`) and VAE (float32) of a folder in any layout. Raises a CheckpointError."""
        parts = _loaded(Path(path), device, dtype)
        return cls(*parts, reference_cache=reference_cache, granularity=granularity, max_graphs=max_graphs)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """The names of all weights, which construction has read; `weights` from elsewhere are ignored and logged."""
        stray = [name for name, _ in weights]
        if stray:
            log.warning("%d weights that did not come from the checkpoint are ignored, first %s", len(stray), stray[:3])
        modules = (("dit", self.dit), ("vae", self.vae))
        return {f"{prefix}.{name}" for prefix, module in modules for name, _ in module.named_parameters()}

    @torch.inference_mode()
    def forward(self, req: AuKRequest | Sequence[AuKRequest]) -> list[AuKOutput]:
        """Generates one waveform; a list must hold exactly one request.

        Raises InvalidRequest (BadAudio, InputTooLong) for what cannot be served, NonFiniteOutput for NaN or infinite
        latents or samples. A Flash checkpoint keeps its own steps, grid and guidance and says so once.
        """
        request = _seeded(_the_one(req))
        if request.output_type not in OUTPUT_TYPES:
            raise InvalidRequest(f"output_type must be one of {', '.join(OUTPUT_TYPES)}, got {request.output_type!r}")
        condition = self._condition(request.condition)
        reference = self.reference_latents(request)
        ref_frames = 0 if reference is None else reference.shape[1]
        rate, hop = self.config.sample_rate, self.config.vae.hop_length
        frames = gen_frames(request.gen_seconds, ref_frames, sample_rate=rate, hop_length=hop)
        check_budget(ref_frames * hop / rate, frames * hop / rate)
        dit, decoder = self._compiled or (self.dit, self.vae)
        latents = self._latents(dit, request, condition, reference, frames)
        check_finite(latents, "latents")
        if request.output_type == "latent":
            return [AuKOutput(sample_rate=rate, seed=request.seed, latents=latents)]
        audio = decoder.decode(latents)[0]
        check_finite(audio, "samples")
        return [AuKOutput(sample_rate=rate, seed=request.seed, audio=audio)]

    __call__ = forward

    def reference_latents(self, request: AuKRequest) -> Tensor | None:
        """Normalised latents [1, frame, latent] of the request's clip, cut to whole frames; means are cached."""
        if request.audio is None:
            return None
        samples = prepare_audio(request.audio, request.sample_rate, self.config.sample_rate)
        wav = whole_frames(samples, self.config.vae.hop_length).to(self.vae.global_mean.device)
        check_budget(wav.shape[1] / self.config.sample_rate, 0.0)
        if not request.vae_sample:
            return self._references.get_or_make(content_key(wav[0].cpu().numpy()), lambda: self.vae.encode(wav))
        seed = _posterior_seed(request)
        return self.vae.encode(wav, sample=True, generator=torch.Generator().manual_seed(seed))

    def setup_compile(self) -> None:
        """Compiles DiT and VAE decoder with inductor: each block (`regional`) or the whole step (`full`).

        Does nothing when `off` or done already. Common shapes are run once, and on CUDA captured as graphs, the VAE's
        buckets after them, so that their requests need not wait for it. Outputs equal the eager ones within rounding.
        """
        if self.granularity == "off" or self._compiled is not None:
            return
        guidance = self.config.variant == "base"
        steps = compiled_transformer(self.dit, self.granularity, guidance=guidance, max_graphs=self._max_graphs)
        capture = captured if self.vae.global_mean.device.type == "cuda" else None
        decoder = CompiledDecoder(self.vae, self.granularity, capture=capture)
        decoder.warm_up()
        self._compiled = steps, decoder

    def _latents(
        self, dit: Transformer, request: AuKRequest, condition: Tensor, reference: Tensor | None, frames: int
    ) -> Tensor:
        flash, recipe = self.config.variant == "flash", self.config.recipe
        if flash:
            self._pin_recipe(request)
        guidance = recipe.cfg if request.guidance is None else request.guidance
        sway = recipe.sway if request.sway == "recipe" else request.sway
        if isinstance(sway, str):
            raise InvalidRequest(f"sway must be a number, None or 'recipe', got {sway!r}")
        return sample_latents(
            dit,
            text=condition,
            c_mask=None,
            ref=reference,
            ref_mask=None,
            gen_frames=frames,
            nfe=recipe.nfe if request.num_steps is None else request.num_steps,
            cfg_strength=0.0 if flash else guidance,
            sway_sampling_coef=sway,
            t_grid=FLASH_GRID if flash else request.t_grid,
            seed=request.seed,
            generator=request.generator,
        )

    def _condition(self, condition: Tensor) -> Tensor:
        text = condition[None] if condition.dim() == 2 else condition
        width = self.dit.text_hidden_dim
        if text.dim() != 3 or text.shape[0] != 1 or text.shape[2] != width or not text.shape[1]:
            raise InvalidRequest(f"the condition must be [tokens, {width}], got {list(condition.shape)}")
        return text

    def _pin_recipe(self, request: AuKRequest) -> None:
        asked = (request.num_steps, request.guidance, request.sway, request.t_grid)
        if asked != (None, None, "recipe", None) and not self._told:
            self._told = True
            log.warning("AuK-Flash runs its own %d steps without guidance; other settings ignored", len(FLASH_GRID) - 1)


def get_auk_post_process_func(od_config: Any) -> Callable[..., Tensor | npt.NDArray[np.float32]]:
    """(audio, output_type "np") → the audio as a float32 array, or as the tensor it is for "pt" and "latent"."""

    def post_process(audio: Tensor, output_type: str = "np") -> Tensor | npt.NDArray[np.float32]:
        return audio if output_type in ("pt", "latent") else audio.cpu().float().numpy()

    return post_process


def _parts_of(od_config: Any) -> tuple[AuKConfig, AuKTransformer, AuKVAE, Fusion]:
    """The parts of a stage's checkpoint, on the device there is. Raises InvalidRequest, or a CheckpointError."""
    folder = getattr(od_config, "model", None)
    if not folder or not Path(folder).is_dir():
        raise InvalidRequest(f"od_config.model must be the folder of a checkpoint, got {folder!r}", param="model")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return _loaded(Path(folder), device, getattr(od_config, "dtype", None) or torch.bfloat16)


def _loaded(
    path: Path, device: torch.device | str, dtype: torch.dtype
) -> tuple[AuKConfig, AuKTransformer, AuKVAE, Fusion]:
    parts = open_folder(path)
    with torch.device("meta"):
        dit = AuKTransformer.from_config(parts.config.dit)
        vae = AuKVAE(parts.config.vae, sample_rate=parts.config.sample_rate)
    fusion = load_dit(dit, parts.dit, device=device, dtype=dtype)
    vae.load_weights(parts.vae, device=device)
    return parts.config, dit, vae, fusion


def _the_one(req: AuKRequest | Sequence[AuKRequest]) -> AuKRequest:
    if isinstance(req, AuKRequest):
        return req
    if len(req) != 1:
        raise InvalidRequest(f"the pipeline takes exactly one request, got {len(req)}")
    return req[0]


def _seeded(request: AuKRequest) -> AuKRequest:
    """The request with a seed, a fresh one unless it brings a seed or a generator. Raises InvalidRequest."""
    if request.seed is None:
        return request if request.generator is not None else replace(request, seed=fresh_seed())
    if type(request.seed) is not int or not 0 <= request.seed <= MAX_SEED:
        raise InvalidRequest(f"seed must be a whole number from 0 to {MAX_SEED}, got {request.seed!r}", param="seed")
    return request


def _posterior_seed(request: AuKRequest) -> int:
    """The seed of the clip's posterior draw: it follows from the request's seed, or from its generator's."""
    seed = request.seed
    if seed is None:
        seed = fresh_seed() if request.generator is None else request.generator.initial_seed()
    return (seed + POSTERIOR_SEED_OFFSET) % 2**63


def _check_cache_size(size: int) -> int:
    """`size` as it is. Raises InvalidRequest unless it is a whole number, 0 or more."""
    if type(size) is not int or size < 0:
        raise InvalidRequest(f"a cache size must be a whole number, 0 or more, got {size!r}")
    return size
