"""Which voice of a model a client means by the name it sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oscine.checkpoint.voice_names import DEFAULT_VOICE, OPENAI_VOICES
from oscine.errors import UnknownVoice

if TYPE_CHECKING:
    from oscine.api import Model


def openai_table(own: Sequence[str]) -> dict[str, str]:
    """A voice for each of OpenAI's 13 names: the one of that name among the model's `own`, else these in turn.

    Stored voices are not drawn on, so adding one changes no other. A model without voices of its own speaks with its
    default one.
    """
    return {
        name: name if name in own else own[number % len(own)] if own else DEFAULT_VOICE
        for number, name in enumerate(OPENAI_VOICES)
    }


def resolve_voice(name: str | None, model: Model) -> str | None:
    """The name of the model's voice to use, None for its default. Raises UnknownVoice."""
    if name is None:
        return None
    voices = model.voices
    known = openai_table(list(model.own_voices)).get(name, name)
    if known in voices:
        return known
    if known == DEFAULT_VOICE:
        return None
    names = ", ".join(sorted(voices)) or DEFAULT_VOICE
    raise UnknownVoice(f"no voice named {name!r}; this model has: {names}, and OpenAI's names", param="voice")
