"""Named voices a user has made, one safetensors file each, in a folder that survives upgrades."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from safetensors.numpy import load, save

from oscine.checkpoint.voice_names import check_voice_name
from oscine.errors import OscineError, OutputError, UnknownVoice, VoiceExists
from oscine.registry import families
from oscine.types import Voice

_log = logging.getLogger(__name__)

MAX_FILE_BYTES = 64 << 20
"""A larger file is no voice: a minute of codes takes about a hundred kilobytes."""

_FORMATS = ("oscine-voice-2", "oscine-voice-1")
"""What is written, and what earlier releases wrote: there the only tensor was `codes`, and no version was stated."""
_SUFFIX = ".safetensors"
_PART = re.compile(r"\..+\.[0-9a-f]{8}\.part")
_TEXT_FIELDS = ("family", "codec", "description", "language")

_Version = tuple[int, int, int]
"""Inode, time of the last change in ns, size: a file is read again when one of them changes."""


def data_home() -> Path:
    """The folder of the user's data: `OSCINE_HOME` if set, else `oscine` under the XDG data folder."""
    own = os.environ.get("OSCINE_HOME")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_DATA_HOME")
    return (Path(shared) if shared else Path.home() / ".local" / "share") / "oscine"


class VoiceStore:
    """Voices in the folder `directory`, by default `voices` under `data_home()`; made when the first is added.

    Names differ by more than case: a file is named by its voice's name in small letters. Several processes may share a
    folder; files are read again when they change.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self.directory = Path(directory).expanduser() if directory is not None else data_home() / "voices"
        self._seen: dict[str, tuple[_Version, Voice | None]] = {}

    def list(self) -> list[Voice]:
        """All voices by name; whatever is no voice is skipped, with a warning that says why."""
        found = {path.name: self._load(path) for path in self._paths()}
        self._seen = {name: seen for name, seen in self._seen.items() if name in found}
        return sorted((voice for voice in found.values() if voice is not None), key=lambda voice: voice.name)

    def get(self, name: str) -> Voice:
        """The voice of that name. Raises UnknownVoice, which lists the names."""
        for voice in self.list():
            if voice.name == name:
                return voice
        raise self._unknown(name)

    def check_new(self, name: str) -> None:
        """Raises InvalidRequest for a name that no stored voice may have, VoiceExists for one that is taken."""
        check_voice_name(name)
        if any(_stem(path).lower() == name.lower() for path in self._paths()):
            raise _exists(name)

    def add(self, voice: Voice) -> None:
        """Stores a voice for good, whole or not at all. Raises as `check_new`, and OutputError."""
        self.check_new(voice.name)
        target = self.directory / (voice.name.lower() + _SUFFIX)
        try:
            self._make_folder()
            with self._part(voice.name) as (part, file):
                with open(file, "wb", closefd=False) as writer:
                    writer.write(_to_bytes(voice))
                os.fsync(file)
                try:
                    os.link(part, target)  # fails, unlike a rename, if another process was faster
                except FileExistsError:
                    raise _exists(voice.name) from None
            _sync_folder(self.directory)
        except OSError as error:
            raise OutputError(f"cannot store a voice in {self.directory}: {error.strerror or error}") from error

    def remove(self, name: str) -> None:
        """Deletes a stored voice, or a damaged file of that name. Raises UnknownVoice, OutputError."""
        path = next((path for path in self._paths() if self._name_of(path) == name), None)
        if path is None:
            raise self._unknown(name)
        try:
            path.unlink()
            _sync_folder(self.directory)
        except FileNotFoundError:
            raise self._unknown(name) from None
        except OSError as error:
            raise OutputError(f"cannot remove {path}: {error.strerror or error}") from error

    def clean(self) -> None:
        """Removes what processes that were killed while they stored a voice have left; those at work hold a lock."""
        for path in self._entries():
            if not _PART.fullmatch(path.name):
                continue
            with suppress(OSError), _opened(path, os.O_RDONLY) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                _log.warning("removed %r, which a process has left unfinished", str(path))

    def _make_folder(self) -> None:
        if not self.directory.is_dir():
            self.directory.mkdir(parents=True, exist_ok=True)
            _sync_folder(self.directory.parent)

    @contextmanager
    def _part(self, name: str) -> Iterator[tuple[Path, int]]:
        """A new file to write a voice to before it has its name, and its descriptor, locked; gone after the block."""
        while True:
            path = self.directory / f".{name}.{secrets.token_hex(4)}.part"
            with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
                with suppress(OSError):  # where a filesystem has no locks, `clean` gets none either
                    fcntl.flock(file, fcntl.LOCK_EX)
                if not os.fstat(file).st_nlink:  # `clean` of another process came between
                    continue
                try:
                    yield path, file
                finally:
                    path.unlink(missing_ok=True)
                return

    def _entries(self) -> Sequence[Path]:
        try:
            return sorted(self.directory.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            _log.warning("cannot read the folder of voices %s: %s", self.directory, error.strerror or error)
            return []

    def _paths(self) -> Sequence[Path]:
        """What is named like a voice's file."""
        return [path for path in self._entries() if path.name.endswith(_SUFFIX) and not path.name.startswith(".")]

    def _name_of(self, path: Path) -> str:
        """The name of the voice in a file, or what the name of a damaged one would be."""
        voice = self._load(path)
        return voice.name if voice else _stem(path)

    def _unknown(self, name: str) -> UnknownVoice:
        names = ", ".join(voice.name for voice in self.list()) or "none"
        return UnknownVoice(f"no stored voice named {name!r}; stored: {names}", param="voice")

    def _load(self, path: Path) -> Voice | None:
        """The voice in a file; None, with a warning the first time, if there is none in it."""
        try:
            status = path.lstat()
        except OSError:  # removed since the folder was listed
            return None
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        known = self._seen.get(path.name)
        if known is None or known[0] != version:
            known = version, _read(path)
            self._seen[path.name] = known
        return known[1]


def _stem(path: Path) -> str:
    return path.name.removesuffix(_SUFFIX)


def _exists(name: str) -> VoiceExists:
    return VoiceExists(f"there is a voice named {name!r} already; remove it first or choose another name", param="name")


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """A descriptor of a regular file: no link is followed, and nothing waits for the other end of a pipe.

    Raises OSError, also for what is no regular file.
    """
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError("it is no regular file")
        yield file
    finally:
        os.close(file)


def _sync_folder(path: Path) -> None:
    """Returns once the list of names in a folder is on the disk, where the filesystem knows how to do that."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            os.fsync(file)
    finally:
        os.close(file)


def _to_bytes(voice: Voice) -> bytes:
    metadata = {name: str(getattr(voice, name)) for name in _TEXT_FIELDS}
    metadata |= {"format": _FORMATS[0], "name": voice.name, "version": str(voice.version)}
    if voice.transcript is not None:
        metadata["transcript"] = voice.transcript
    if voice.speaker is not None:
        metadata["speaker"] = str(voice.speaker)
    return save({name: np.ascontiguousarray(value) for name, value in voice.tensors.items()}, metadata)


def _read(path: Path) -> Voice | None:
    """The voice in a file; None, with a warning, if it is damaged or something else.

    Whatever is wrong with a file is the fault of this one: no error of any kind reaches those who ask for other voices.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ValueError("it is no regular file")
        with _opened(path, os.O_RDONLY) as file:
            size = os.fstat(file).st_size
            if size > MAX_FILE_BYTES:
                raise ValueError(f"it has {size} bytes; a voice has {MAX_FILE_BYTES} at most")
            with open(file, "rb", closefd=False) as reader:
                data = reader.read(MAX_FILE_BYTES)
        return _from_bytes(data, _stem(path))
    except Exception as error:
        reason = error.message if isinstance(error, OscineError) else str(error)
        _log.warning("voice file %r is skipped: %s", str(path), reason)
        return None


def _from_bytes(data: bytes, stem: str) -> Voice:
    """The voice in a file's bytes. Raises whatever is wrong with them."""
    tensors = load(data)
    metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {})
    if metadata.get("format") not in _FORMATS:
        raise ValueError(f"not a file of format {' or '.join(_FORMATS)}")
    name = metadata.get("name", stem)
    if name.lower() != stem.lower():  # the file was given another name, so its voice was
        name = stem
    speaker = metadata.get("speaker")
    voice = Voice(
        name=check_voice_name(name),
        version=int(metadata.get("version", 1)),
        tensors=tensors,
        transcript=metadata.get("transcript"),
        speaker=None if speaker is None else int(speaker),
        **{name: metadata.get(name, "") for name in _TEXT_FIELDS},
    )
    for spec in families():  # a voice of a family that is not installed is kept as it is
        if spec.name == voice.family:
            spec.check_voice(voice)
    return voice
