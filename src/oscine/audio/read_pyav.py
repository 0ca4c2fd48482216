"""Opens recordings with FFmpeg (PyAV): what libsndfile does not read.

FFmpeg is told which demuxer to use and which codecs it may; it reads the bytes it is given and opens nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, BinaryIO, NoReturn, cast

import av

from oscine.audio.containers import Container
from oscine.audio.recording import Block, Recording, Unreadable

CODECS = (
    *("aac", "alac", "flac", "mp3", "mp3float", "mp2", "mp2float", "opus", "libopus", "vorbis"),
    *("wmav1", "wmav2", "wmapro", "wmalossless", "wmavoice", "ac3", "eac3", "speex", "gsm", "gsm_ms", "ilbc"),
    *("amrnb", "amrwb", "libopencore_amrnb", "libopencore_amrwb"),
    *("adpcm_ima_wav", "adpcm_ima_qt", "adpcm_ms", "pcm_alaw", "pcm_mulaw", "pcm_s8", "pcm_u8"),
    *("pcm_s16le", "pcm_s16be", "pcm_s24le", "pcm_s24be", "pcm_s32le", "pcm_s32be"),
    *("pcm_f32le", "pcm_f32be", "pcm_f64le", "pcm_f64be"),
)
"""The decoders that are used: sound only, so that no picture is ever decoded."""
_OPTIONS = {
    "codec_whitelist": ",".join(CODECS),
    "protocol_whitelist": "none",
    "max_streams": "16",
    "probesize": str(1 << 20),
}
_MOV_OPTIONS = {"enable_drefs": "0", "use_absolute_path": "0"}
_ERRORS = (av.FFmpegError, ValueError, MemoryError)


class _OpeningRefused(av.FFmpegError):
    """FFmpeg wanted to open something beside the bytes it was given."""


def open_with_ffmpeg(stream: BinaryIO, container: Container, opened: ExitStack) -> Recording:
    """The first sound in `stream` that can be decoded; `opened` closes it. Raises Unreadable."""
    options = _OPTIONS | {"format_whitelist": container.demuxer} | (_MOV_OPTIONS if container.demuxer == "mov" else {})
    try:
        file = opened.enter_context(
            av.open(stream, mode="r", format=container.demuxer, container_options=options, io_open=_open_nothing)
        )
        sound = _choose(file)
        context = sound.codec_context
        return Recording(
            rate=context.sample_rate,
            num_channels=context.layout.nb_channels,
            num_frames=_stated_length(file, sound) if container.states_length else None,
            blocks=_blocks(file, sound),
        )
    except _ERRORS as error:
        raise Unreadable(f"FFmpeg: {error}") from error


def _open_nothing(url: str, flags: int, options: object) -> NoReturn:
    raise _OpeningRefused(1, "nothing else is opened")


def _choose(file: Any) -> Any:
    """The first stream of sound with a codec that is decoded."""
    for sound in file.streams.audio:
        if sound.codec_context is not None and sound.codec_context.name in CODECS:
            return sound
    raise Unreadable("no stream of sound that is decoded")


def _stated_length(file: Any, sound: Any) -> int | None:
    """Frames by the header, rounded down; None where it says nothing."""
    if sound.duration is not None and sound.time_base is not None:
        seconds = float(sound.duration * sound.time_base)
    else:
        seconds = (file.duration or 0) / av.time_base
    num_frames = math.floor(seconds * sound.codec_context.sample_rate)
    return num_frames if num_frames > 0 else None


def _blocks(file: Any, sound: Any) -> Iterator[Block]:
    try:
        resampler = av.AudioResampler(format="fltp", rate=sound.codec_context.sample_rate)
        for frame in file.decode(sound):
            for part in resampler.resample(frame):
                yield cast(Block, part.to_ndarray().T)
    except _ERRORS as error:
        raise Unreadable(f"FFmpeg: {error}") from error
