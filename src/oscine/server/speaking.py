"""From the fields of a speech request to audio being made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from oscine.audio.formats import check_available
from oscine.engine.pacing import Live
from oscine.errors import InvalidRequest
from oscine.options import check_cloning, check_task
from oscine.server.schemas import SpeechSettings
from oscine.server.state import ServerState
from oscine.server.stream import AudioRun
from oscine.server.voices import resolve_voice
from oscine.types import AudioInput

if TYPE_CHECKING:
    from oscine.api import Model


def reference_of(settings: SpeechSettings, state: ServerState, model: Model) -> AudioInput | None:
    """The voice to clone, if one is given, read and checked; blocks. Raises what is wrong with it.

    It is not looked at unless the model can clone.
    """
    if settings.ref_audio:
        check_task("speech", model.capabilities)
        check_cloning(model.capabilities)
        return state.uploads.decode(state.recordings.read(settings.ref_audio, "ref_audio"), "ref_audio")
    if settings.ref_text:
        raise InvalidRequest("ref_text is the transcript of ref_audio; give ref_audio too", param="ref_text")
    return None


def speech_maker(
    text: str, settings: SpeechSettings, reference: Callable[[Model], AudioInput | None], live: Live | None
) -> Callable[[Model], AudioRun]:
    """What starts to speak `text` with a model; it raises whatever is wrong with the request. Not `live`: whole."""

    def make(model: Model) -> AudioRun:
        start = partial(model.stream, text, live=live, **_arguments(model, settings, reference(model)))
        return AudioRun(model, start, settings, speed=settings.speed or 1.0, whole=live is None)

    return make


def check_speech(model: Model, settings: SpeechSettings, reference: AudioInput | None) -> None:
    """Raises what speaking with these settings would raise, and runs nothing."""
    settings.target_rate(model.capabilities.sample_rate)
    check_available(settings.response_format)
    model.plan("Hello.", **_arguments(model, settings, reference))


def _arguments(model: Model, settings: SpeechSettings, reference: AudioInput | None) -> dict[str, Any]:
    """The arguments of `Model.stream` beside the text."""
    return {
        "voice": resolve_voice(settings.voice_name, model),
        "ref_audio": reference,
        "ref_text": settings.ref_text or None,
        **settings.options_for(model.capabilities),
    }
