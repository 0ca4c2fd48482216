"""Writes audio files: whole or not at all, as they are produced or at once."""

from __future__ import annotations

import logging
import os
import secrets
import stat
from contextlib import suppress
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

    The bytes of a file go to a temporary one beside it, which replaces it on `close` and is removed on `abort`, so that
    what was there stays until all is written. With `in_place` a file that is new grows under its own name, to be read
    meanwhile; one that is there already is replaced at the end all the same. An open binary file (closing it is the
    caller's), a pipe or a device is written as a stream, flushed with every call. `seed` as in `open_encoder`. Failures
    raise OutputError, except BrokenPipeError: a reader that has gone.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | BinaryIO,
        sample_rate: int,
        format: str | None = None,
        *,
        in_place: bool = False,
        seed: int = 0,
    ) -> None:
        self.num_samples = 0
        self.num_clipped = 0
        self._path: Path | None = None  # what `close` completes and `abort` removes
        self._final: Path | None = None
        if isinstance(target, (str, os.PathLike)):
            self.name = repr(str(target))
            self._set_final(Path(os.path.realpath(target)))
            name = format_of(target, format)
            self._encoder = open_encoder(name, sample_rate, seekable=self._final is not None, seed=seed)
            self._file = self._create(Path(target), in_place)
        else:
            self.name = getattr(target, "name", "the output")
            self._encoder = open_encoder(format or "wav", sample_rate, seed=seed)
            self._file = target
        self._completed = False
        self._owned = self._file is not target
        self.sample_rate = self._encoder.sample_rate
        self.format = self._encoder.format.name

    def _set_final(self, final: Path) -> None:
        if final.is_dir():
            raise OutputError(f"cannot write {self.name}: it is a folder")
        if not final.exists() or final.is_file():  # else a pipe or a device: there is nothing to complete or remove
            self._final = final

    def _create(self, target: Path, in_place: bool) -> BinaryIO:
        try:
            if self._final is None:
                return target.open("wb", buffering=0)
            if in_place:
                with suppress(FileExistsError):
                    return self._opened(self._final)
            return self._opened(self._final.with_name(f".{self._final.name[:40]}.{secrets.token_hex(4)}.part"))
        except OSError as error:
            self._encoder.close()
            raise self._failure(error) from error

    def _opened(self, path: Path) -> BinaryIO:
        """The new file `path`, which is ours from now on."""
        file = path.open("xb")
        self._path = path
        return file

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
                if self._path != self._final:
                    self._keep_mode(self._final)
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

    def _keep_mode(self, old: Path) -> None:
        """Gives the new file the permissions of the one it replaces, if there is one."""
        with suppress(FileNotFoundError):
            os.fchmod(self._file.fileno(), stat.S_IMODE(old.stat().st_mode))

    def abort(self) -> None:
        """Gives up: what was written is removed and what was there before stays. Idempotent."""
        self._encoder.close()
        if not self._owned:
            return
        if not self._completed:
            self._remove_own()
        try:
            self._file.close()
        except OSError as error:  # a full disk shows again when the buffer is flushed
            _log.debug("closing %s: %s", self.name, error)

    def _remove_own(self) -> None:
        """Removes what was written, unless another file has come to stand in its place."""
        if self._path is None or self._file.closed:
            return
        with suppress(FileNotFoundError):
            if os.path.samestat(self._path.lstat(), os.fstat(self._file.fileno())):
                self._path.unlink()

    def __enter__(self) -> AudioWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def write_audio(
    path: str | os.PathLike[str], samples: Samples, sample_rate: int, format: str | None = None, *, seed: int = 0
) -> None:
    """Writes mono samples [sample] to `path` in the format of its ending, or `format`; 16 bits where that applies.

    Whole or not at all; `seed` as in `open_encoder`. Raises OutputError (unknown ending, no permission, full disk) and
    NonFiniteOutput.
    """
    with AudioWriter(path, sample_rate, format, seed=seed) as writer:
        writer.write(samples)
