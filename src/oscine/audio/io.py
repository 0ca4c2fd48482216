"""Reads audio a user brings into checked mono samples, whatever its container, width, channels and rate."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

from oscine.audio.limits import MAX_BYTES, REFERENCE_SECONDS, ReadLimits
from oscine.audio.recording import Block, Recording, mono_blocks, open_recording
from oscine.errors import InputTooLong
from oscine.types import AudioInput, Samples

AudioSource = str | os.PathLike[str] | bytes | bytearray | BinaryIO | tuple[npt.ArrayLike, int] | AudioInput

_BLOCK = 1 << 16  # frames of an array looked at together


def read_audio(
    source: AudioSource,
    *,
    min_seconds: float = REFERENCE_SECONDS[0],
    max_seconds: float | None = REFERENCE_SECONDS[1],
    max_bytes: int = MAX_BYTES,
    param: str = "ref_audio",
) -> AudioInput:
    """The audio of a path, bytes, binary file object, or (array, rate) as mono float32 at its own rate.

    The containers of `oscine.audio.containers` are read, told by their content and never by a name; those that
    libsndfile does not know if PyAV is installed. Nothing but the file itself is opened, whatever it says. Channels
    are averaged, integers scaled to [-1, 1], and audio beyond that scaled down as a whole (`peak_limit`). An array is
    [sample], [sample, channel] or [channel, sample]. Rate, channels and length are judged by the header, before
    anything is decoded. Raises BadAudio for what is missing, unreadable, empty, non-finite, silent, too short or too
    long; InputTooLong for too many bytes. `param` is the request field those errors name.
    """
    limits = ReadLimits(min_seconds=min_seconds, max_seconds=max_seconds, max_bytes=max_bytes, param=param)
    if isinstance(source, AudioInput):
        return _checked(source, limits)
    if isinstance(source, tuple):
        recording = _of_array(_from_array(source[0], limits), source[1], limits)
        return AudioInput(samples=collect(mono_blocks(recording, limits)), sample_rate=int(source[1]))
    with _open(source, limits) as stream, open_recording(stream, limits) as recording:
        return AudioInput(samples=collect(mono_blocks(recording, limits)), sample_rate=recording.rate)


def peak_limit(samples: Samples, ceiling: float = 1.0) -> Samples:
    """`samples` with one gain for the whole so that no value exceeds `ceiling`; unchanged if none does."""
    gain = _gain(samples, ceiling)
    return samples if gain is None else samples * gain


def collect(blocks: Iterable[Samples]) -> Samples:
    """The blocks as one array that owns its memory, with one gain for the whole so that no value exceeds 1.

    It grows in place: there are never two copies of a long recording.
    """
    samples, size = np.empty(0, np.float32), 0
    for block in blocks:
        end = size + len(block)
        if end > len(samples):
            samples.resize(max(end, len(samples) * 17 // 16), refcheck=False)
        samples[size:end] = block
        size = end
    samples.resize(size, refcheck=False)
    gain = _gain(samples, 1.0)
    if gain is not None:
        samples *= gain
    return samples


def _gain(samples: Samples, ceiling: float) -> np.float32 | None:
    """What to multiply by so that no value exceeds `ceiling`; None if none does."""
    peak = max(float(samples.max(initial=0.0)), -float(samples.min(initial=0.0)))
    return None if peak <= ceiling else np.float32(ceiling / peak)


@contextmanager
def _open(source: object, limits: ReadLimits) -> Iterator[BinaryIO]:
    """A seekable binary stream without a name: nothing is chosen by it."""
    if isinstance(source, bytes | bytearray | memoryview):
        yield in_memory(bytes(source), limits)
    elif isinstance(source, str | os.PathLike):
        with _open_path(Path(source), limits) as file:
            yield file
    elif hasattr(source, "read"):
        yield in_memory(cast(BinaryIO, source).read(limits.max_bytes + 1), limits)
    else:
        raise TypeError(f"audio must be a path, bytes, a file or (array, rate), got {type(source).__name__}")


def in_memory(data: object, limits: ReadLimits) -> BinaryIO:
    """A stream of the bytes `data`. Raises BadAudio for what is not bytes, InputTooLong for too many."""
    if not isinstance(data, bytes):
        raise limits.refuse("the file object must be opened in binary mode")
    if len(data) > limits.max_bytes:
        raise InputTooLong(
            f"{limits.param}: more than {limits.max_bytes} bytes; the limit is {limits.max_bytes}", param=limits.param
        )
    return cast(BinaryIO, _Nameless(io.BytesIO(data)))


@contextmanager
def _open_path(path: Path, limits: ReadLimits) -> Iterator[BinaryIO]:
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
    """A file without its name. A place outside of it, as damaged headers name, is taken for the nearest one inside."""

    def __init__(self, file: BinaryIO) -> None:
        self.read, self.tell = file.read, file.tell
        self.readinto = getattr(file, "readinto", None)
        self._seek = file.seek
        self._size = file.seek(0, io.SEEK_END)
        file.seek(0)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._size}[whence]
        return self._seek(min(max(base + offset, 0), self._size))

    def write(self, data: bytes) -> int:
        raise io.UnsupportedOperation("read only")


def _from_array(array: npt.ArrayLike, limits: ReadLimits) -> Block:
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
    samples = values.astype(np.float32, copy=False)
    if samples.ndim == 1:
        return samples[:, None]
    return samples.T if samples.shape[0] <= 8 < samples.shape[1] else samples


def _of_array(channels: Block, rate: int, limits: ReadLimits) -> Recording:
    """Samples [sample, channel] as a recording. Raises BadAudio as for one with such a header."""
    limits.check_header(rate, max(channels.shape[1], 1), len(channels))
    blocks = (channels[begin : begin + _BLOCK] for begin in range(0, len(channels), _BLOCK))
    return Recording(rate=rate, num_channels=channels.shape[1], num_frames=len(channels), blocks=blocks)


def _checked(audio: AudioInput, limits: ReadLimits) -> AudioInput:
    """`audio` if it can be used as it is: what has been read once is not copied when it is read again."""
    recording = _of_array(_from_array(audio.samples, limits), audio.sample_rate, limits)
    if audio.samples.dtype != np.float32 or audio.samples.ndim != 1 or _gain(audio.samples, 1.0) is not None:
        return AudioInput(samples=collect(mono_blocks(recording, limits)), sample_rate=int(audio.sample_rate))
    for _ in mono_blocks(recording, limits):
        pass
    return audio
