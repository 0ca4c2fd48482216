"""Opens recordings with libsndfile: wav, aiff, au, caf, flac, mp3 and ogg."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import BinaryIO

import soundfile as sf

from oscine.audio.containers import Container
from oscine.audio.recording import Block, Recording, Unreadable

_BLOCK = 1 << 17
"""Samples read at a time, of all channels together."""
_UNKNOWN = 1 << 62
"""A stated length from here on means that none is stated."""


class _ForwardReader(sf.SoundFile):  # type: ignore[misc]  # soundfile has no types
    """A SoundFile read from front to back; seeking between blocks fails in a flac that states no length."""

    def seekable(self) -> bool:
        return False


def open_with_sndfile(stream: BinaryIO, container: Container, opened: ExitStack) -> Recording:
    """The recording in `stream`, which has no name: libsndfile would choose a parser by it. `opened` closes it.

    Raises Unreadable, also if the file turns out to be of another container than its first bytes say.
    """
    try:
        file = opened.enter_context(_ForwardReader(stream))
    except (sf.SoundFileError, TypeError, ValueError) as error:
        raise Unreadable(f"libsndfile: {error}") from error
    if file.format not in container.sndfile:
        raise Unreadable(f"libsndfile takes it for {file.format}")
    return Recording(
        rate=file.samplerate,
        num_channels=file.channels,
        num_frames=file.frames if 0 <= file.frames < _UNKNOWN else None,
        blocks=_blocks(file),
    )


def _blocks(file: sf.SoundFile) -> Iterator[Block]:
    num_frames = max(1, _BLOCK // file.channels)
    try:
        while len(block := file.read(num_frames, dtype="float32", always_2d=True)):
            yield block
    except sf.SoundFileError as error:
        raise Unreadable(f"libsndfile: {error}") from error
