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
    """Audio being written: `write` samples, then `close`, or `abort`; as a context, an exception aborts.

    The bytes of a file go to a temporary one beside it, which replaces it on `close` and is removed on `abort`;
    `in_place` writes under the final name, to be read while it grows, and removes that on `abort`. An open binary file
    (closing it is the caller's), a pipe or a device is written as a stream, flushed with every call. Failures raise
    OutputError, except BrokenPipeError: a reader that has gone.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | BinaryIO,
        sample_rate: int,
        format: str | None = None,
        *,
        in_place: bool = False,
    ) -> None:
        self.num_samples = 0
        self.num_clipped = 0
        self._path: Path | None = None  # what `close` completes and `abort` removes
        self._final: Path | None = None
        if isinstance(target, (str, os.PathLike)):
            self.name = repr(str(target))
            self._set_paths(Path(os.path.realpath(target)), in_place)
            self._encoder = open_encoder(format_of(target, format), sample_rate, seekable=self._path is not None)
            self._file = self._create(Path(target))
        else:
            self.name = getattr(target, "name", "the output")
            self._encoder = open_encoder(format or "wav", sample_rate)
            self._file = target
        self._completed = False
        self._owned = self._file is not target
        self.sample_rate = self._encoder.sample_rate
        self.format = self._encoder.format.name

    def _set_paths(self, final: Path, in_place: bool) -> None:
        if final.is_dir():
            raise OutputError(f"cannot write {self.name}: it is a folder")
        if final.exists() and not final.is_file():
            return  # a pipe or a device: there is nothing to complete or remove
        self._final = final
        part = f".{final.name[:40]}.{secrets.token_hex(4)}.part"
        self._path = final if in_place else final.with_name(part)

    def _create(self, target: Path) -> BinaryIO:
        try:
            if self._path is None:
                return target.open("wb", buffering=0)
            return self._path.open("wb" if self._path == self._final else "xb")
        except OSError as error:
            self._encoder.close()
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> OscineError:
        return OutputError(f"cannot write {self.name}: {error.strerror or error}")

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
            if self._path is None or self._path == self._final:
                self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Completes the file under its name; on failure nothing of it is left."""
        try:
            self._put(self._encoder.finish())
            self._complete()
        except BaseException:
            self.abort()
            raise
        if self.num_clipped:
            _log.warning("%s: %d of %d samples clipped", self.name, self.num_clipped, self.num_samples)

    def _complete(self) -> None:
        try:
            for offset, piece in self._encoder.patches if self._path else []:
                self._file.seek(offset)
                self._file.write(piece)
            self._file.flush()
            if self._path and self._final:
                os.fsync(self._file.fileno())
                self._file.close()
                os.replace(self._path, self._final)
                self._completed = True
            elif self._owned:
                self._file.close()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._failure(error) from error

    def abort(self) -> None:
        """Gives up: what was written is removed and, unless in place, the target stays as it was. Idempotent."""
        self._encoder.close()
        if not self._owned:
            return
        try:
            self._file.close()
        except OSError as error:  # a full disk shows again when the buffer is flushed
            _log.debug("closing %s: %s", self.name, error)
        if self._path is not None and not self._completed:
            self._path.unlink(missing_ok=True)

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
