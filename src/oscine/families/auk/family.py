"""AuK as the engine sees it: a request becomes one job, its latents become samples."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from oscine.errors import InputTooLong, InvalidRequest, UnsupportedFeature
from oscine.families.auk.audio import prepare_audio, whole_frames
from oscine.families.auk.backends.compiled import compiled_transformer
from oscine.families.auk.codec.vae import AuKVAE
from oscine.families.auk.config import AuKConfig
from oscine.families.auk.decoder import AuKDecoder
from oscine.families.auk.duration import (
    MAX_SECONDS,
    MIN_SECONDS,
    check_budget,
    gen_frames,
    instruct_seconds,
    quantized_frames,
    zero_shot_seconds,
)
from oscine.families.auk.model.conditioner import MIN_CLIP_SAMPLES, Conditioner, empty_thinker, to_mel_rate
from oscine.families.auk.model.dit import AuKTransformer
from oscine.families.auk.sampler import FLASH_GRID, Transformer, build_time_grid
from oscine.families.auk.steps import AuKInputs, AuKStepModel
from oscine.families.auk.tasks import (
    DEFAULT_DESCRIPTION,
    LANGUAGES,
    TASKS,
    described_voice_instruction,
    same_voice_instruction,
    task_named,
)
from oscine.families.auk.weights.folder import AuKFolder, open_folder
from oscine.families.auk.weights.offload import TransformerHolder, fits, free_bytes, module_bytes
from oscine.families.auk.weights.rules import load_dit
from oscine.options import supported_options
from oscine.runtime.backends import choose
from oscine.runtime.exact import many_rows
from oscine.seeds import fresh_seed
from oscine.text.clean import speakable
from oscine.types import AudioInput, Capabilities, Job, Plan, Request, Samples, Voice

log = logging.getLogger(__name__)

NAME = "auk"
LICENCE = "MIT; its encoder Qwen2.5-Omni-3B: Qwen research licence, non-commercial"
CHUNK_SIZES = (12, 32, 64)
"""Latent frames of the decoder calls of a job: the decoder looks about 6 frames ahead, so 12 give the first audio."""
ACTIVATIONS = 24
"""Vectors of the model's width that are alive for each token of a batch, counted generously."""


def load(folder: Path, *, name: str, device: torch.device, dtype: torch.dtype, backend: str = "auto") -> AuKFamily:
    """The checkpoint in `folder`: transformer and encoder in `dtype`, VAE in float32. Raises a `CheckpointError`.

    Encoder and transformer stay in memory if both fit, else each is loaded when it is needed and frees the other; then
    the transformer cannot be `compiled`.
    """
    parts = open_folder(folder)
    with torch.device("meta"):
        weights = module_bytes(AuKTransformer.from_config(parts.config.dit), dtype)
        weights += module_bytes(AuKVAE.from_config(parts.config.vae), torch.float32)
    weights += module_bytes(empty_thinker(parts), dtype)
    resident = fits(weights, free_bytes(device))
    return load_parts(parts, name=name, device=device, dtype=dtype, resident=resident, backend=backend)


def load_parts(
    parts: AuKFolder, *, name: str, device: torch.device, dtype: torch.dtype, resident: bool, backend: str = "auto"
) -> AuKFamily:
    """As `load`; `resident` says whether encoder and transformer stay in memory together."""
    with torch.device("meta"):
        dit = AuKTransformer.from_config(parts.config.dit)
        vae = AuKVAE(parts.config.vae, sample_rate=parts.config.sample_rate)
    guidance = parts.config.variant == "base"
    backends: dict[str, Callable[[AuKTransformer], Transformer] | None] = {
        "eager": lambda dit: dit,
        "compiled": partial(compiled_transformer, granularity="regional", guidance=guidance) if resident else None,
    }
    run = choose(backend, backends)  # refused before anything is loaded
    fusion = load_dit(dit, parts.dit, device=device, dtype=dtype)
    rule = dit.row_rule = many_rows(dit.packed_linears())
    vae.load_weights(parts.vae, device=device)

    def reload() -> AuKTransformer:
        with torch.device("meta"):
            again = AuKTransformer.from_config(parts.config.dit)
        load_dit(again, parts.dit, device=device, dtype=dtype)
        again.row_rule = rule
        return again

    holder = TransformerHolder(run(dit), None if resident else reload)
    log.info("%s: %s; licence: %s", name, "all parts resident" if resident else "parts loaded in turn", LICENCE)
    conditioner = Conditioner(parts, fusion, device=device, dtype=dtype, resident=resident, make_room=holder.drop)
    return AuKFamily(parts.config, holder, vae, conditioner, name=name)


class AuKFamily:
    """One loaded AuK checkpoint."""

    def __init__(
        self, config: AuKConfig, holder: TransformerHolder, vae: AuKVAE, conditioner: Conditioner, *, name: str
    ) -> None:
        self._config, self._vae, self._conditioner = config, vae, conditioner
        self._steps = AuKStepModel(holder, vae, conditioner)
        self.capabilities = _capabilities(config, name)

    def step_model(self) -> AuKStepModel:
        """The one step model of this checkpoint."""
        return self._steps

    def open_decoder(self, job: Job) -> AuKDecoder:
        """A stateful decoder for the job's latents."""
        return AuKDecoder(self._vae)

    def text_of(self, job: Job) -> str:
        """Empty: this family answers in audio only."""
        return ""

    def chunk_sizes(self) -> tuple[int, ...]:
        """Frames of a job's decoder calls."""
        return CHUNK_SIZES

    def voices(self) -> Sequence[Voice]:
        """None: a voice is a clip or a description."""
        return ()

    def accepts(self, voice: Voice) -> bool:
        """No stored voice belongs to this model."""
        return False

    def encode_voice(self, name: str, audio: AudioInput, transcript: str) -> Voice:
        """Raises UnsupportedFeature: the clip itself goes with every request."""
        raise UnsupportedFeature("AuK stores no voices; give the clip as ref_audio with each request", param="voice")

    def prepare(self, request: Request, request_id: str) -> Plan:
        """One job. Raises an `InvalidRequest`: nothing is cut to fit the 30 s of the model."""
        self._refuse(request)
        wanted = self._edit(request) if request.task == "edit" else self._speech(request)
        frames = self._frames(request, wanted)
        rate, hop = self._config.sample_rate, self._config.vae.hop_length
        clip_seconds = 0.0 if wanted.clip is None else len(wanted.clip) / rate
        check_budget(clip_seconds, frames * hop / rate)
        seed = fresh_seed() if request.seed is None else request.seed
        guidance = self._config.recipe.cfg if request.cfg_scale is None else request.cfg_scale
        inputs = AuKInputs(
            instruction=wanted.instruction,
            clip=wanted.clip,
            clip_16k=wanted.clip_16k,
            frames=frames,
            grid=self._grid(request),
            guidance=0.0 if self._config.variant == "flash" else guidance,
        )
        tokens = len(
            self._conditioner.input_ids(wanted.instruction, None if wanted.clip_16k is None else len(wanted.clip_16k))
        )
        job = Job(
            id=f"{request_id}.0",
            inputs=inputs,
            seed=seed,
            max_frames=frames,
            memory=self._memory(inputs, tokens),
            text=request.text,
        )
        return Plan(jobs=(job,), seed=seed, spoken_text=(request.text,), input_tokens=tokens)

    def _refuse(self, request: Request) -> None:
        """Raises for fields that no request of this model can have."""
        if request.voice is not None or request.ref_codes is not None:
            field = "voice" if request.voice is not None else "ref_codes"
            raise UnsupportedFeature("AuK has no stored voices; give ref_audio or instructions", param=field)
        idle = ("text", "ref_audio") if request.task == "edit" else ("audio", "edit")
        for name in idle:
            if getattr(request, name):
                raise UnsupportedFeature(f"{request.task} with AuK takes no {name}", param=name)
        if self._config.variant == "flash":
            for name in ("num_steps", "cfg_scale"):
                if getattr(request, name) is not None:
                    raise UnsupportedFeature(
                        f"AuK-Flash runs its own {len(FLASH_GRID) - 1} steps without guidance; leave {name} out, or "
                        "load AuK",
                        param=name,
                    )
        if request.language is not None and request.language not in LANGUAGES:
            raise InvalidRequest(
                f"language must be one of {', '.join(LANGUAGES)}, got {request.language!r}", param="language"
            )

    def _speech(self, request: Request) -> _Wanted:
        text = request.text.strip()
        if not speakable(text):
            raise InvalidRequest(
                f"nothing in the text can be spoken: {text[:60]!r}; give at least one letter or digit", param="text"
            )
        if request.ref_audio is None:
            if request.ref_text is not None:
                raise InvalidRequest("ref_text is the transcript of ref_audio; give ref_audio too", param="ref_text")
            description = request.instructions or DEFAULT_DESCRIPTION
            instruction = described_voice_instruction(text, description, request.language)
            return _Wanted(instruction=instruction, seconds=max(instruct_seconds(text, request.language), MIN_SECONDS))
        if request.instructions is not None:
            raise UnsupportedFeature(
                "the voice is either a clip or a description: give ref_audio or instructions, not both",
                param="instructions",
            )
        clip, clip_16k = self._clip(request.ref_audio, "ref_audio")
        seconds = instruct_seconds(text, request.language)
        if request.ref_text is not None:
            if not speakable(request.ref_text):
                raise InvalidRequest("ref_text holds no words; leave it out if they are not known", param="ref_text")
            seconds = zero_shot_seconds(len(clip) / self._config.sample_rate, text, request.ref_text)
        return _Wanted(
            instruction=same_voice_instruction(text), seconds=max(seconds, MIN_SECONDS), clip=clip, clip_16k=clip_16k
        )

    def _edit(self, request: Request) -> _Wanted:
        if (request.edit is None) == (request.instructions is None):
            raise InvalidRequest("give a task to edit by, or instructions of your own, one of the two", param="task")
        clip, clip_16k = (None, None) if request.audio is None else self._clip(request.audio, "audio")
        source = 0.0 if clip is None else len(clip) / self._config.sample_rate
        task = None if request.edit is None else task_named(request.edit.name)
        if request.ref_text is not None and not (task and task.uses_transcript):
            raise UnsupportedFeature(
                "ref_text, the words of the audio, is for tasks that add, replace or remove words", param="ref_text"
            )
        if request.edit is None or task is None:
            instruction = (request.instructions or "").strip()
            if not instruction:
                raise InvalidRequest("the instruction is empty", param="instructions")
            return _Wanted(instruction=instruction, seconds=source or None, clip=clip, clip_16k=clip_16k)
        if clip is None:
            raise InvalidRequest(f"task {task.name!r} needs audio to edit", param="audio")
        slots = task.checked(request.edit.slots)
        instruction = task.instruction(slots, request.language or "en")
        return _Wanted(
            instruction=instruction, seconds=task.seconds(slots, source, request.ref_text), clip=clip, clip_16k=clip_16k
        )

    def _clip(self, audio: AudioInput, param: str) -> tuple[Samples, Samples]:
        """(at the VAE's rate, whole frames; at 16 kHz). Raises BadAudio or InputTooLong naming the field."""
        seconds = len(audio.samples) / audio.sample_rate
        if seconds >= MAX_SECONDS:
            raise InputTooLong(
                f"the clip is {seconds:.2f} s long; clip and result together may be {MAX_SECONDS:g} s", param=param
            )
        try:
            samples = prepare_audio(audio.samples, audio.sample_rate, self._config.sample_rate)
            clip = whole_frames(samples, self._config.vae.hop_length)[0].numpy()
            clip_16k = to_mel_rate(audio.samples, audio.sample_rate)
        except InvalidRequest as error:
            error.param = param
            raise
        if len(clip_16k) < MIN_CLIP_SAMPLES:
            clip_16k = np.pad(clip_16k, (0, MIN_CLIP_SAMPLES - len(clip_16k)))
        return clip, clip_16k

    def _frames(self, request: Request, wanted: _Wanted) -> int:
        """Latent frames of the result: the caller's duration, else the task's estimate."""
        rate, hop = self._config.sample_rate, self._config.vae.hop_length
        if request.duration_s is not None or wanted.seconds is None:
            return gen_frames(request.duration_s, 0, sample_rate=rate, hop_length=hop)
        return quantized_frames(wanted.seconds, frame_rate=self._config.frame_rate)

    def _grid(self, request: Request) -> tuple[float, ...]:
        if self._config.variant == "flash":
            return FLASH_GRID
        recipe = self._config.recipe
        return tuple(build_time_grid(request.num_steps or recipe.nfe, recipe.sway).tolist())

    def _memory(self, inputs: AuKInputs, tokens: int) -> int:
        """Bytes: activations of one evaluation, the decoder's largest call, latents."""
        config = self._config
        clip_frames = 0 if inputs.clip is None else len(inputs.clip) // config.vae.hop_length
        rows = inputs.branches * (tokens + clip_frames + inputs.frames)
        decoder = CHUNK_SIZES[-1] * config.vae.hop_length * config.vae.upsample_initial_channel
        return 4 * (rows * config.dit.dim * ACTIVATIONS + decoder)


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """What a request comes to: the instruction, the clip at both rates, and the estimate (None: unknown)."""

    instruction: str
    seconds: float | None
    clip: Samples | None = None
    clip_16k: Samples | None = None


def _capabilities(config: AuKConfig, name: str) -> Capabilities:
    defaults: dict[str, object] = {"seed": None, "duration_s": None, "language": None, "instructions": None}
    if config.variant == "base":
        defaults |= {"num_steps": config.recipe.nfe, "cfg_scale": config.recipe.cfg}
    return Capabilities(
        family=NAME,
        model=name,
        tasks=("speech", "edit"),
        languages=LANGUAGES,
        sample_rate=config.sample_rate,
        frame_rate=config.frame_rate,
        voice_cloning=True,
        streaming=True,
        licence=LICENCE,
        options=supported_options(defaults, duration_s=MAX_SECONDS),
        edits=tuple(TASKS.values()),
    )
