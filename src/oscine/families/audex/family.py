"""Audex as the engine sees it: five tasks become jobs, frames become samples or text (AUDEX spec, 1 and 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from oscine.audio.resample import resample, resampled_length
from oscine.errors import GenerationError, InvalidRequest, UnknownVoice, UnsupportedFeature
from oscine.families.audex.codec.xcodec import MAX_FRAMES
from oscine.families.audex.decoder import AnswerDecoder, SoundDecoder, SpeechStreamDecoder, answer_text
from oscine.families.audex.frontend import cut_clips, log_mel, normalize, num_clips
from oscine.families.audex.jobs import DependentJob, JobMaker, LMJob
from oscine.families.audex.model.heads import MIN_RUN
from oscine.families.audex.prompt import (
    TRANSCRIBE_QUESTION,
    PromptEncoder,
    audio_prompt,
    chat_prompt,
    generation_prompt,
)
from oscine.families.audex.sampling import Sampling
from oscine.families.audex.steps import AudexStepModel
from oscine.families.audex.weights.loading import AudexModel, LanguageModel, load_model, wide_dtype
from oscine.layers.log_mel import SAMPLE_RATE
from oscine.options import supported_options
from oscine.runtime.backends import choose
from oscine.runtime.exact import RowRule, few_rows
from oscine.seeds import derive_seed, fresh_seed
from oscine.text.clean import plain_blocks
from oscine.text.pauses import PAUSE_DEFAULTS, pause_after
from oscine.text.split import Segment, plan_segments, speech_weight
from oscine.types import AudioInput, Capabilities, Decoder, Job, Plan, Request, Task, Voice

NAME = "audex"
LICENCE = "NVIDIA OneWay Noncommercial License (weights: research and development only)"
VOICE = "default"

PIECE_WEIGHT = 400
"""Longest piece of speech in `speech_weight` units, some 27 s: well within the 41 s that 2048 tokens can hold."""
LATER_CHUNKS = (4, 5, 10, 25)
"""Frames of a job's decoder calls after the first, which is the look-ahead and one frame."""

SPEECH_TOKENS, SOUND_TOKENS, TEXT_TOKENS, MOST_TOKENS = 2048, 4200, 256, 4096
SPOKEN_PROMPT = 1024
"""Most prompt tokens of a chat or spoken answer in a conversation: 256 tokens of text, the frame, and room to spare."""

SPEECH = Sampling(temperature=0.1, top_k=80)
GUIDED_TEMPERATURE = {False: 0.05, True: 0.1}
"""Guided speech, by whether the model is the hybrid one."""
SOUND = Sampling(temperature=1.0, top_k=80)
TEXT = Sampling(temperature=0.0)
SPEECH_SCALE, SOUND_SCALE, CONVERSE_SCALE, MOST_SCALE = 1.0, 3.0, 1.5, 10.0

LARGEST_PROBE = 2**26
"""Weights of the products whose shapes are probed at load time; larger ones would take seconds."""


def load(folder: Path, *, name: str, device: torch.device, dtype: torch.dtype, backend: str = "auto") -> AudexFamily:
    """The checkpoint in `folder` (the root of the released layout); codecs in float32. Raises a `CheckpointError`."""
    choose(backend, {"eager": True})
    model = load_model(folder, device=device, dtype=dtype)
    return AudexFamily(model, row_rule(model.lm, device, dtype), name=name)


def row_rule(lm: LanguageModel, device: torch.device, dtype: torch.dtype) -> RowRule:
    """The rule that holds for this model's products on this machine."""
    if dtype == torch.int8 and device.type == "cpu" and not lm.config.tie_word_embeddings:
        return RowRule()  # sums of whole numbers: no shape matters
    dtype = wide_dtype(dtype, device)
    matrices = [value for value in lm.parameters() if value.dim() == 2 and value.numel() <= LARGEST_PROBE]
    sizes = {(value.shape[1], value.shape[0]) for value in matrices} | {(lm.config.hidden_size, MIN_RUN)}
    return few_rows(device, dtype, sizes)


class AudexFamily:
    """One loaded Audex checkpoint."""

    def __init__(self, model: AudexModel, rule: RowRule, *, name: str) -> None:
        self._model = model
        self._steps = AudexStepModel(model, rule)
        tower = model.tower
        self._maker = JobMaker(
            PromptEncoder(model.tokenizer),
            model.tokens,
            max_positions=model.lm.config.max_position_embeddings,
            rows_per_clip=tower.audio_encoder.config.num_embeddings if tower else 0,
        )
        self.capabilities = _capabilities(model, name)

    def step_model(self) -> AudexStepModel:
        """The one step model of this checkpoint."""
        return self._steps

    def open_decoder(self, job: Job) -> Decoder:
        """A stateful decoder for the job's frames: speech, a sound, or words."""
        output = self._output(job)
        if output == "speech":
            return SpeechStreamDecoder(self._model.speech_decoder)
        if output == "sound":
            assert self._model.xcodec is not None, "without it the task is refused"
            return SoundDecoder(self._model.xcodec)
        return AnswerDecoder(self._maker.encoder.decode, is_transcript=_is_transcript(job))

    def chunk_sizes(self) -> tuple[int, ...]:
        """Frames of a job's decoder calls: sound comes as soon as the look-ahead allows."""
        return (self._model.speech_decoder.config.lookahead_steps + 1, *LATER_CHUNKS)

    def voices(self) -> Sequence[Voice]:
        """The one built-in voice."""
        return [Voice(name=VOICE, family=NAME, speaker=0, description="built-in voice", language="en")]

    def accepts(self, voice: Voice) -> bool:
        """Whether it is the built-in voice."""
        return voice.family == NAME and voice.name == VOICE

    def encode_voice(self, name: str, audio: AudioInput, transcript: str) -> NoReturn:
        """Raises UnsupportedFeature: there is no cloning."""
        raise UnsupportedFeature(f"{self.capabilities.model} cannot clone voices: it has one built-in voice")

    def text_of(self, job: Job) -> str:
        """The answer of a text job so far; empty for a job that speaks or sounds."""
        if self._output(job) != "text":
            return ""
        return answer_text(self._maker.encoder.decode(job.frames), is_transcript=_is_transcript(job))

    def prepare(self, request: Request, request_id: str) -> Plan:
        """The jobs of a request. Raises an `InvalidRequest`."""
        self._check(request)
        seed = fresh_seed() if request.seed is None else request.seed
        plans = {
            "speech": self._speech,
            "sound": self._sound,
            "transcribe": self._transcribe,
            "ask": self._ask,
            "converse": self._converse,
        }
        jobs = plans[request.task](request, request_id, seed)
        prompts = [len(job.inputs.prompt_ids) for job in jobs if isinstance(job.inputs, LMJob)]
        return Plan(jobs=tuple(jobs), seed=seed, input_tokens=sum(prompts))

    # Checks

    def _check(self, request: Request) -> None:
        """Raises for fields that the task has no use for: nothing is accepted and ignored."""
        if request.task not in self.capabilities.tasks:
            raise UnsupportedFeature(f"{self.capabilities.model} cannot do {request.task!r}", param="task")
        if isinstance(request.voice, Voice) and not self.accepts(request.voice):
            raise UnknownVoice(f"{self.capabilities.model} has one voice, {VOICE!r}", param="voice")
        if isinstance(request.voice, str) and request.voice.lower() not in ("", VOICE):
            raise UnknownVoice(f"{self.capabilities.model} has one voice, {VOICE!r}", param="voice")
        hears = request.task in ("transcribe", "ask", "converse")
        guided = request.task in ("speech", "sound", "converse")
        for field in ("ref_audio", "ref_codes", "ref_text", "edit", *(() if hears else ("audio",))):
            if getattr(request, field) is not None:
                raise UnsupportedFeature(f"{request.task} with {self.capabilities.model} takes no {field}", param=field)
        useless = [*(() if guided else ("cfg_scale",)), *(() if request.task == "sound" else ("duration_s",))]
        useless += [] if request.task == "speech" else ["by_sentence", *PAUSE_DEFAULTS]
        for field in useless:
            if getattr(request, field) is not None:
                raise UnsupportedFeature(f"{request.task} has no {field}", param=field)
        if request.task in ("transcribe", "converse") and request.text.strip():
            raise InvalidRequest(f"{request.task} takes audio and no text; use ask for a question", param="text")
        if hears and request.audio is None:
            raise InvalidRequest(f"{request.task} needs audio", param="audio")
        scale = request.cfg_scale
        if scale is not None and not 1.0 <= scale <= MOST_SCALE:
            raise InvalidRequest(f"cfg_scale must be between 1 and {MOST_SCALE:g}, got {scale!r}", param="cfg_scale")

    # Tasks

    def _speech(self, request: Request, request_id: str, seed: int) -> list[Job]:
        segments = _segments(request)
        if not segments:
            raise InvalidRequest("nothing in the text can be spoken", param="text")
        jobs = [
            self._job(
                f"{request_id}.{number}",
                self._spoken(request, segment.text, SPEECH_SCALE),
                derive_seed(seed, number),
                text=segment.text,
            )
            for number, segment in enumerate(segments)
        ]
        for job, segment in zip(jobs, segments, strict=True):
            job.ends, job.pause_s = segment.ends, pause_after(segment.ends, request)
        return jobs

    def _sound(self, request: Request, request_id: str, seed: int) -> list[Job]:
        job = self._maker.generate(
            "tta",
            generation_prompt("tta", request.text),
            sampling=_sampling(request, SOUND),
            cfg_scale=SOUND_SCALE if request.cfg_scale is None else request.cfg_scale,
            max_new_tokens=request.max_new_tokens or SOUND_TOKENS,
        )
        # Later codec tokens cannot be heard, so the engine ends the job there.
        assert self._model.xcodec is not None, "without it the task is refused"
        rate, duration = self._model.xcodec.config.frame_rate, request.duration_s
        frames = MAX_FRAMES if duration is None else min(MAX_FRAMES, ceil(duration * rate))
        return [self._job(request_id, job, seed, text=request.text, max_frames=frames, ends_full=True)]

    def _transcribe(self, request: Request, request_id: str, seed: int) -> list[Job]:
        return [self._job(request_id, self._heard(request, TRANSCRIBE_QUESTION), seed)]

    def _ask(self, request: Request, request_id: str, seed: int) -> list[Job]:
        return [self._job(request_id, self._heard(request, request.text), seed, text=request.text)]

    def _converse(self, request: Request, request_id: str, seed: int) -> list[Job]:
        """Three passes: what was said, what to answer, and the answer spoken. Options are those of the last."""
        plain = replace(request, temperature=None, top_k=None, top_p=None, max_new_tokens=None)

        def chat(before: Job) -> LMJob:
            prompt = chat_prompt(self._words(before, "no words were understood in the audio"))
            return self._maker.answer(prompt, sampling=TEXT, max_new_tokens=TEXT_TOKENS)

        def speak(before: Job) -> LMJob:
            return self._spoken(request, self._words(before, "the model had no answer"), CONVERSE_SCALE)

        said = self._job(f"{request_id}.0", self._heard(plain, TRANSCRIBE_QUESTION), seed)
        chatting = DependentJob(make=chat, output="text", max_length=SPOKEN_PROMPT + TEXT_TOKENS)
        answered = self._job(f"{request_id}.1", chatting, derive_seed(seed, 1), after=said)
        scale = CONVERSE_SCALE if request.cfg_scale is None else request.cfg_scale
        length = SPOKEN_PROMPT + (request.max_new_tokens or SPEECH_TOKENS)
        spoken = DependentJob(make=speak, output="speech", max_length=length, num_lanes=2 if scale > 1.0 else 1)
        return [said, answered, self._job(f"{request_id}.2", spoken, derive_seed(seed, 2), after=answered)]

    # Jobs

    def _words(self, job: Job, otherwise: str) -> str:
        """The answer of a text job; raises GenerationError when it is empty."""
        text = self.text_of(job)
        if not text:
            raise GenerationError(f"{otherwise}; try again with clearer or longer audio")
        return text

    def _spoken(self, request: Request, text: str, default_scale: float) -> LMJob:
        scale = default_scale if request.cfg_scale is None else request.cfg_scale
        defaults = SPEECH if scale <= 1.0 else replace(SPEECH, temperature=GUIDED_TEMPERATURE[self._model.is_hybrid])
        return self._maker.generate(
            "tts",
            generation_prompt("tts", text),
            sampling=_sampling(request, defaults),
            cfg_scale=scale,
            max_new_tokens=request.max_new_tokens or SPEECH_TOKENS,
        )

    def _heard(self, request: Request, question: str) -> LMJob:
        assert request.audio is not None, "checked before"
        prompt = audio_prompt(question)
        self._maker.check_room(prompt, _num_clips(request.audio))
        return self._maker.answer(
            prompt,
            sampling=_sampling(request, TEXT),
            max_new_tokens=request.max_new_tokens or TEXT_TOKENS,
            mel=_mel(request.audio),
            is_transcript=request.task != "ask",
        )

    def _job(
        self,
        job_id: str,
        inputs: LMJob | DependentJob,
        seed: int,
        *,
        text: str = "",
        max_frames: int | None = None,
        ends_full: bool = False,
        after: Job | None = None,
    ) -> Job:
        lm, decoder = self._model.lm, self._model.speech_decoder
        # While a lane grows, by doubling, the old keys and the new ones are both there.
        memory = 2 * inputs.num_lanes * lm.cache_shape.row_bytes(inputs.max_length)
        if inputs.output == "speech":
            memory += 2 * decoder.cache_shape.row_bytes(inputs.max_length)
        if isinstance(inputs, LMJob) and inputs.mel is not None:
            memory += inputs.mel.nbytes
        frames = inputs.max_length if max_frames is None else max_frames
        return Job(
            id=job_id,
            inputs=inputs,
            seed=seed,
            max_frames=frames,
            memory=memory,
            text=text,
            after=after,
            ends_full=ends_full,
        )

    def _output(self, job: Job) -> str:
        inputs: LMJob | DependentJob = job.inputs
        return inputs.output


def _is_transcript(job: Job) -> bool:
    return isinstance(job.inputs, LMJob) and job.inputs.is_transcript


def _num_clips(audio: AudioInput) -> int:
    """The clips that audio will be cut into. Raises InputTooLong."""
    return num_clips(resampled_length(len(audio.samples), audio.sample_rate, SAMPLE_RATE))


def _mel(audio: AudioInput) -> Tensor:
    """Log-mel clips of a request's audio. Raises BadAudio."""
    return log_mel(cut_clips(normalize(resample(audio.samples, audio.sample_rate, SAMPLE_RATE))))


def _segments(request: Request) -> list[Segment]:
    """The text as it is, whole if it is short enough and nobody wants its sentences apart."""
    if speech_weight(request.text) <= PIECE_WEIGHT and not request.by_sentence:
        return [Segment(text=request.text, spoken=request.text, ends="paragraph")]
    return plan_segments(plain_blocks(request.text), PIECE_WEIGHT, by_sentence=request.by_sentence is True)


def _sampling(request: Request, defaults: Sampling) -> Sampling:
    return Sampling(
        temperature=defaults.temperature if request.temperature is None else request.temperature,
        top_k=defaults.top_k if request.top_k is None else request.top_k,
        top_p=defaults.top_p if request.top_p is None else request.top_p,
    )


def _capabilities(model: AudexModel, name: str) -> Capabilities:
    heard: tuple[Task, ...] = ("transcribe", "ask", "converse") if model.tower is not None else ()
    sounds: tuple[Task, ...] = ("sound",) if model.xcodec is not None else ()
    longest = {"duration_s": MAX_FRAMES / model.xcodec.config.frame_rate} if model.xcodec is not None else {}
    config = model.speech_decoder.config
    options = supported_options(
        # None: the default depends on the task; the docs page has the table.
        {
            "seed": None,
            "temperature": None,
            "top_k": None,
            "top_p": 1.0,
            "cfg_scale": None,
            "max_new_tokens": None,
            "by_sentence": False,
            **PAUSE_DEFAULTS,
            **dict.fromkeys(longest),
        },
        cfg_scale=MOST_SCALE,
        max_new_tokens=MOST_TOKENS,
        **longest,
    )
    return Capabilities(
        family=NAME,
        model=name,
        tasks=("speech", *sounds, *heard),
        languages=("en",),
        sample_rate=config.sample_rate,
        frame_rate=config.sample_rate / config.hop_length,
        voice_cloning=False,
        streaming=True,
        licence=LICENCE,
        options={**options, "cfg_scale": replace(options["cfg_scale"], minimum=1.0)},
    )
