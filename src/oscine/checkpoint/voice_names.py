"""Which names a stored voice may have."""

from __future__ import annotations

import re
from collections.abc import Mapping

from oscine.errors import InvalidRequest
from oscine.types import Gender

DEFAULT_VOICE = "default"
"""Means the model's own choice."""

OPENAI_VOICES: Mapping[str, Gender] = {
    "alloy": "female",
    "ash": "male",
    "ballad": "male",
    "cedar": "male",
    "coral": "female",
    "echo": "male",
    "fable": "male",
    "marin": "female",
    "nova": "female",
    "onyx": "male",
    "sage": "female",
    "shimmer": "female",
    "verse": "male",
}
"""Names that OpenAI's clients send whatever the model, and whose voice those who choose them expect."""

_RESERVED = frozenset((DEFAULT_VOICE, *OPENAI_VOICES))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_voice_name(name: str) -> str:
    """The name if a stored voice may have it; else InvalidRequest.

    It becomes a file name, so its alphabet is small; names that everybody uses without having stored anything are
    nobody's to give a new meaning, in whatever case.
    """
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} cannot name a voice: 1 to 64 letters, digits, '-', '_' or '.', beginning with a letter or digit",
            param="name",
        )
    if name.lower() in _RESERVED:
        raise InvalidRequest(
            f"{name!r} cannot name a voice: it is reserved, as are {', '.join(sorted(_RESERVED))}", param="name"
        )
    return name
