"""Audio8 TTS as the engine sees it: requests become jobs, frames become samples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from oscine.audio.resample import resample, resampled_length
from oscine.cancellation import check_cancelled
from oscine.checkpoint.folder import describe_folder
from oscine.errors import InputTooLong, InvalidRequest, UnsupportedFeature
from oscine.families.audio8.backends.choose import backend_for
from oscine.families.audio8.codec.codec import Codec
from oscine.families.audio8.codec.kinds import AnyCodec
from oscine.families.audio8.config import Audio8Config
from oscine.families.audio8.decoder import Audio8Decoder
from oscine.families.audio8.model.dual_ar import DualAR
from oscine.families.audio8.prompt import PromptBuilder, PromptIds, normalize_text
from oscine.families.audio8.rows import Sampling
from oscine.families.audio8.slots import Audio8Inputs
from oscine.families.audio8.spec import check_voice
from oscine.families.audio8.steps import Audio8StepModel, job_bytes
from oscine.families.audio8.weights import load_codec, load_language_model
from oscine.options import supported_options
from oscine.seeds import derive_seed, fresh_seed
from oscine.text.budget import max_seconds
from oscine.text.clean import clean_blocks, plain_blocks
from oscine.text.frontend import TextFrontend, get_frontend
from oscine.text.pauses import PAUSE_DEFAULTS, pause_after
from oscine.text.split import Segment, plan_segments
from oscine.types import AudioInput, Capabilities, Guard, Job, Plan, Request, Voice

NAME = "audio8"

Codes = npt.NDArray[np.int64]
"""[codebook, frame]"""

CHUNK_SIZES = (2, 4, 8, 16)
"""Frames heard of a job's decoder calls: audio leaves after the first two, later runs are long enough to be fast."""

SUSPECT_S, FAIL_S, MAX_PERIOD_S, HOLD_S = 0.6, 2.5, 2.0, 3.6
"""The guard: from when a run is suspicious and failed, the longest loop, the longest budget that is held whole."""

MIN_NEW_FRAMES = 1
"""The model may not end before its first frame, as in the publishers' latest runtime (AUDIO8 spec, 6)."""


def load(folder: Path, *, name: str, device: torch.device, dtype: torch.dtype, backend: str = "auto") -> Audio8Family:
    """The checkpoint in `folder`: the language model in `dtype`, the codec in float32. Raises a `CheckpointError`."""
    config = Audio8Config.from_folder(folder)
    prompts = PromptBuilder.from_folder(folder, config.lm)
    codec = load_codec(folder, config.codec, device=device)
    model = load_language_model(folder, config.lm, device=device, dtype=dtype)
    licence = describe_folder(folder).licence
    return Audio8Family(config, prompts, model, codec, name=name, licence=licence, backend=backend)


class Audio8Family:
    """One loaded Audio8 checkpoint."""

    def __init__(
        self,
        config: Audio8Config,
        prompts: PromptBuilder,
        model: DualAR,
        codec: AnyCodec,
        *,
        name: str,
        licence: str,
        backend: str = "auto",
    ) -> None:
        self._config, self._prompts, self._codec = config, prompts, codec
        self._device = model.device
        self._frontend: TextFrontend = get_frontend(config.text_frontend)
        self._codec_id = _fingerprint(codec)
        self._stream_bytes = codec.stream_bytes()
        encoder = codec if config.voice_cloning and isinstance(codec, Codec) else None
        self._steps = Audio8StepModel(backend_for(model, backend), encoder)
        self._job_bytes = partial(job_bytes, config.lm, model.dtype, self._steps.rule)
        rate = config.codec.frame_rate
        self._base_guard = Guard(
            suspect_frames=round(SUSPECT_S * rate),
            fail_frames=round(FAIL_S * rate),
            max_period=round(MAX_PERIOD_S * rate),
            hold_frames=round(HOLD_S * rate),
        )
        self.capabilities = _capabilities(config, name, licence)

    def step_model(self) -> Audio8StepModel:
        """The one step model of this checkpoint."""
        return self._steps

    def open_decoder(self, job: Job) -> Audio8Decoder:
        """A stateful decoder for the job's frames."""
        return Audio8Decoder(self._codec, self._device)

    def text_of(self, job: Job) -> str:
        """Empty: this family answers in audio only."""
        return ""

    def chunk_sizes(self) -> tuple[int, ...]:
        """Frames of a job's decoder calls; the first one makes up for the codec's lag."""
        return CHUNK_SIZES[0] + self._config.codec.lag_frames, *CHUNK_SIZES[1:]

    def voices(self) -> Sequence[Voice]:
        """The voices the checkpoint was trained with, by speaker tag; the first one is the default."""
        return [
            Voice(name=name, family=NAME, codec=self._codec_id, speaker=speaker.tag, gender=speaker.gender)
            for name, speaker in self._config.speakers.items()
        ]

    def accepts(self, voice: Voice) -> bool:
        """Whether the voice's codes are of this codec."""
        return voice.family == NAME and voice.codec == self._codec_id

    def encode_voice(self, name: str, audio: AudioInput, transcript: str) -> Voice:
        """Codes of the reference with its transcript. Device work. Raises `UnsupportedFeature` or `InvalidRequest`."""
        if not self._config.voice_cloning:
            raise UnsupportedFeature(f"{self.capabilities.model} cannot clone voices", param="ref_audio")
        text = _as_field(transcript, "ref_text")
        self._check_reference(self._frames_of(audio), self._prompts.reference("a", self._symbols(text)))
        codes = self._steps.encode_reference(self._at_codec_rate(audio)).numpy()
        return Voice(name=name, family=NAME, codec=self._codec_id, tensors={"codes": codes}, transcript=text)

    def prepare(self, request: Request, request_id: str) -> Plan:
        """Jobs for the segments of the text, all with one voice. Raises an `InvalidRequest`."""
        segments = self._segments(request)
        symbols = [self._symbols(segment.spoken) for segment in segments]
        reference = self._reference(request)
        seed = fresh_seed() if request.seed is None else request.seed
        carried = reference.is_empty and self._config.voice_cloning and len(segments) > 1
        jobs: list[Job] = []
        for number, segment in enumerate(segments):
            check_cancelled()
            first = jobs[0] if jobs and carried else None
            prompt, num_frames = self._prompt(symbols[number], reference, first, symbols[0])
            limit = self._config.lm.max_seq_len // 3 if carried and first is None else None
            jobs.append(
                Job(
                    id=f"{request_id}.{number}",
                    inputs=Audio8Inputs(
                        prompt=prompt,
                        reference=reference.codes if reference.codes is not None else reference.audio,
                        sampling=self._sampling(request),
                        min_new_frames=MIN_NEW_FRAMES if request.min_new_frames is None else request.min_new_frames,
                    ),
                    seed=derive_seed(seed, number),
                    max_frames=self._budget(segment, request, prompt.num_columns(num_frames), limit),
                    memory=self._job_bytes(prompt.num_columns(num_frames)) + self._stream_bytes,
                    text=segment.text,
                    ends=segment.ends,
                    pause_s=pause_after(segment.ends, request),
                    after=first,
                    guard=self._guard(request),
                )
            )
        return Plan(
            jobs=tuple(jobs),
            seed=seed,
            spoken_text=tuple(segment.spoken for segment in segments),
            input_tokens=sum(job.inputs.prompt.num_columns() for job in jobs),
        )

    # Text

    def _segments(self, request: Request) -> list[Segment]:
        """The text cleaned, cut and normalised."""
        if not request.text.strip():
            raise InvalidRequest("the text is empty; give at least one word to speak", param="text")
        tagged = normalize_text(request.text)  # refuses control tokens before markup is looked at
        normalize = request.normalize is not False
        segments = plan_segments(
            clean_blocks(request.text) if normalize else plain_blocks(tagged),
            self._config.piece_weight,
            normalize=self._frontend.normalize if normalize else None,
            by_sentence=request.by_sentence is True,
        )
        if not segments:
            raise InvalidRequest(
                f"nothing in the text can be spoken: {request.text[:60]!r}; give at least one letter or digit",
                param="text",
            )
        return segments

    def _symbols(self, text: str) -> str:
        return normalize_text(self._frontend.to_symbols(text))

    # Voice

    def _reference(self, request: Request) -> _Reference:
        """The one voice of the request, checked."""
        given = [
            name
            for name, value in (
                ("voice", request.voice),
                ("ref_audio", request.ref_audio),
                ("ref_codes", request.ref_codes),
            )
            if value is not None
        ]
        if len(given) > 1:
            raise InvalidRequest(f"give one of {' and '.join(given)}, not both", param=given[1])
        if request.ref_text is not None and not {"ref_audio", "ref_codes"} & set(given):
            raise InvalidRequest("ref_text is the transcript of ref_audio; give ref_audio too", param="ref_text")
        if isinstance(request.voice, Voice):
            return self._of_voice(request.voice)
        if not given:
            default = next(iter(self.voices()), None)
            return self._of_voice(default) if default else _Reference()
        if request.ref_text is None:
            raise InvalidRequest(
                "voice cloning needs the exact transcript of the reference; give it as ref_text", param="ref_text"
            )
        audio = None if request.ref_audio is None else self._at_codec_rate(request.ref_audio)
        transcript = self._symbols(_as_field(request.ref_text, "ref_text"))
        frames = self._frames_of(audio) if audio is not None else _num_frames(request.ref_codes)
        self._check_reference(frames, self._prompts.reference("a", transcript))
        return _Reference(audio=audio, codes=request.ref_codes, transcript=transcript, num_frames=frames)

    def _of_voice(self, voice: Voice) -> _Reference:
        if not self.accepts(voice):
            raise InvalidRequest(
                f"voice {voice.name!r} belongs to another model ({voice.family}, codec {voice.codec or 'unknown'});"
                f" this is {NAME}, codec {self._codec_id}",
                param="voice",
            )
        try:
            check_voice(voice)
        except ValueError as error:
            raise InvalidRequest(f"voice {voice.name!r} cannot be spoken with: {error}", param="voice") from error
        if not voice.tensors:
            return _Reference(speaker=voice.speaker)
        if not self._config.voice_cloning:
            raise UnsupportedFeature(f"{self.capabilities.model} cannot clone voices", param="voice")
        transcript = self._symbols(voice.transcript or "")
        codes = voice.tensors["codes"]
        return _Reference(codes=codes, transcript=transcript, num_frames=codes.shape[1])

    def _check_reference(self, num_frames: int, prompt: PromptIds) -> None:
        """Raises InputTooLong unless a reference leaves at least a quarter of the context to speak in."""
        limit = self._config.lm.max_seq_len * 3 // 4
        if prompt.num_columns(num_frames) > limit:
            raise InputTooLong(
                f"the reference with its transcript takes {prompt.num_columns(num_frames)} of the model's"
                f" {self._config.lm.max_seq_len} positions, at most {limit} may be used; cut it to 5 to 15 s",
                param="ref_audio",
            )

    def _frames_of(self, audio: AudioInput) -> int:
        codec = self._config.codec
        return -(-resampled_length(len(audio.samples), audio.sample_rate, codec.sample_rate) // codec.frame_length)

    def _at_codec_rate(self, audio: AudioInput) -> AudioInput:
        rate = self._config.codec.sample_rate
        return AudioInput(samples=resample(audio.samples, audio.sample_rate, rate), sample_rate=rate)

    # Jobs

    def _prompt(
        self, symbols: str, reference: _Reference, first: Job | None, first_symbols: str
    ) -> tuple[PromptIds, int]:
        """A segment's prompt and the most reference frames it may hold."""
        if first is not None:
            return self._prompts.reference(symbols, first_symbols), first.max_frames
        if reference.transcript is not None:
            return self._prompts.reference(symbols, reference.transcript), reference.num_frames
        tag = "" if reference.speaker is None else f"<|speaker:{reference.speaker}|>"
        return self._prompts.text_only(tag + symbols), 0

    def _sampling(self, request: Request) -> Sampling:
        defaults = self._config.generation
        temperature = defaults.temperature if request.temperature is None else request.temperature
        return Sampling(
            do_sample=temperature > 0 and (defaults.do_sample or request.temperature is not None),
            temperature=temperature,
            top_k=defaults.top_k if request.top_k is None else request.top_k,
            top_p=defaults.top_p if request.top_p is None else request.top_p,
        )

    def _budget(self, segment: Segment, request: Request, columns: int, limit: int | None) -> int:
        """Frames the segment may take: the caller's limit or one computed from the text, within the context."""
        room = self._config.lm.max_seq_len - columns
        if room < 1:
            raise InputTooLong(
                f"text and reference take {columns} positions, the model has {self._config.lm.max_seq_len};"
                " shorten the reference",
                param="text",
            )
        wanted = request.max_new_tokens
        if wanted is None:
            wanted = round(max_seconds(segment.spoken) * self._config.codec.frame_rate)
        return min(wanted, room, limit or room)

    def _guard(self, request: Request) -> Guard:
        """A budget the caller set is theirs to run into; one computed from the text means a runaway."""
        return replace(self._base_guard, retry_length=request.max_new_tokens is None)


@dataclass(frozen=True, kw_only=True)
class _Reference:
    """Whose voice: a speaker tag, codes or audio with a transcript, or nobody's (all None)."""

    speaker: int | None = None
    codes: Codes | None = None
    audio: AudioInput | None = None
    transcript: str | None = None
    num_frames: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the model is free to choose a voice."""
        return self.speaker is None and self.transcript is None


def _capabilities(config: Audio8Config, name: str, licence: str) -> Capabilities:
    defaults = config.generation
    return Capabilities(
        family=NAME,
        model=name,
        tasks=("speech",),
        languages=("en",) if config.text_frontend else (),
        sample_rate=config.codec.sample_rate,
        frame_rate=config.codec.frame_rate,
        voice_cloning=config.voice_cloning,
        streaming=True,
        licence=licence,
        options=supported_options(
            {
                "seed": None,
                "temperature": defaults.temperature if defaults.do_sample else 0.0,
                "top_k": defaults.top_k,
                "top_p": defaults.top_p,
                "max_new_tokens": None,
                "min_new_frames": MIN_NEW_FRAMES,
                "normalize": True,
                "by_sentence": False,
                **PAUSE_DEFAULTS,
            },
            max_new_tokens=config.lm.max_seq_len,
        ),
    )


def _as_field(text: str, param: str) -> str:
    """Normalised text of another field than `text`; complaints name that field."""
    try:
        return normalize_text(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"{param}: {error.message}", param=param) from error


def _num_frames(codes: Codes | None) -> int:
    """Frames of reference codes given as such. Raises `InvalidRequest` unless they are [codebook, frame]."""
    shape = np.shape(codes) if codes is not None else ()
    if len(shape) != 2:
        raise InvalidRequest(f"ref_codes must have the shape [codebook, frame], got {list(shape)}", param="ref_codes")
    return int(shape[1])


def _fingerprint(codec: AnyCodec) -> str:
    """What tells one codec from another: the hash of its first codebook."""
    return hashlib.sha256(codec.identity.detach().float().cpu().numpy().tobytes()).hexdigest()[:12]
