"""Reading the fast tokenizer of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from oscine.errors import ConfigMismatch, MissingFile


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a `tokenizer.json`. Raises MissingFile or ConfigMismatch."""
    if not path.is_file():
        raise MissingFile(f"{path} is missing")
    try:
        return Tokenizer.from_file(str(path))
    except BaseException as error:  # the library raises nothing narrower, and a panic of its own is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ConfigMismatch(f"{path} is not a readable tokenizer: {error}") from error
