"""The family as the engine sees it: a text becomes a job, a recording becomes a voice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from oscine.checkpoint.folder import describe_folder
from oscine.errors import InvalidRequest
from oscine.options import supported_options
from oscine.runtime.backends import choose
from oscine.seeds import fresh_seed
from oscine.types import AudioInput, Capabilities, Job, Plan, Request, Voice
from oscine_tone.decoder import ToneDecoder
from oscine_tone.model import ToneConfig, ToneModel, read_config, read_model
from oscine_tone.steps import ToneInputs, ToneStepModel

PITCH = 220.0


def load(folder: Path, *, name: str, device: torch.device, dtype: torch.dtype, backend: str = "auto") -> ToneFamily:
    """The checkpoint in `folder`. Raises a `CheckpointError`."""
    choose(backend, {"eager": True})
    model = read_model(folder, device=device, dtype=dtype)
    return ToneFamily(read_config(folder), model, name=name, licence=describe_folder(folder).licence)


class ToneFamily:
    """One loaded checkpoint."""

    def __init__(self, config: ToneConfig, model: ToneModel, *, name: str, licence: str) -> None:
        self._config, self._steps = config, ToneStepModel(model)
        self.capabilities = Capabilities(
            family="tone",
            model=name,
            tasks=("speech",),
            languages=("en",),
            sample_rate=config.sample_rate,
            frame_rate=config.sample_rate / config.hop_length,
            voice_cloning=True,
            streaming=True,
            licence=licence,
            options=supported_options({"seed": None, "max_new_tokens": None}),
        )

    def prepare(self, request: Request, request_id: str) -> Plan:
        letters = tuple(ord(sign) - ord("a") for sign in request.text.lower() if "a" <= sign <= "z")
        if not letters:
            raise InvalidRequest("there is no letter in the text", param="text")
        voice = request.voice if isinstance(request.voice, Voice) else None
        if request.ref_audio is not None:
            voice = self.encode_voice("reference", request.ref_audio, request.ref_text or "")
        pitch = float(voice.tensors["pitch"][0]) if voice and voice.tensors else PITCH
        seed = fresh_seed() if request.seed is None else request.seed
        frames = min(len(letters), request.max_new_tokens or len(letters))
        inputs = ToneInputs(letters, pitch)
        job = Job(id=request_id, inputs=inputs, seed=seed, max_frames=frames, memory=1024, text=request.text)
        return Plan(jobs=(job,), seed=seed, input_tokens=len(letters))

    def step_model(self) -> ToneStepModel:
        return self._steps

    def open_decoder(self, job: Job) -> ToneDecoder:
        return ToneDecoder(self._config)

    def text_of(self, job: Job) -> str:
        return ""

    def chunk_sizes(self) -> tuple[int, ...]:
        return (2, 8)

    def voices(self) -> Sequence[Voice]:
        return [Voice(name="plain", family="tone", speaker=0)]

    def accepts(self, voice: Voice) -> bool:
        return voice.family == "tone"

    def encode_voice(self, name: str, audio: AudioInput, transcript: str) -> Voice:
        """Its pitch is half the sign changes a second."""
        changes = np.count_nonzero(np.diff(np.signbit(audio.samples)))
        pitch = np.array([changes * audio.sample_rate / len(audio.samples) / 2], np.float32)
        return Voice(name=name, family="tone", tensors={"pitch": pitch}, transcript=transcript)
