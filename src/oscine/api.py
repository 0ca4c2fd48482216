"""What users hold: `load` gives a `Model`; the only place that joins a family and the engine."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Unpack

import torch

from oscine import families
from oscine.audio.io import AudioSource, read_audio
from oscine.cancellation import result_of
from oscine.checkpoint.hub import resolve_source
from oscine.checkpoint.voices import VoiceStore
from oscine.engine.engine import Engine, EngineOptions
from oscine.engine.pacing import Live
from oscine.errors import InvalidRequest, UnknownVoice, VoiceExists
from oscine.options import RequestOptions, check_request
from oscine.result import Result
from oscine.stream import SpeechStream, collect
from oscine.types import (
    AudioInput,
    Capabilities,
    Edit,
    Family,
    Plan,
    Request,
    Voice,
)

_log = logging.getLogger(__name__)

BUNDLED_NAME = "oscine-default"

__all__ = ["Model", "Result", "load"]


def load(
    source: str | os.PathLike[str] | None = None,
    *,
    device: str = "auto",
    dtype: Literal["auto", "float32", "bfloat16", "float16", "int8"] = "auto",
    threads: int | None = None,
    backend: str = "auto",
    offline: bool = False,
    revision: str | None = None,
    voices_dir: str | os.PathLike[str] | None = None,
    engine: Engine | None = None,
    engine_options: EngineOptions | None = None,
) -> Model:
    """A ready model from a checkpoint folder, a hub id (`org/name`), or the bundled voice when `source` is None.

    `device` "auto" is CUDA when there is one, else the CPU; `dtype` "auto" is float32 on the CPU and bfloat16 on CUDA
    (codecs stay float32); "int8" holds a language model's weights so, where the family can, and the rest as "auto".
    `backend` is what runs the weights, of those the model has (`oscine doctor`): "eager", "native" (compiled steps),
    "compiled" (takes minutes to load), or "auto". `threads` sets torch's thread count for the whole process; None is
    what suits the model: one for a small one such as the bundled voice, else torch's own. Only this call may download,
    and with `offline` nothing does. `engine` shares one engine, hence one device thread, between models. Raises
    `UnknownModel`, `CheckpointError` and its kinds, or `InvalidRequest` for a device, dtype or backend that is not
    there.
    """
    if threads is not None and threads < 1:
        raise InvalidRequest(f"threads must be at least 1, got {threads}", param="threads")
    where = choose_device(device)
    precision = choose_dtype(dtype, where)
    folder = resolve_source(source, revision=revision, offline=offline)
    use_threads(threads, folder)
    family = families.load_family(folder, name=_name(source, folder), device=where, dtype=precision, backend=backend)
    _log.info("loaded %s, licence: %s", family.capabilities.model, family.capabilities.licence)
    store = VoiceStore(voices_dir)
    store.clean()
    return Model(family, engine or Engine(engine_options), store, owns_engine=engine is None)


class Model:
    """A loaded checkpoint. Methods may be called from any thread; requests running at once share batches.

    Use it as a context manager, or call `close`.
    """

    def __init__(self, family: Family, engine: Engine, store: VoiceStore, *, owns_engine: bool = True) -> None:
        self._family, self._engine, self._store = family, engine, store
        self._owns_engine = owns_engine
        self._ids = itertools.count(1)

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancels what runs and frees the engine's thread, unless the engine is shared."""
        if self._owns_engine:
            self._engine.close()

    @property
    def capabilities(self) -> Capabilities:
        """What this model can do, with the defaults of its checkpoint."""
        return self._family.capabilities

    @property
    def voices(self) -> dict[str, Voice]:
        """Voices by name: those the checkpoint brings along, then the stored ones that belong to it."""
        own = self.own_voices
        taken = {name.lower() for name in own}
        stored = {voice.name: voice for voice in self._store.list() if self._family.accepts(voice)}
        return own | {name: voice for name, voice in stored.items() if name.lower() not in taken}

    @property
    def own_voices(self) -> dict[str, Voice]:
        """Voices by name that the checkpoint brings along, its default first."""
        return {voice.name: voice for voice in self._family.voices()}

    def generate(
        self,
        text: str,
        *,
        voice: str | Voice | None = None,
        ref_audio: AudioSource | None = None,
        ref_text: str | None = None,
        description: str | None = None,
        on_progress: Callable[[float], None] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Result:
        """Speaks `text` (any length) and returns the whole audio.

        `voice` is a name of `voices` or a `Voice`; `ref_audio` (a file, bytes, or `(samples, rate)`) with the exact
        transcript `ref_text` clones one on the fly; `description` is a voice in words, for a model that takes them
        (`instructions` over HTTP). `options` are the fields in `capabilities.options`; an option this model cannot
        honour is an `UnsupportedFeature`. No `seed` means a fresh one, reported in the result.
        """
        stream = self.stream(
            text,
            voice=voice,
            ref_audio=ref_audio,
            ref_text=ref_text,
            description=description,
            on_progress=on_progress,
            **options,
        )
        return self.finish(stream)

    def stream(
        self,
        text: str,
        *,
        voice: str | Voice | None = None,
        ref_audio: AudioSource | None = None,
        ref_text: str | None = None,
        description: str | None = None,
        live: Live | None = None,
        on_progress: Callable[[float], None] | None = None,
        **options: Unpack[RequestOptions],
    ) -> SpeechStream:
        """Like `generate`, but an iterator of `AudioChunk` as they are made: the same samples, cut.

        Everything that can be refused is refused by this call, before the first chunk. `live` says that somebody
        listens meanwhile: where several requests run, these are kept ahead of their playback, and others come after.
        """
        plan = self.plan(text, voice=voice, ref_audio=ref_audio, ref_text=ref_text, description=description, **options)
        return SpeechStream(self._family, self._engine, plan, live=live, on_progress=on_progress)

    def plan(
        self,
        text: str,
        *,
        voice: str | Voice | None = None,
        ref_audio: AudioSource | None = None,
        ref_text: str | None = None,
        description: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Plan:
        """What would be spoken: pieces, what the text becomes, budgets and seeds. Checks everything, runs nothing."""
        return self._prepare(
            Request(
                text=text,
                voice=self._voice(voice),
                ref_audio=None if ref_audio is None else read_audio(ref_audio),
                ref_text=ref_text,
                **_with_words(options, "description", description),
            )
        )

    def sound(self, caption: str, **options: Unpack[RequestOptions]) -> Result:
        """The sound a caption describes, `duration_s` long. `UnsupportedFeature` for a model without the task."""
        return self.finish(self.run(Request(task="sound", text=caption, **options)))

    def edit(
        self,
        audio: AudioSource | None = None,
        *,
        task: str | None = None,
        slots: Mapping[str, str] | None = None,
        instruction: str | None = None,
        ref_text: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Result:
        """`audio` changed by a named task (`slots` fill its template) or by an `instruction` of your own.

        `ref_text`, the words in `audio`, lets tasks that change words estimate the new length. The model's page in the
        docs lists its tasks. Raises `UnsupportedFeature` for a model without the task, `InvalidRequest` for its slots.
        """
        if task is None and slots:
            raise InvalidRequest("slots fill the template of a task; name the task too", param="slots")
        request = Request(
            task="edit",
            audio=None if audio is None else read_audio(audio, param="audio"),
            edit=None if task is None else Edit(name=task, slots=dict(slots or {})),
            ref_text=ref_text,
            **_with_words(options, "instruction", instruction),
        )
        return self.finish(self.run(request))

    def transcribe(
        self, audio: AudioSource, *, on_text: Callable[[str], None] | None = None, **options: Unpack[RequestOptions]
    ) -> Result:
        """The words in `audio`, as the result's `text`. Raises `UnsupportedFeature` for a model that cannot hear.

        `on_text` is called with each run of words as it is settled; joined, they are the text.
        """
        return self.finish(self.run(Request(task="transcribe", audio=_heard(audio), **options)), on_text=on_text)

    def ask(
        self,
        audio: AudioSource,
        question: str,
        *,
        on_text: Callable[[str], None] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Result:
        """The answer to a question about `audio`, as the result's `text`. `on_text` and errors as in `transcribe`."""
        request = Request(task="ask", text=question, audio=_heard(audio), **options)
        return self.finish(self.run(request), on_text=on_text)

    def converse(self, audio: AudioSource, **options: Unpack[RequestOptions]) -> Result:
        """A spoken answer to spoken words: audio, and the answer's words as `text`. Raises as `transcribe`."""
        return self.finish(self.run(Request(task="converse", audio=_heard(audio), **options)))

    def run(
        self, request: Request, *, live: Live | None = None, on_progress: Callable[[float], None] | None = None
    ) -> SpeechStream:
        """Starts any request; what can be refused is refused by this call. `generate` and its kin are made of this.

        `live` as for `stream`.
        """
        return SpeechStream(self._family, self._engine, self._prepare(request), live=live, on_progress=on_progress)

    def _prepare(self, request: Request) -> Plan:
        check_request(request, self.capabilities)
        return self._family.prepare(request, f"r{next(self._ids)}")

    def finish(self, stream: SpeechStream, *, on_text: Callable[[str], None] | None = None) -> Result:
        """The result of a stream that nobody has read from yet; `on_text` is for answers in words alone."""
        with stream:
            if on_text is not None:
                for words in stream.words():
                    on_text(words)
            audio = collect(stream)
            return Result(
                audio=audio,
                sample_rate=stream.sample_rate,
                finish_reason=stream.finish_reason,
                seed=stream.seed,
                timings=stream.timings,
                pieces=stream.pieces,
                usage=stream.usage,
                text=stream.text,
            )

    def create_voice(
        self, name: str, audio: AudioSource, transcript: str, *, description: str = "", store: bool = True
    ) -> Voice:
        """A named voice from reference audio and its exact transcript; stored for later unless `store` is False.

        Raises `UnsupportedFeature` when this model cannot clone, `BadAudio`, and, if it is to be stored,
        `InvalidRequest` for a name that is none or reserved and `VoiceExists` for one that is taken.
        """
        if store:
            self._check_voice_name(name)
        reference = read_audio(audio)
        encode = self._family.encode_voice
        voice = result_of(self._engine.call(lambda: encode(name, reference, transcript)))
        voice = replace(voice, description=description or voice.description)
        if store:
            self._store.add(voice)
        return voice

    def _check_voice_name(self, name: str) -> None:
        if name.lower() in (own.lower() for own in self.own_voices):
            raise VoiceExists(f"the model itself has a voice named {name!r}; choose another name", param="name")
        self._store.check_new(name)

    def remove_voice(self, name: str) -> None:
        """Deletes a stored voice. Raises `UnknownVoice`; a voice of the checkpoint itself cannot be removed."""
        self._store.remove(name)

    def _voice(self, voice: str | Voice | None) -> Voice | None:
        if not isinstance(voice, str):
            return voice
        known = self.voices
        if voice not in known:
            names = ", ".join(sorted(known)) or "none; create one with create_voice"
            raise UnknownVoice(f"no voice named {voice!r}; this model has: {names}", param="voice")
        return known[voice]


def _name(source: str | os.PathLike[str] | None, folder: Path) -> str:
    """What to call the model: the hub id it was asked for by, else its folder's name."""
    if source is None:
        return BUNDLED_NAME
    return folder.name if Path(source).is_dir() else str(source)


def _with_words(options: RequestOptions, name: str, words: str | None) -> RequestOptions:
    """`options` with the argument `name` as its `instructions`, which is what the field is called over HTTP."""
    if words is None:
        return options
    if options.get("instructions") is not None:
        raise InvalidRequest(f"{name} and instructions are one field; give one of them", param=name)
    return {**options, "instructions": words}


def _heard(audio: AudioSource) -> AudioInput:
    return read_audio(audio, max_seconds=None, param="audio")


_lowered: tuple[int, int] | None = None  # torch's thread count before a small model was loaded, and since


def use_threads(threads: int | None, folder: Path) -> None:
    """Sets torch's thread count: as asked, or what suits the checkpoint in `folder`. Raises as `families.spec_of`."""
    global _lowered
    if threads is not None:
        _lowered = None
        torch.set_num_threads(threads)
        return
    now = torch.get_num_threads()
    own = _lowered[0] if _lowered and _lowered[1] == now else now
    wanted = families.suited_threads([folder]) or own
    _lowered = (own, wanted) if wanted < own else None
    torch.set_num_threads(wanted)


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidRequest(f"device {name!r} is not one; use auto, cpu or cuda", param="device") from error
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and not torch.cuda.is_available()):
        raise InvalidRequest(f"device {name!r} is not available here; use auto or cpu", param="device")
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    allowed: dict[str, Any] = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "int8")}
    if name not in allowed:
        raise InvalidRequest(f"dtype {name!r} is not one; use auto, {', '.join(allowed)}", param="dtype")
    dtype: torch.dtype = allowed[name]
    return dtype
