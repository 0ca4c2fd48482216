"""A recording whose header has been read and judged, and its way to mono: block by block, within the limits."""

from __future__ import annotations

import importlib.util
import io
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from oscine.audio.containers import READ, Container, recognise
from oscine.audio.limits import SILENCE_DBFS, ReadLimits
from oscine.types import Samples

_log = logging.getLogger(__name__)

Block = npt.NDArray[np.float32]
"""Samples [frame, channel]; a frame is one sample of each channel."""


class Unreadable(Exception):
    """A library cannot read the recording. What it says of it is for the log, never for clients."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """An open recording: its rate in Hz, its channels, the frames its header states (None: none), and its blocks.

    `blocks` raises Unreadable where the file is damaged.
    """

    rate: int
    num_channels: int
    num_frames: int | None
    blocks: Iterator[Block]


@contextmanager
def open_recording(stream: BinaryIO, limits: ReadLimits) -> Iterator[Recording]:
    """The recording in a seekable binary stream; nothing of it is decoded until its blocks are asked for.

    Raises BadAudio for what is empty, no audio that is read, or beyond the limits by its header.
    """
    container = check_container(stream, limits)
    with ExitStack() as opened:
        recording = _opened(stream, container, limits, opened)
        limits.check_header(recording.rate, recording.num_channels, recording.num_frames)
        yield recording


def check_container(stream: BinaryIO, limits: ReadLimits) -> Container:
    """The container of a seekable stream. Raises BadAudio for what is empty or not read; no library is asked."""
    if not stream.seek(0, io.SEEK_END):
        raise limits.refuse("the audio is empty (0 bytes)")
    container = recognise(stream)
    if container is None:
        raise limits.refuse(f"cannot read it as audio: it is none of {READ}")
    return container


def _opened(stream: BinaryIO, container: Container, limits: ReadLimits, opened: ExitStack) -> Recording:
    """The recording by libsndfile where that can read it, else by FFmpeg; `opened` closes it."""
    if container.sndfile:
        from oscine.audio.read_sndfile import open_with_sndfile

        with suppress(Unreadable):
            return open_with_sndfile(stream, container, opened)
    if importlib.util.find_spec("av") is None:
        raise limits.refuse(
            "cannot read it as audio. wav, flac, mp3, ogg and opus are read; 'pip install oscine[server]' reads more "
            "(m4a, webm, ...)"
        )
    from oscine.audio.read_pyav import open_with_ffmpeg

    stream.seek(0)
    try:
        return open_with_ffmpeg(stream, container, opened)
    except Unreadable as error:
        _log.debug("FFmpeg: %s", error)
        raise limits.refuse("cannot read it as audio: it is damaged, or of a kind that is not read") from None


def mono_blocks(recording: Recording, limits: ReadLimits) -> Iterator[Samples]:
    """The channels of a recording averaged, block by block: samples [frame].

    Raises BadAudio as soon as the audio is found to be damaged, not finite or too long, whatever its header says, and
    at the end if it was too short, empty or silent.
    """
    rate, total = recording.rate, 0
    mixed, apart = _Range(), _Range()
    try:
        for block in recording.blocks:
            total += len(block)
            if not limits.holds(total, rate):
                raise limits.too_long(None, rate)
            mono = _mixed(block)
            apart.add(block)
            mixed.add(mono)
            if not (apart.is_finite and mixed.is_finite):
                raise limits.refuse("the audio holds NaN or infinite samples")
            yield mono
    except Unreadable as error:
        _log.debug("decoding: %s", error)
        raise limits.refuse("the file is damaged or cut off") from error
    _check_all(total, recording, limits, mixed.half, apart.half)


def _check_all(total: int, recording: Recording, limits: ReadLimits, mixed: float, apart: float) -> None:
    """Raises BadAudio for what can only be said of a recording once all of it has been seen."""
    if not total:
        raise limits.refuse("the audio is empty (0 samples)")
    if recording.num_frames is not None and total < recording.num_frames:
        _log.warning("audio ends after %d of the %d samples its header states", total, recording.num_frames)
    seconds = total / recording.rate
    if seconds < limits.min_seconds:
        raise limits.refuse(
            f"the audio is {seconds:.3f} s long; at least {limits.min_seconds:g} s is needed, 5 to 15 s is best"
        )
    floor = 10 ** (SILENCE_DBFS / 20)
    if mixed < floor:
        averaged = f" once its {recording.num_channels} channels are averaged: they cancel out"
        raise limits.refuse(f"the audio is silent (below {SILENCE_DBFS:g} dBFS){averaged if apart >= floor else ''}")


def _mixed(block: Block) -> Samples:
    """The mean of the channels: [frame] of [frame, channel]."""
    mono = block[:, 0].copy()
    for channel in range(1, block.shape[1]):  # much faster than a mean over the short axis
        mono += block[:, channel]
    return mono if block.shape[1] == 1 else mono / np.float32(block.shape[1])


class _Range:
    """The lowest and the highest sample so far."""

    def __init__(self) -> None:
        self._low, self._high = np.inf, -np.inf

    def add(self, samples: npt.NDArray[np.float32]) -> None:
        if samples.size:
            self._low = min(float(samples.min()), self._low)  # in this order a NaN stays
            self._high = max(float(samples.max()), self._high)

    @property
    def is_finite(self) -> bool:
        """Whether no sample is NaN or infinite; both stay in a minimum or a maximum."""
        return self._high < self._low or bool(np.isfinite((self._low, self._high)).all())

    @property
    def half(self) -> float:
        """Half of the way from the lowest to the highest, which is the amplitude of a tone; 0 for no samples."""
        return max(self._high - self._low, 0.0) / 2
