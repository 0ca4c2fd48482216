"""Sets of words written as running text, which reads better than one quoted word a line."""

from __future__ import annotations


def word_set(words: str) -> frozenset[str]:
    """Returns the words of a text separated by white space."""
    return frozenset(words.split())


def word_list(words: str) -> tuple[str, ...]:
    """Returns the words of a text separated by white space, in their order."""
    return tuple(words.split())
