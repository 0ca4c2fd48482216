"""From the fields of a speech request to audio being made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from oscine.audio.formats import check_available
from oscine.errors import InvalidRequest
from oscine.server.schemas import SpeechSettings
from oscine.server.stream import AudioRun
from oscine.server.voices import resolve_voice

if TYPE_CHECKING:
    from oscine.api import Model


def speech_maker(text: str, settings: SpeechSettings, *, whole: bool) -> Callable[[Model], AudioRun]:
    """What starts to speak `text` with a model; it raises whatever is wrong with the request."""

    def make(model: Model) -> AudioRun:
        start = partial(model.stream, text, **_arguments(model, settings))
        return AudioRun(model, start, settings, speed=settings.speed or 1.0, whole=whole)

    return make


def check_speech(model: Model, settings: SpeechSettings) -> None:
    """Raises what speaking with these settings would raise, and runs nothing."""
    settings.target_rate(model.capabilities.sample_rate)
    check_available(settings.response_format)
    model.plan("Hello.", **_arguments(model, settings))


def _arguments(model: Model, settings: SpeechSettings) -> dict[str, Any]:
    """The arguments of `Model.stream` beside the text."""
    if settings.ref_text and not settings.ref_audio:
        raise InvalidRequest("ref_text is the transcript of ref_audio; give ref_audio too", param="ref_text")
    return {
        "voice": resolve_voice(settings.voice_name, model),
        "ref_audio": settings.reference_bytes(),
        "ref_text": settings.ref_text or None,
        **settings.options_for(model.capabilities),
    }
