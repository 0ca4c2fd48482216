"""Named voices a user has made, one safetensors file each, in a folder that survives upgrades."""

from __future__ import annotations

import logging
import os
import re
import secrets
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from oscine.errors import InvalidRequest, OutputError, UnknownVoice, VoiceExists
from oscine.types import Voice

_log = logging.getLogger(__name__)

_FORMAT = "oscine-voice-1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SUFFIX = ".safetensors"
_TEXT_FIELDS = ("family", "codec", "description", "language")


def data_home() -> Path:
    """The folder of the user's data: `OSCINE_HOME` if set, else `oscine` under the XDG data folder."""
    own = os.environ.get("OSCINE_HOME")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_DATA_HOME")
    return (Path(shared) if shared else Path.home() / ".local" / "share") / "oscine"


def check_voice_name(name: str) -> str:
    """The name if a voice may have it; else InvalidRequest. It becomes a file name, so its alphabet is small."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} cannot name a voice: 1 to 64 letters, digits, '-', '_' or '.', beginning with a letter or digit",
            param="name",
        )
    return name


class VoiceStore:
    """Voices in the folder `directory`, by default `voices` under `data_home()`; made when the first is added.

    Names differ by more than case. Several processes may share a folder; files are read again when they change.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self.directory = Path(directory).expanduser() if directory is not None else data_home() / "voices"
        self._seen: dict[Path, tuple[tuple[int, int], Voice | None]] = {}

    def list(self) -> list[Voice]:
        """All voices by name; a damaged file is skipped with a warning."""
        if not self.directory.is_dir():
            return []
        found = (self._load(path) for path in sorted(self.directory.glob(f"*{_SUFFIX}")))
        return [voice for voice in found if voice is not None]

    def get(self, name: str) -> Voice:
        """The voice of that name. Raises UnknownVoice, which lists the names."""
        for voice in self.list():
            if voice.name == name:
                return voice
        raise self._unknown(name)

    def add(self, voice: Voice) -> None:
        """Stores a voice, whole or not at all. Raises VoiceExists, InvalidRequest for its name, OutputError."""
        check_voice_name(voice.name)
        if self._path(voice.name) is not None:
            raise VoiceExists(
                f"there is a voice named {voice.name!r} already; remove it first or choose another name", param="name"
            )
        target = self.directory / (voice.name + _SUFFIX)
        temporary = target.with_name(f".{voice.name}.{secrets.token_hex(4)}.part")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(_to_bytes(voice))
            os.link(temporary, target)  # fails, unlike a rename, if another process was faster
        except FileExistsError:
            raise VoiceExists(f"there is a voice named {voice.name!r} already", param="name") from None
        except OSError as error:
            raise OutputError(f"cannot store a voice in {self.directory}: {error.strerror or error}") from error
        finally:
            if temporary.exists():
                temporary.unlink()

    def remove(self, name: str) -> None:
        """Deletes a stored voice. Raises UnknownVoice, OutputError."""
        path = self._path(name, exact=True)
        if path is None:
            raise self._unknown(name)
        try:
            path.unlink()
        except FileNotFoundError:
            raise self._unknown(name) from None
        except OSError as error:
            raise OutputError(f"cannot remove {path}: {error.strerror or error}") from error

    def _path(self, name: str, *, exact: bool = False) -> Path | None:
        """The file of that name, whatever its case unless `exact`; damaged files count, so that they can be removed."""
        if not self.directory.is_dir():
            return None
        for path in self.directory.glob(f"*{_SUFFIX}"):
            stem = path.name.removesuffix(_SUFFIX)
            if stem == name or (not exact and stem.lower() == name.lower()):
                return path
        return None

    def _unknown(self, name: str) -> UnknownVoice:
        names = ", ".join(voice.name for voice in self.list()) or "none"
        return UnknownVoice(f"no stored voice named {name!r}; stored: {names}", param="voice")

    def _load(self, path: Path) -> Voice | None:
        try:
            status = path.stat()
        except FileNotFoundError:  # removed since the folder was listed
            return None
        version = (status.st_mtime_ns, status.st_size)
        known = self._seen.get(path)
        if known is None or known[0] != version:
            known = version, _read(path)
            self._seen[path] = known
        return known[1]


def _to_bytes(voice: Voice) -> bytes:
    metadata = {name: str(getattr(voice, name)) for name in _TEXT_FIELDS} | {"format": _FORMAT, "name": voice.name}
    if voice.transcript is not None:
        metadata["transcript"] = voice.transcript
    if voice.speaker is not None:
        metadata["speaker"] = str(voice.speaker)
    tensors = {} if voice.codes is None else {"codes": np.ascontiguousarray(voice.codes, dtype=np.int64)}
    return save(tensors, metadata)


def _read(path: Path) -> Voice | None:
    """The voice in a file; None, with a warning, if it is damaged or something else."""
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            codes = file.get_tensor("codes") if "codes" in file.keys() else None  # noqa: SIM118 (not a mapping)
        if metadata.get("format") != _FORMAT:
            raise ValueError(f"not a file of format {_FORMAT}")
        speaker = metadata.get("speaker")
        return Voice(
            name=path.name.removesuffix(_SUFFIX),
            codes=None if codes is None else _checked_codes(codes),
            transcript=metadata.get("transcript"),
            speaker=None if speaker is None else int(speaker),
            **{name: metadata.get(name, "") for name in _TEXT_FIELDS},
        )
    except (SafetensorError, ValueError, OSError) as error:
        _log.warning("voice file %s is skipped: %s", path, error)
        return None


def _checked_codes(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if codes.dtype != np.int64 or codes.ndim != 2 or not codes.size or codes.min() < 0:
        raise ValueError(f"its codes are {codes.dtype} {codes.shape}, expected int64 [codebook, frame] of at least 0")
    return codes
