"""Instruction and clip → fused condition; the encoder is held in memory or loaded for each use (AUK spec, 3.1)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from oscine.errors import WeightMismatch
from oscine.families.auk.audio import prepare_audio
from oscine.families.auk.model.audio_tower import audio_tokens
from oscine.families.auk.model.mel import MEL_RATE, log_mel, mel_frames
from oscine.families.auk.model.thinker import Thinker
from oscine.families.auk.prompt import PromptTokenizer
from oscine.families.auk.weights.folder import AuKFolder
from oscine.families.auk.weights.offload import free_unused
from oscine.families.auk.weights.rules import Fusion, load_thinker
from oscine.runtime.store import RecentStore, content_key
from oscine.types import Samples

CONDITION_CACHE = 16
MIN_MEL_FRAMES = 3  # fewer give no audio token
MIN_CLIP_SAMPLES = MIN_MEL_FRAMES * 160


def empty_thinker(parts: AuKFolder) -> Thinker:
    """The encoder on the meta device, owning no memory."""
    with torch.device("meta"):
        return Thinker(parts.thinker)


class Conditioner:
    """The frozen encoder with the layer fusion of one AuK checkpoint. Used from the engine's thread.

    `resident` False loads the encoder for each new condition and frees it again, after `make_room` has been called:
    slow, but its memory is needed only then.
    """

    def __init__(
        self,
        parts: AuKFolder,
        fusion: Fusion,
        *,
        device: torch.device,
        dtype: torch.dtype,
        resident: bool = True,
        make_room: Callable[[], None] | None = None,
        cache_size: int = CONDITION_CACHE,
    ) -> None:
        layers = parts.thinker.text.num_hidden_layers
        if len(fusion.layer_weights) != layers:
            raise WeightMismatch(
                f"{len(fusion.layer_weights)} layer_weights for the {layers} layers of {parts.encoder}"
            )
        self.tokenizer = PromptTokenizer(parts.encoder, parts.thinker)
        self.resident, self._make_room = resident, make_room
        self._parts, self._fusion, self._device, self._dtype = parts, fusion, device, dtype
        self._cache: RecentStore[Tensor] = RecentStore(cache_size)
        self._thinker = self._load() if resident else None

    def condition(self, instruction: str, clip: Samples | None) -> Tensor:
        """The fused condition float32 [1, token, hidden] of an instruction and a clip at 16 kHz; cached by content."""
        key = (instruction, None if clip is None else content_key(clip))
        return self._cache.get_or_make(key, lambda: self._encode(instruction, clip))

    def input_ids(self, instruction: str, clip_samples: int | None) -> list[int]:
        """The prompt's ids for a clip of so many samples at 16 kHz (None: no clip)."""
        tokens = 0 if clip_samples is None else audio_tokens(mel_frames(clip_samples))
        return self.tokenizer.encode(instruction, audio_tokens=tokens)

    @torch.inference_mode()
    def _encode(self, instruction: str, clip: Samples | None) -> Tensor:
        ids = torch.tensor([self.input_ids(instruction, None if clip is None else len(clip))], device=self._device)
        mel = None if clip is None else log_mel(torch.from_numpy(clip), self._parts.thinker.audio.num_mel_bins)

        def encode(thinker: Thinker) -> Tensor:
            embeds = None if mel is None else thinker.audio_tower(mel.to(self._device))
            return thinker.fused(ids, self._fusion.layer_weights, self._fusion.layer_scale, audio_embeds=embeds)

        if self._thinker is not None:
            return encode(self._thinker)
        if self._make_room is not None:
            self._make_room()
        thinker = self._load()
        try:
            return encode(thinker)
        finally:
            del thinker
            free_unused()

    def _load(self) -> Thinker:
        thinker = empty_thinker(self._parts)
        load_thinker(thinker, self._parts.encoder, device=self._device, dtype=self._dtype)
        return thinker


def to_mel_rate(samples: Samples, rate: int) -> Samples:
    """A clip as the encoder hears it: mono at 16 kHz."""
    return prepare_audio(samples, rate, MEL_RATE)
