"""The bodies of requests to models that hear: transcriptions, and chats about a recording."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from oscine.errors import InvalidRequest
from oscine.options import RequestOptions
from oscine.server.schemas import Format, Name, Tuning, VoiceId


class TranscriptionForm(Tuning):
    """Multipart form of `POST /v1/audio/transcriptions`, beside its `file`."""

    model: Name = Field(description="id of a served model that hears")
    response_format: Literal["json", "text"] = Field(default="json", description="of the answer, unless streamed")
    stream: bool | None = Field(default=None, description="the words as events, as they come")


class InputAudio(BaseModel):
    """A recording inside a chat message."""

    model_config = ConfigDict(extra="forbid", strict=True)
    data: str = Field(description="base64 or a data: URI")
    format: Name | None = Field(default=None, description="ignored: the recording itself tells")


class ChatPart(BaseModel):
    """A part of a chat message: words, or a recording."""

    model_config = ConfigDict(extra="forbid", strict=True)
    type: Literal["text", "input_audio"]
    text: str | None = None
    input_audio: InputAudio | None = None


class ChatMessage(BaseModel):
    """A chat message from the user."""

    model_config = ConfigDict(extra="forbid", strict=True)
    role: Literal["user"]
    content: list[ChatPart]
    name: Name | None = Field(default=None, description="ignored")


class ChatAudio(BaseModel):
    """How a spoken answer is wanted."""

    model_config = ConfigDict(extra="forbid", strict=True)
    voice: Name | VoiceId | None = Field(default=None, description="the model's own or one of OpenAI's names")
    format: Format = Field(default="wav", description="container of the audio")


class StreamOptions(BaseModel):
    """What the events of a streamed answer hold beside it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    include_usage: bool | None = Field(default=None, description="a last event with token counts")


class ChatBody(Tuning):
    """Body of `POST /v1/chat/completions`: one message with one recording, and a question about it.

    With `audio` among the modalities and no question the answer to the spoken words is spoken.
    """

    RECORDINGS: ClassVar = frozenset({"data"})

    model: Name = Field(description="id of a served model that hears")
    messages: list[ChatMessage] = Field(min_length=1, max_length=1)
    modalities: list[Literal["text", "audio"]] = Field(default=["text"], min_length=1, max_length=2)
    audio: ChatAudio | None = None
    max_tokens: int | None = Field(default=None, ge=1, description="another name of max_new_tokens")
    max_completion_tokens: int | None = Field(default=None, ge=1, description="another name of max_new_tokens")
    stream: bool | None = Field(default=None, description="an answer in words as events, as it comes")
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    user: Name | None = Field(default=None, description="ignored")

    @property
    def speaks(self) -> bool:
        """Whether the answer is to be spoken."""
        return "audio" in self.modalities

    @property
    def wants_usage(self) -> bool:
        """Whether a streamed answer ends with its token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def parts(self) -> tuple[str, str]:
        """The recording, still encoded, and the question or "". Raises InvalidRequest unless one recording is there."""
        content = self.messages[0].content
        recordings = [part.input_audio for part in content if part.input_audio is not None]
        words = [part.text.strip() for part in content if part.text]
        if len(recordings) != 1 or len(recordings) + len(words) != len(content):
            raise InvalidRequest(
                "a message holds one part of type input_audio and, at will, parts of type text", param="messages"
            )
        return recordings[0].data, "\n".join(words)

    def options(self) -> RequestOptions:
        """The tunable fields that were given, under the names of `COMMON_OPTIONS`."""
        options = super().options()
        for limit in (self.max_completion_tokens, self.max_tokens):
            if limit is not None:
                options.setdefault("max_new_tokens", limit)
        return options
