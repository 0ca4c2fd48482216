"""Writes audio files: whole or not at all, as they are produced or at once."""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from oscine.audio.encode import open_encoder
from oscine.audio.formats import FORMATS, check_available
from oscine.audio.wav import count_clipped
from oscine.errors import InvalidRequest, OscineError, OutputError
from oscine.types import Samples

_log = logging.getLogger(__name__)


def format_of(path: str | os.PathLike[str], name: str | None = None) -> str:
    """The format to write `path` in: `name` if given, else by the file's ending. Raises OutputError.

    A missing ending or an unknown one is never guessed at.
    """
    if name is not None:
        try:
            return check_available(name).name
        except InvalidRequest as error:
            raise OutputError(error.message, param="format") from error
    suffix = Path(path).suffix.lower()
    for item in FORMATS.values():
        if item.suffix == suffix:
            return format_of(path, item.name)
    known = " ".join(sorted(item.suffix for item in FORMATS.values()))
    raise OutputError(f"cannot tell the audio format of {str(path)!r} by its ending {suffix!r}; known: {known}")


class AudioWriter:
    """A file being written: `write` samples, then `close`, or `abort`; as a context, an exception aborts.

    The bytes go to a temporary file beside the target, which replaces it on `close` and is removed on `abort`. What is
    not a regular file (a pipe, a device) is written directly. Failures raise OutputError.
    """

    def __init__(self, path: str | os.PathLike[str], sample_rate: int, format: str | None = None) -> None:
        self.path = Path(path)
        self.num_samples = 0
        self.num_clipped = 0
        self._target = Path(os.path.realpath(self.path))
        if self._target.is_dir():
            raise OutputError(f"cannot write {str(self.path)!r}: it is a folder")
        direct = self._target.exists() and not self._target.is_file()
        self._encoder = open_encoder(format_of(self.path, format), sample_rate, seekable=not direct)
        self.sample_rate = self._encoder.sample_rate
        self._temporary = (
            None if direct else self._target.with_name(f".{self._target.name[:100]}.{secrets.token_hex(4)}.part")
        )
        self._file = self._create()

    def _create(self) -> BinaryIO:
        try:
            if self._temporary is None:
                return self._target.open("wb", buffering=0)
            return self._temporary.open("xb")
        except OSError as error:
            self._encoder.close()
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> OscineError:
        return OutputError(f"cannot write {str(self.path)!r}: {error.strerror or error}")

    def write(self, samples: Samples) -> None:
        """Appends samples [sample]; values outside [-1, 1] are limited and counted."""
        self.num_clipped += count_clipped(samples)
        self._put(self._encoder.push(samples))
        self.num_samples += len(samples)

    def _put(self, data: bytes) -> None:
        try:
            view = memoryview(data)
            while view:  # an unbuffered file may take less than it is given
                view = view[self._file.write(view) :]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Completes the file under its name; on failure nothing of it is left."""
        try:
            self._put(self._encoder.finish())
            if self._temporary is not None:
                self._complete(self._temporary)
            else:
                self._file.close()
        except BaseException:
            self.abort()
            raise
        if self.num_clipped:
            _log.warning("%s: %d of %d samples clipped", self.path, self.num_clipped, self.num_samples)

    def _complete(self, temporary: Path) -> None:
        try:
            for offset, piece in self._encoder.patches:
                self._file.seek(offset)
                self._file.write(piece)
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(temporary, self._target)
        except OSError as error:
            raise self._failure(error) from error

    def abort(self) -> None:
        """Gives up: the temporary file is removed and the target stays as it was. Idempotent, never raises."""
        self._encoder.close()
        try:
            self._file.close()
        except OSError as error:  # a full disk shows again when the buffer is flushed
            _log.debug("closing %s: %s", self.path, error)
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> AudioWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def write_audio(path: str | os.PathLike[str], samples: Samples, sample_rate: int, format: str | None = None) -> None:
    """Writes mono samples [sample] to `path` in the format of its ending, or `format`; 16 bits where that applies.

    Whole or not at all. Raises OutputError (unknown ending, no permission, full disk), NonFiniteOutput.
    """
    with AudioWriter(path, sample_rate, format) as writer:
        writer.write(samples)
