"""Front ends by name: what a voice says for a text, and the symbols its model reads.

A checkpoint names its front end. `None` means the model reads plain text; "english-phonemes" means it reads the
phonemes of `oscine.text.english`. Nothing is loaded before the first text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Protocol

from oscine.errors import InvalidRequest


class TextFrontend(Protocol):
    """Two steps between a user's text and a model: what is said, then the symbols that say it."""

    @property
    def name(self) -> str | None:
        """The name that a checkpoint's configuration holds."""

    @property
    def alphabet(self) -> str | None:
        """Every character `to_symbols` can return, in a fixed order; None if any text is possible."""

    def normalize(self, text: str) -> str:
        """Returns the words that are spoken; shown by a dry run. Raises InvalidRequest if it cannot be read."""

    def to_symbols(self, text: str) -> str:
        """Returns what the model's tokenizer is given for a text, normalised or not."""


class PlainText:
    """The front end of models that read text as it is."""

    name: str | None = None
    alphabet: str | None = None

    def normalize(self, text: str) -> str:
        """Returns the text unchanged."""
        return text

    def to_symbols(self, text: str) -> str:
        """Returns the text unchanged."""
        return text


class EnglishPhonemes:
    """American English: `normalize` writes numbers and signs in words, `to_symbols` gives phonemes."""

    name: str | None = "english-phonemes"

    @property
    def alphabet(self) -> str | None:
        """The 51 symbols of `oscine.text.english.alphabet`, in its order."""
        from oscine.text.english.alphabet import ALPHABET

        return ALPHABET

    def normalize(self, text: str) -> str:
        """Returns the words; raises UnsupportedFeature if the text is mostly in another script than Latin."""
        from oscine.text.english.normalize import normalize
        from oscine.text.english.scripts import check_script

        check_script(text)
        return normalize(text)

    def to_symbols(self, text: str) -> str:
        """Returns phonemes; raises InvalidRequest if nothing can be said, UnsupportedFeature for other scripts."""
        from oscine.text.english.phonemize import phonemize
        from oscine.text.english.scripts import check_script

        check_script(text)
        return phonemize(text)


_FRONTENDS: dict[str | None, Callable[[], TextFrontend]] = {None: PlainText, "english-phonemes": EnglishPhonemes}


@cache
def get_frontend(name: str | None) -> TextFrontend:
    """Returns the front end of that name; raises InvalidRequest listing the known names."""
    if name not in _FRONTENDS:
        known = ", ".join(repr(key) for key in _FRONTENDS)
        raise InvalidRequest(f"no text front end is called {name!r}; known are {known}", param="frontend")
    return _FRONTENDS[name]()
