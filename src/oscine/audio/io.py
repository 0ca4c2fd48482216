"""Reads audio a user brings into checked mono samples, whatever its container, width, channels and rate."""

from __future__ import annotations

import importlib.util
import io
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt
import soundfile as sf

from oscine.audio.resample import MAX_RATE
from oscine.errors import BadAudio, InputTooLong
from oscine.types import AudioInput, Samples

_log = logging.getLogger(__name__)

AudioSource = str | os.PathLike[str] | bytes | bytearray | BinaryIO | tuple[npt.ArrayLike, int] | AudioInput

REFERENCE_SECONDS = (0.5, 60.0)
"""Shortest and longest reference audio by default."""
MAX_BYTES = 256 << 20
MIN_RATE = 4_000
SILENCE_DBFS = -60.0
_BLOCK = 1 << 16  # sample frames read at a time


@dataclass(frozen=True, kw_only=True)
class _Limits:
    """What is accepted, and the request field named in errors."""

    min_seconds: float
    max_seconds: float | None
    max_bytes: int
    param: str

    def refuse(self, problem: str) -> BadAudio:
        return BadAudio(f"{self.param}: {problem}", param=self.param)

    def refuse_long(self, seconds: float, rate: int) -> BadAudio:
        length = f"{seconds:.1f} s" if seconds else f"more than {self.max_seconds:g} s"
        return self.refuse(
            f"the audio is {length} long at {rate} Hz; the limit is {self.max_seconds:g} s. "
            "Cut out 5 to 15 s of clear speech"
        )


def read_audio(
    source: AudioSource,
    *,
    min_seconds: float = REFERENCE_SECONDS[0],
    max_seconds: float | None = REFERENCE_SECONDS[1],
    max_bytes: int = MAX_BYTES,
    param: str = "ref_audio",
) -> AudioInput:
    """The audio of a path, bytes, binary file object, or (array, rate) as mono float32 at its own rate.

    Anything libsndfile reads, and anything FFmpeg reads if PyAV is installed. Channels are averaged, integers scaled
    to [-1, 1], and audio beyond that scaled down as a whole (`peak_limit`). An array is [sample], [sample, channel]
    or [channel, sample]. A file too long by its header is refused unread. Raises BadAudio for what is missing,
    unreadable, empty, non-finite, silent, too short or too long; InputTooLong for too many bytes. `param` is the
    request field those errors name.
    """
    limits = _Limits(min_seconds=min_seconds, max_seconds=max_seconds, max_bytes=max_bytes, param=param)
    if isinstance(source, AudioInput):
        channels, rate = _from_array(source.samples, limits), source.sample_rate
    elif isinstance(source, tuple):
        channels, rate = _from_array(source[0], limits), source[1]
    else:
        with _open(source, limits) as stream:
            channels, rate = _decode(stream, limits)
    return AudioInput(samples=_checked(channels, rate, limits), sample_rate=int(rate))


def peak_limit(samples: Samples, ceiling: float = 1.0) -> Samples:
    """`samples` with one gain for the whole so that no value exceeds `ceiling`; unchanged if none does."""
    peak = float(np.abs(samples).max(initial=0.0))
    return samples if peak <= ceiling else (samples * np.float32(ceiling / peak)).astype(np.float32)


@contextmanager
def _open(source: object, limits: _Limits) -> Iterator[BinaryIO]:
    """A seekable binary stream without a name (a name ending in .raw would mislead libsndfile)."""
    if isinstance(source, bytes | bytearray | memoryview):
        yield _in_memory(bytes(source), limits)
    elif isinstance(source, str | os.PathLike):
        with _open_path(Path(source), limits) as file:
            yield file
    elif hasattr(source, "read"):
        yield _in_memory(cast(BinaryIO, source).read(limits.max_bytes + 1), limits)
    else:
        raise TypeError(f"audio must be a path, bytes, a file or (array, rate), got {type(source).__name__}")


def _in_memory(data: object, limits: _Limits) -> BinaryIO:
    if not isinstance(data, bytes):
        raise limits.refuse("the file object must be opened in binary mode")
    if len(data) > limits.max_bytes:
        raise InputTooLong(
            f"{limits.param}: more than {limits.max_bytes} bytes; the limit is {limits.max_bytes}", param=limits.param
        )
    return io.BytesIO(data)


@contextmanager
def _open_path(path: Path, limits: _Limits) -> Iterator[BinaryIO]:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise limits.refuse(f"{str(path)!r} is {kind}; give an audio file")
        file = path.open("rb")
    except FileNotFoundError:
        raise limits.refuse(f"no such file: {str(path)!r}") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise limits.refuse(f"cannot open {str(path)!r}: {error}") from error
    with file:
        yield cast(BinaryIO, _Nameless(file))


class _Nameless:
    """A file without its name; soundfile chooses a reader by name, we want it chosen by content."""

    def __init__(self, file: BinaryIO) -> None:
        self.read, self.seek, self.tell = file.read, file.seek, file.tell
        self.readinto = getattr(file, "readinto", None)

    def write(self, data: bytes) -> int:
        raise io.UnsupportedOperation("read only")


class _ForwardReader(sf.SoundFile):  # type: ignore[misc]  # soundfile has no types
    """A SoundFile read from front to back; seeking between blocks fails in a flac that states no length."""

    def seekable(self) -> bool:
        return False


def _decode(stream: BinaryIO, limits: _Limits) -> tuple[npt.NDArray[np.float32], int]:
    """Samples [sample, channel] and rate of an encoded stream."""
    stream.seek(0, io.SEEK_END)
    if not stream.tell():
        raise limits.refuse("the audio is empty (0 bytes)")
    stream.seek(0)
    try:
        file = _ForwardReader(stream)
    except (sf.LibsndfileError, TypeError) as error:
        return _decode_with_ffmpeg(stream, limits, error)
    with file:
        try:
            return _read_blocks(file, limits), file.samplerate
        except sf.LibsndfileError as error:
            raise limits.refuse(f"the file is damaged or cut off ({_reason(error)})") from error


def _read_blocks(file: sf.SoundFile, limits: _Limits) -> npt.NDArray[np.float32]:
    """All samples of an open SoundFile; by blocks, since a streamed file may not state its length."""
    rate = file.samplerate
    unknown = file.frames > 1 << 62
    if limits.max_seconds is not None and not unknown and file.frames > limits.max_seconds * rate:
        raise limits.refuse_long(file.frames / rate, rate)
    ceiling = None if limits.max_seconds is None else int(limits.max_seconds * rate)
    blocks: list[npt.NDArray[np.float32]] = []
    total = 0
    while len(block := file.read(_BLOCK, dtype="float32", always_2d=True)):
        blocks.append(block)
        total += len(block)
        if ceiling is not None and total > ceiling:
            raise limits.refuse_long(0.0, rate)
    if not unknown and total < file.frames:
        _log.warning("audio ends after %d of the %d samples its header states", total, file.frames)
    return np.concatenate(blocks) if blocks else np.zeros((0, 1), np.float32)


def _decode_with_ffmpeg(
    stream: BinaryIO, limits: _Limits, first_error: Exception
) -> tuple[npt.NDArray[np.float32], int]:
    if importlib.util.find_spec("av") is None:
        raise limits.refuse(
            f"cannot read it as audio ({_reason(first_error)}). wav, flac, mp3, ogg and opus are read; "
            "'pip install oscine[server]' reads more (m4a, webm, ...)"
        ) from first_error
    from oscine.audio.pyav import decode

    stream.seek(0)
    try:
        samples, rate, too_long = decode(stream, max_seconds=limits.max_seconds)
    except BadAudio as error:
        raise limits.refuse(f"cannot read it as audio ({error.message})") from error
    if too_long:
        raise limits.refuse_long(0.0, rate)
    return samples[:, None], rate


def _reason(error: Exception) -> str:
    text = getattr(error, "error_string", None) or str(error)
    return str(text).rstrip(".")


def _from_array(array: npt.ArrayLike, limits: _Limits) -> npt.NDArray[np.float32]:
    """Float32 [sample, channel] of an array of floats, or of integers at full scale."""
    values = np.asarray(array)
    if values.dtype.kind not in "fiu":
        raise limits.refuse(f"an array must hold floats or integers, got {values.dtype}")
    if values.ndim not in (1, 2):
        raise limits.refuse(f"an array must be [sample] or [sample, channel], got shape {values.shape}")
    if values.dtype.kind in "iu":
        info = np.iinfo(values.dtype)
        middle = 0 if info.min else (info.max + 1) // 2  # unsigned audio is centred on half scale
        values = (values.astype(np.float64) - middle) / ((info.max + 1) / (1 if info.min else 2))
    samples = values.astype(np.float32)
    if samples.ndim == 1:
        return samples[:, None]
    return samples.T if samples.shape[0] <= 8 < samples.shape[1] else samples


def _checked(channels: npt.NDArray[np.float32], rate: int, limits: _Limits) -> Samples:
    """Mono [sample] of [sample, channel] that can be used as it is."""
    if rate != int(rate) or not MIN_RATE <= rate <= MAX_RATE:
        raise limits.refuse(f"the sample rate is {rate} Hz; from {MIN_RATE} to {MAX_RATE} Hz is read")
    if not channels.size:
        raise limits.refuse("the audio is empty (0 samples)")
    if not np.isfinite(channels).all():
        raise limits.refuse("the audio holds NaN or infinite samples")
    seconds = len(channels) / rate
    if seconds < limits.min_seconds:
        raise limits.refuse(
            f"the audio is {seconds:.3f} s long; at least {limits.min_seconds:g} s is needed, 5 to 15 s is best"
        )
    if limits.max_seconds is not None and seconds > limits.max_seconds:
        raise limits.refuse_long(seconds, rate)
    samples = channels.mean(axis=1, dtype=np.float32)
    swing = float(np.ptp(samples.astype(np.float64))) / 2
    if swing < 10 ** (SILENCE_DBFS / 20):
        silent = float(np.ptp(channels)) / 2 < 10 ** (SILENCE_DBFS / 20)
        cause = "" if silent else f" once its {channels.shape[1]} channels are averaged: they cancel out"
        raise limits.refuse(f"the audio is silent (below {SILENCE_DBFS:g} dBFS){cause}")
    return peak_limit(samples)
