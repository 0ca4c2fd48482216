"""flac, mp3, Ogg/Vorbis and Ogg/Opus as streams, through libsndfile and a sink that remembers where it is."""

from __future__ import annotations

import io

import numpy as np
import soundfile as sf

from oscine.audio.formats import AudioFormat
from oscine.audio.ogg import serial_of, with_serial
from oscine.audio.wav import check_finite, codec_input
from oscine.types import Samples

_SUBTYPES = {
    "flac": ("FLAC", "PCM_16"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
}
_SET_OGG_PAGE_LATENCY_MS = 0x1302  # a command of libsndfile 1.1 and newer that soundfile has no name for
_OPUS_PAGE_MS = 100.0
_VORBIS_BLOCK = 1024  # samples
_MP3_KBPS = {1: 128, 2: 96, 3: 64}
_MP3_RANGE = {1: (32, 320), 2: (8, 160), 3: (8, 64)}  # kbit/s of MPEG 1, 2 and 2.5: levels 1.0 .. 0.0


class _Sink(io.RawIOBase):
    """A file that keeps what is appended as the stream, and what is written over earlier bytes as patches."""

    def __init__(self) -> None:
        self._position = 0
        self._end = 0
        self.fresh: list[bytes] = []
        self.patches: list[tuple[int, bytes]] = []

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]
        if self._position == self._end:
            self.fresh.append(piece)
            self._end += len(piece)
        else:
            self.patches.append((self._position, piece))
        self._position += len(piece)
        return len(piece)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._end}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def take(self) -> bytes:
        data = b"".join(self.fresh)
        self.fresh.clear()
        return data


def _mp3_level(sample_rate: int) -> float:
    """libsndfile's compression level for a constant bit rate: players can then tell the time in a stream."""
    version = 1 if sample_rate >= 32000 else 2 if sample_rate >= 16000 else 3
    low, high = _MP3_RANGE[version]
    return (high - _MP3_KBPS[version]) / (high - low)


class SndfileEncoder:
    """An encoder over libsndfile; see `oscine.audio.encode.Encoder`."""

    def __init__(self, chosen: AudioFormat, sample_rate: int, *, seekable: bool, seed: int) -> None:
        self.format = chosen
        self.sample_rate = sample_rate
        self.patches: list[tuple[int, bytes]] = []
        self._seekable = seekable
        self._sink = _Sink()
        container, subtype = _SUBTYPES[chosen.name]
        self._serial = serial_of(seed) if container == "OGG" else None
        options = {}
        if chosen.name == "mp3":
            options = {"compression_level": _mp3_level(sample_rate), "bitrate_mode": "CONSTANT"}
        self._file = sf.SoundFile(self._sink, "w", sample_rate, 1, format=container, subtype=subtype, **options)
        if chosen.name == "opus":
            self._limit_page_latency()
        self._started = False
        self._num_samples = 0
        self._held = np.zeros(0, dtype=np.float32)

    def _limit_page_latency(self) -> None:
        value = sf._ffi.new("double*", _OPUS_PAGE_MS)
        sf._snd.sf_command(self._file._file, _SET_OGG_PAGE_LATENCY_MS, value, sf._ffi.sizeof("double"))

    def push(self, samples: Samples) -> bytes:
        self._num_samples += len(samples)
        if self.format.name != "ogg":
            return self._feed(samples)
        # Vorbis chooses its block sizes by what it has been given so far: equal blocks keep the sound equal.
        check_finite(samples)
        held = np.concatenate([self._held, samples])
        whole = len(held) // _VORBIS_BLOCK * _VORBIS_BLOCK
        self._held = held[whole:]
        return b"".join(self._feed(held[i : i + _VORBIS_BLOCK]) for i in range(0, whole, _VORBIS_BLOCK))

    def finish(self) -> bytes:
        rest = self._held
        if not self._num_samples:
            rest = np.zeros(1, dtype=np.float32)  # none of these containers can hold no sample at all
        data = self._feed(rest)
        self._file.close()
        self.patches = self._sink.patches if self._seekable else []
        return data + self._take()

    def _feed(self, samples: Samples) -> bytes:
        self._file.write(codec_input(samples, lossless=self.format.name == "flac"))
        return self._take()

    def close(self) -> None:
        self._file.close()

    def _take(self) -> bytes:
        """The bytes since the last call; Ogg pages with our serial number, a streamed mp3 without its first frame.

        libsndfile reserves that frame for the lengths it writes at the end; left unwritten it makes decoders stop
        early.
        """
        if self.format.name == "mp3" and not self._seekable and not self._started and self._sink.fresh:
            self._started = True
            if not any(self._sink.fresh[0][4:]):
                self._sink.fresh.pop(0)
        data = self._sink.take()
        return data if self._serial is None else with_serial(data, self._serial)
