"""The bodies clients send. Fields that tune a request carry the names, ranges and help of `COMMON_OPTIONS`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, cast

from fastapi import UploadFile
from pydantic import BaseModel, ConfigDict, Field

from oscine.audio.formats import encoded_rate
from oscine.audio.stretch import MAX_SPEED, MIN_SPEED
from oscine.errors import InvalidRequest
from oscine.options import COMMON_OPTIONS, RequestOptions
from oscine.types import Capabilities

Name = Annotated[str, Field(max_length=256)]
"""What something is called: short, whatever it is."""
Format = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]

PCM_RATE = 24_000
"""pcm states no rate, so clients assume this one, whatever the model's."""

_LONGEST_OPTION = 64
_LONGEST_TEXT = 4096
"""Characters of instructions, and of what is said in a reference of a minute."""
_Remark = Annotated[str, Field(max_length=512)] | int | float | bool | None


def _option(name: str) -> Any:
    option = COMMON_OPTIONS[name]
    longest = _LONGEST_OPTION if option.type is str else None
    return Field(default=None, description=option.help, ge=option.minimum, le=option.maximum, max_length=longest)


def check_unicode(text: str, param: str) -> str:
    """`text` if it can be written down. Raises InvalidRequest for half of a surrogate pair, which JSON lets through."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{param} holds half of a surrogate pair", param=param) from error
    return text


class VoiceId(BaseModel):
    """A voice by its id, as newer OpenAI clients send it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    id: Name


class OutputSettings(BaseModel):
    """What kind of audio to send, and how."""

    model_config = ConfigDict(extra="forbid", strict=True)

    response_format: Format = Field(default="mp3", description="container of the audio")
    stream_format: Literal["audio", "sse"] | None = Field(
        default=None, description="`audio`: the bytes themselves; `sse`: events that carry them in base64"
    )
    stream: bool | None = Field(
        default=None, description="false: one body of known length; ignored when stream_format is given"
    )
    sample_rate: int | None = Field(
        default=None, ge=8000, le=48000, description="Hz. Default: 24000 for pcm, 48000 for opus, else the model's"
    )

    @property
    def whole(self) -> bool:
        """Whether the client wants one body of known length."""
        return self.stream_format is None and self.stream is False

    def target_rate(self, model_rate: int) -> int:
        """Hz of the encoded audio. Raises InvalidRequest when the container cannot hold the rate asked for."""
        if self.sample_rate is None:
            return encoded_rate(self.response_format, PCM_RATE if self.response_format == "pcm" else model_rate)
        if encoded_rate(self.response_format, self.sample_rate) != self.sample_rate:
            raise InvalidRequest(
                f"{self.response_format} cannot hold audio of {self.sample_rate} Hz; leave sample_rate out, or use "
                "wav, flac or pcm",
                param="sample_rate",
            )
        return self.sample_rate


class Tuning(BaseModel):
    """The tunable fields of a request. `null` and the empty string mean "not given"."""

    model_config = ConfigDict(extra="forbid", strict=True)

    seed: int | None = _option("seed")
    temperature: float | None = _option("temperature")
    top_k: int | None = _option("top_k")
    top_p: float | None = _option("top_p")
    cfg_scale: float | None = _option("cfg_scale")
    num_steps: int | None = _option("num_steps")
    max_new_tokens: int | None = _option("max_new_tokens")
    min_new_frames: int | None = _option("min_new_frames")
    duration_s: float | None = _option("duration_s")
    language: str | None = _option("language")
    instructions: str | None = Field(
        default=None, max_length=_LONGEST_TEXT, description="how to speak, in words; for models that take instructions"
    )
    normalize: bool | None = _option("normalize")
    by_sentence: bool | None = _option("by_sentence")
    paragraph_pause_s: float | None = _option("paragraph_pause_s")
    heading_pause_s: float | None = _option("heading_pause_s")
    scene_pause_s: float | None = _option("scene_pause_s")

    def options(self) -> RequestOptions:
        """The fields of `COMMON_OPTIONS` that were given."""
        values = {name: getattr(self, name) for name in COMMON_OPTIONS}
        return cast(RequestOptions, {name: value for name, value in values.items() if value not in (None, "")})

    def options_for(self, capabilities: Capabilities) -> RequestOptions:
        """The options that were given, less a `language` that is the only one the model has anyway."""
        options = self.options()
        if "language" not in capabilities.options and (options.get("language"),) == capabilities.languages:
            del options["language"]
        return options


class SpeechSettings(OutputSettings, Tuning):
    """How to speak, without the text: every field of the speech endpoint but `model` and `input`."""

    RECORDINGS: ClassVar = frozenset({"ref_audio"})
    """Fields whose length the size of the body alone bounds."""

    voice: Name | VoiceId | None = Field(default=None, description="a voice of the voices endpoint")
    speed: float | None = Field(default=None, ge=MIN_SPEED, le=MAX_SPEED, description="tempo; the pitch stays")
    ref_audio: str | None = Field(
        default=None, description="a recording of the voice to clone, as base64 or a data: URI"
    )
    ref_text: str | None = Field(
        default=None, max_length=_LONGEST_TEXT, description="exactly what is said in ref_audio"
    )

    # Accepted by name, since OpenAI's clients send them; they say nothing about the audio.
    user: Name | None = Field(default=None, description="ignored")
    safety_identifier: Name | None = Field(default=None, description="ignored")
    metadata: dict[Annotated[str, Field(max_length=64)], _Remark] | None = Field(
        default=None, max_length=16, description="ignored"
    )

    @property
    def voice_name(self) -> str | None:
        """The voice asked for; None for the model's default."""
        return (self.voice.id if isinstance(self.voice, VoiceId) else self.voice) or None


class SpeechBody(SpeechSettings):
    """Body of `POST /v1/audio/speech`."""

    model: Name = Field(description="id of a served model; tts-1, tts-1-hd and gpt-4o-mini-tts mean the default one")
    input: str = Field(description="the text to speak, of any length up to the server's limit")


class BatchItem(SpeechSettings):
    """One text of a batch, with what differs from the shared fields."""

    input: str = Field(description="the text to speak")


class BatchBody(SpeechSettings):
    """Body of `POST /v1/audio/speech/batch`: shared fields and items that may override them."""

    model: Name = Field(description="id of a served model")
    items: list[BatchItem] = Field(min_length=1, description="texts; the server limits how many")

    def item_settings(self, item: BatchItem) -> SpeechSettings:
        """The shared fields with the item's own over them."""
        own = {name: getattr(item, name) for name in item.model_fields_set if name != "input"}
        shared = {name: getattr(self, name) for name in SpeechSettings.model_fields}
        return SpeechSettings(**(shared | own))


class SoundBody(OutputSettings, Tuning):
    """Body of `POST /v1/audio/generations`."""

    model: Name = Field(description="id of a served model that makes sounds")
    input: str = Field(description="a caption: what is to be heard")


class EditBody(OutputSettings, Tuning):
    """Body of `POST /v1/audio/edits`, as JSON or a form; further fields are what the task needs to know."""

    model_config = ConfigDict(extra="allow", strict=True)
    RECORDINGS: ClassVar = frozenset({"audio"})

    model: Name = Field(description="id of a served model that edits")
    audio: str | None = Field(default=None, description="the recording, as base64 or a data: URI; a file in a form")
    task: Name | None = Field(default=None, description="one of the model's `edits`; or give `instructions` instead")
    ref_text: str | None = Field(default=None, description="the words in audio, for tasks that change words")

    def slots(self) -> dict[str, str]:
        """The task's own fields. Raises InvalidRequest for one that is neither text nor a number."""
        slots = {}
        for name, value in (self.model_extra or {}).items():
            if not isinstance(value, (str, int, float)) or isinstance(value, bool):
                raise InvalidRequest(f"{name} must be text or a number", param=name)
            slots[name] = check_unicode(str(value), name)
        return slots


class VoiceForm(BaseModel):
    """Multipart form of `POST /v1/audio/voices`."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(description="1 to 64 letters, digits, '-', '_' or '.'")]
    audio_sample: UploadFile = Field(description="5 to 15 s of clear speech, in any common format")
    ref_text: Annotated[
        str | None, Field(max_length=_LONGEST_TEXT, description="exactly what is said in audio_sample")
    ] = None
    speaker_description: Annotated[str | None, Field(max_length=1000, description="kept with the voice")] = None
    consent: Annotated[str | None, Field(max_length=1000, description="accepted for OpenAI's clients; not stored")] = (
        None
    )
    model: Annotated[Name | None, Field(description="the model it is for. Default: the default model")] = None
