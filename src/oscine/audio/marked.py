"""Audio files with chapter marks, tags and a cover, written through FFmpeg: m4b, mp3, opus and flac.

The same samples, marks and tags give the same bytes.
"""

from __future__ import annotations

import base64
import io
import os
import secrets
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from oscine.audio.formats import encoded_rate
from oscine.audio.resample import StreamResampler
from oscine.audio.wav import codec_input
from oscine.errors import InvalidRequest, OutputError, UnsupportedFeature
from oscine.types import Samples

MARKED_FORMATS = ("m4b", "mp3", "opus", "flac")
"""Formats that can hold the marks of chapters, by file ending."""

_FRONT_COVER = 3  # the picture type of ID3 and FLAC


@dataclass(frozen=True, kw_only=True)
class ChapterMark:
    """A named span of the audio, in samples."""

    title: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class _Container:
    """How FFmpeg names what a file ending stands for; `rate_as` names the format whose sample rates it shares."""

    muxer: str
    codec: str
    rate_as: str
    bits_per_second: int | None = None
    options: Mapping[str, str]


_CONTAINERS = {
    "m4b": _Container(muxer="mp4", codec="aac", rate_as="aac", bits_per_second=64_000, options={"brand": "M4B "}),
    "mp3": _Container(muxer="mp3", codec="libmp3lame", rate_as="mp3", bits_per_second=64_000, options={}),
    "opus": _Container(muxer="ogg", codec="libopus", rate_as="opus", bits_per_second=40_000, options={}),
    "flac": _Container(muxer="flac", codec="flac", rate_as="flac", options={}),
}


def write_marked(
    path: Path,
    blocks: Iterable[Samples],
    sample_rate: int,
    *,
    marks: Sequence[ChapterMark],
    tags: Mapping[str, str],
    cover: bytes | None = None,
) -> None:
    """Writes mono audio [sample], given in blocks, with marks, tags (FFmpeg's names) and a cover (PNG or JPEG).

    The file is whole or what was there before stays. Raises OutputError, and what `check_marked` raises.
    """
    check_marked(cover)
    container = _CONTAINERS[path.suffix.lower().lstrip(".")]
    part = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.part")
    try:
        try:
            with _Muxer(part, container, sample_rate, marks, tags, cover) as muxer:
                for block in blocks:
                    muxer.write(block)
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(part, path)
        except OSError as error:
            raise OutputError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def check_marked(cover: bytes | None = None) -> None:
    """Raises UnsupportedFeature unless what writes marked files is installed, InvalidRequest for a broken cover."""
    av = _pyav()
    if cover is None:
        return
    try:
        with _opened_picture(cover) as source:
            next(source.decode(source.streams.video[0]))
    except (av.FFmpegError, StopIteration, ValueError) as error:
        raise InvalidRequest(f"the cover is not a picture that can be read: {error}", param="cover") from error


def _pyav() -> Any:
    try:
        import av
    except ImportError as error:
        raise UnsupportedFeature(
            "chapter marks and m4b need PyAV: pip install 'oscine[books]'", param="output"
        ) from error
    return av


class _Muxer:
    """One file being written; as a context it ends, or is given up on an exception."""

    def __init__(
        self,
        path: Path,
        container: _Container,
        sample_rate: int,
        marks: Sequence[ChapterMark],
        tags: Mapping[str, str],
        cover: bytes | None,
    ) -> None:
        av = _pyav()
        self._rate = encoded_rate(container.rate_as, sample_rate)
        self._resampler = StreamResampler(sample_rate, self._rate) if self._rate != sample_rate else None
        self._lossless = container.codec == "flac"
        options = {"fflags": "+bitexact", **container.options}
        self._file = av.open(str(path), "w", format=container.muxer, options=options)
        try:
            self._stream = self._file.add_stream(container.codec, rate=self._rate, layout="mono")
            if container.bits_per_second:
                self._stream.bit_rate = container.bits_per_second
            picture = self._picture(cover, container, tags)
            if container.muxer != "flac":
                self._file.set_chapters([_chapter(n, mark, sample_rate) for n, mark in enumerate(marks)])
            else:
                self._file.metadata.update(_chapter_comments(marks, sample_rate))
            if picture is not None:
                self._file.mux(picture)
        except BaseException:
            self._file.close()
            raise
        self._position = 0

    def _picture(self, cover: bytes | None, container: _Container, tags: Mapping[str, str]) -> Any:
        """Adds the tags, and the cover as what the container holds pictures in; a packet to write, if that is it."""
        if container.muxer == "ogg":  # its tags, and pictures among them, belong to the stream
            self._stream.metadata.update(tags)
            if cover is not None:
                self._stream.metadata["METADATA_BLOCK_PICTURE"] = _picture_block(cover)
            return None
        self._file.metadata.update(tags)
        if cover is None:
            return None
        from av.stream import Disposition

        with _opened_picture(cover) as source:
            track = source.streams.video[0]
            packet = next(packet for packet in source.demux(track) if packet.size)
            stream = self._file.add_stream_from_template(track)
            stream.disposition = Disposition.attached_pic
        packet.stream, packet.pts, packet.dts = stream, 0, 0
        return packet

    def write(self, samples: Samples) -> None:
        if self._resampler is not None:
            samples = self._resampler.push(samples)
        self._encode(samples)

    def _encode(self, samples: Samples) -> None:
        if not len(samples):
            return
        av = _pyav()
        data = codec_input(samples, lossless=self._lossless)
        frame = av.AudioFrame.from_ndarray(data[None, :], format="s16" if self._lossless else "fltp", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = self._rate, self._position, Fraction(1, self._rate)
        self._position += len(samples)
        self._file.mux(self._stream.encode(frame))

    def __enter__(self) -> _Muxer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None:
                if self._resampler is not None:
                    self._encode(self._resampler.finish())
                self._file.mux(self._stream.encode(None))
        finally:
            self._file.close()


def _opened_picture(cover: bytes) -> Any:
    """The picture as FFmpeg's image readers see it; nothing else is tried."""
    reader = "png_pipe" if cover.startswith(b"\x89PNG") else "jpeg_pipe"
    return _pyav().open(io.BytesIO(cover), format=reader)


def _chapter(number: int, mark: ChapterMark, sample_rate: int) -> Any:
    """A chapter as PyAV takes it, in milliseconds."""
    return {
        "id": number,
        "start": round(1000 * mark.start / sample_rate),
        "end": round(1000 * mark.end / sample_rate),
        "time_base": Fraction(1, 1000),
        "metadata": {"title": mark.title},
    }


def _chapter_comments(marks: Sequence[ChapterMark], sample_rate: int) -> dict[str, str]:
    """Marks as the Vorbis comments that players read where a container has none of its own (FLAC)."""
    comments = {}
    for number, mark in enumerate(marks, 1):
        minutes, milliseconds = divmod(round(1000 * mark.start / sample_rate), 60_000)
        hours, minutes = divmod(minutes, 60)
        seconds, milliseconds = divmod(milliseconds, 1000)
        comments[f"CHAPTER{number:03}"] = f"{hours:02}:{minutes:02}:{seconds:02}.{milliseconds:03}"
        comments[f"CHAPTER{number:03}NAME"] = mark.title
    return comments


def _picture_block(cover: bytes) -> str:
    """The cover as FLAC's picture block in base64, which is how Ogg holds one (RFC 7845, RFC 9639 section 8.8)."""
    with _opened_picture(cover) as source:
        context = source.streams.video[0].codec_context
        width, height = int(context.width), int(context.height)
    media_type = b"image/png" if cover.startswith(b"\x89PNG") else b"image/jpeg"
    block = struct.pack(">II", _FRONT_COVER, len(media_type)) + media_type + struct.pack(">I", 0)
    block += struct.pack(">IIIII", width, height, 24, 0, len(cover)) + cover
    return base64.b64encode(block).decode("ascii")
