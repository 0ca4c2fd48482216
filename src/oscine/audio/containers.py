"""The containers that are read, recognised by their first bytes and by nothing else.

What is not in this table is not handed to any library: FFmpeg's playlists, manifests and session descriptions
(ffconcat, HLS, DASH, SDP), which open files and sockets that their text names, and parsers that no recorder needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

READ = "wav, aiff, au, caf, flac, mp3, ogg, opus, aac, m4a, mp4, webm, mka, wma and amr"
"""The containers as people call them."""
_HEAD_BYTES = 16
_ID3_HEADER = 10


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container: the names libsndfile has for it, none if it does not read it, and FFmpeg's name of its demuxer.

    `states_length`: whether FFmpeg's length of it comes from its header; elsewhere it is a guess.
    """

    sndfile: frozenset[str] = frozenset()
    demuxer: str
    states_length: bool = True


_WAV = Container(sndfile=frozenset({"WAV", "WAVEX", "RF64"}), demuxer="wav")
_MP3 = Container(sndfile=frozenset({"MP3", "MPEG"}), demuxer="mp3", states_length=False)
_FLAC = Container(sndfile=frozenset({"FLAC"}), demuxer="flac")
_AAC = Container(demuxer="aac", states_length=False)
_MOV_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide")

_SIGNATURES: tuple[tuple[Callable[[bytes], bool], Container], ...] = (
    (lambda head: head[:4] in (b"RIFF", b"RIFX", b"RF64") and head[8:12] == b"WAVE", _WAV),
    (
        lambda head: head == b"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\x00\x00",
        Container(sndfile=frozenset({"W64"}), demuxer="w64"),
    ),
    (
        lambda head: head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"),
        Container(sndfile=frozenset({"AIFF"}), demuxer="aiff"),
    ),
    (lambda head: head[:4] in (b".snd", b"dns."), Container(sndfile=frozenset({"AU"}), demuxer="au")),
    (lambda head: head[:4] == b"caff", Container(sndfile=frozenset({"CAF"}), demuxer="caf")),
    (lambda head: head[:4] == b"fLaC", _FLAC),
    (lambda head: head[:4] == b"OggS", Container(sndfile=frozenset({"OGG"}), demuxer="ogg")),
    (lambda head: head[4:8] in _MOV_BOXES, Container(demuxer="mov")),
    (lambda head: head[:4] == b"\x1a\x45\xdf\xa3", Container(demuxer="matroska")),
    (
        lambda head: head == b"\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9\x00\xaa\x00\x62\xce\x6c",
        Container(demuxer="asf"),
    ),
    (
        lambda head: head[:6] == b"#!AMR\n" or head[:9] == b"#!AMR-WB\n",
        Container(demuxer="amr", states_length=False),
    ),
    (lambda head: head[:1] == b"\xff" and head[1:2] in (b"\xf0", b"\xf1", b"\xf8", b"\xf9"), _AAC),
    (lambda head: _is_mpeg_frame(head), _MP3),
)


def recognise(stream: BinaryIO) -> Container | None:
    """The container of a seekable stream, which is left at its beginning; None for one that is not read."""
    stream.seek(0)
    head = stream.read(_HEAD_BYTES)
    found = _matching(head)
    if head[:3] == b"ID3":  # a tag in front of mp3, aac or flac
        stream.seek(_ID3_HEADER + _synchsafe(head[6:10]))
        behind = _matching(stream.read(_HEAD_BYTES))
        found = behind if behind in (_AAC, _FLAC) else _MP3
    stream.seek(0)
    return found


def _matching(head: bytes) -> Container | None:
    return next((container for fits, container in _SIGNATURES if fits(head)), None)


def _is_mpeg_frame(head: bytes) -> bool:
    """Whether it begins like a frame of MPEG audio: a sync word, a known version and layer, a bit rate and a rate."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return False
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    return version != 1 and layer != 0 and head[2] >> 4 not in (0, 15) and head[2] >> 2 & 3 != 3


def _synchsafe(size: bytes) -> int:
    """The length of an ID3 tag: seven bits of each byte count."""
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(reversed(size)))
