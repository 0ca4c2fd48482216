"""Which voice of a model a client means by the name it sends."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oscine.checkpoint.voice_names import DEFAULT_VOICE, OPENAI_VOICES
from oscine.errors import UnknownVoice

if TYPE_CHECKING:
    from oscine.api import Model
    from oscine.types import Voice


def openai_table(own: Sequence[Voice]) -> dict[str, str]:
    """A voice for each of OpenAI's 13 names: of the model's `own` the one of that name, else those of its kind in turn.

    A kind is a gender; where the model has no voice of that kind, all its voices take turns. Stored voices are not
    drawn on, so adding one changes no other. A model without voices of its own speaks with its default one.
    """
    names = [voice.name for voice in own]
    turns = {
        gender: itertools.cycle([voice.name for voice in own if voice.gender == gender] or names or [DEFAULT_VOICE])
        for gender in set(OPENAI_VOICES.values())
    }
    return {name: name if name in names else next(turns[gender]) for name, gender in OPENAI_VOICES.items()}


def resolve_voice(name: str | None, model: Model) -> str | None:
    """The name of the model's voice to use, None for its default. Raises UnknownVoice."""
    if name is None:
        return None
    voices = model.voices
    known = openai_table(list(model.own_voices.values())).get(name, name)
    if known in voices:
        return known
    if known == DEFAULT_VOICE:
        return None
    names = ", ".join(sorted(voices)) or DEFAULT_VOICE
    raise UnknownVoice(f"no voice named {name!r}; this model has: {names}, and OpenAI's names", param="voice")
