"""Encoders that turn float samples into container bytes as they are produced.

| format | library | first bytes | decoded length |
|---|---|---|---|
| pcm, wav | own | at once | exact |
| flac | libsndfile | blocks of 4096 samples | exact; a stream's header says "unknown", a file's the length |
| mp3 | libsndfile | frames of 26 to 72 ms | exact as a file; a stream decodes about 1,100 samples late, padded to a frame |
| opus | libsndfile | pages of 0.1 s | exact, at 48 kHz |
| ogg (Vorbis) | libsndfile | header at once, pages of about 4 KB | exact |
| aac (ADTS) | PyAV, when installed | frames of 1024 samples | padded to a frame |
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from oscine.audio.resample import StreamResampler
from oscine.audio.wav import check_finite, pcm16_bytes, to_int16, wav_header
from oscine.errors import InvalidRequest, UnsupportedFeature
from oscine.types import Samples


@dataclass(frozen=True, kw_only=True)
class AudioFormat:
    """One container; `sample_rates` empty means any rate. `suffix` is the file ending it is chosen by."""

    name: str
    suffix: str
    content_type: str
    sample_rates: tuple[int, ...] = ()


_MPEG_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
FORMATS: Mapping[str, AudioFormat] = {
    item.name: item
    for item in (
        AudioFormat(name="pcm", suffix=".pcm", content_type="audio/pcm"),
        AudioFormat(name="wav", suffix=".wav", content_type="audio/wav"),
        AudioFormat(name="flac", suffix=".flac", content_type="audio/flac"),
        AudioFormat(name="mp3", suffix=".mp3", content_type="audio/mpeg", sample_rates=_MPEG_RATES),
        AudioFormat(name="opus", suffix=".opus", content_type="audio/ogg", sample_rates=(48000,)),
        AudioFormat(name="ogg", suffix=".ogg", content_type="audio/ogg"),
        AudioFormat(name="aac", suffix=".aac", content_type="audio/aac", sample_rates=_MPEG_RATES),
    )
}


class Encoder(Protocol):
    """Turns samples into bytes; `b"".join` of the pushes and the finish is the whole stream.

    `patches`, filled by `finish`, are (offset, bytes) to write over what was emitted where the output can seek: the
    lengths nobody knew at the start. `sample_rate` is the rate of the encoded audio in Hz.
    """

    format: AudioFormat
    sample_rate: int
    patches: list[tuple[int, bytes]]

    def push(self, samples: Samples) -> bytes:
        """Bytes that are ready once `samples` [sample] have been added; may be empty."""

    def finish(self) -> bytes:
        """The rest; the encoder is closed after it. Call it, or `close`, exactly once."""

    def close(self) -> None:
        """Frees the encoder without finishing; does nothing after `finish`."""


def content_type(name: str, sample_rate: int) -> str:
    """The Content-Type of a format; pcm states its rate and channel, since its bytes do not."""
    kind = FORMATS[name].content_type
    return f"{kind};rate={sample_rate};channels=1" if name == "pcm" else kind


def encoded_rate(name: str, sample_rate: int) -> int:
    """The rate in Hz that audio of `sample_rate` has inside format `name`: its own, or the lowest one above it."""
    allowed = FORMATS[name].sample_rates
    if not allowed or sample_rate in allowed:
        return sample_rate
    return next((rate for rate in allowed if rate > sample_rate), allowed[-1])


def format_named(name: str) -> AudioFormat:
    """The format of that name; raises InvalidRequest with the list of names."""
    try:
        return FORMATS[name.lower()]
    except KeyError:
        known = ", ".join(sorted(FORMATS))
        raise InvalidRequest(f"unknown audio format {name!r}; known: {known}", param="response_format") from None


def check_available(name: str) -> AudioFormat:
    """The format of that name if this installation can write it; raises InvalidRequest or UnsupportedFeature."""
    chosen = format_named(name)
    if chosen.name == "aac" and importlib.util.find_spec("av") is None:
        raise UnsupportedFeature(
            "aac needs PyAV: pip install 'oscine[server]', or choose mp3, opus, flac, wav or pcm",
            param="response_format",
        )
    return chosen


def open_encoder(
    name: str, sample_rate: int, *, target_rate: int | None = None, seekable: bool = False
) -> Encoder:
    """An encoder of format `name` for samples of `sample_rate`, resampled as a stream to `target_rate` if given.

    `seekable` says that the caller will apply `patches`; otherwise every byte is right without them. Raises
    InvalidRequest for an unknown format, UnsupportedFeature if its library is not installed.
    """
    chosen = check_available(name)
    rate = encoded_rate(chosen.name, target_rate or sample_rate)
    encoder: Encoder
    if chosen.name == "pcm":
        encoder = _PcmEncoder(chosen, rate)
    elif chosen.name == "wav":
        encoder = _WavEncoder(chosen, rate)
    elif chosen.name == "aac":
        from oscine.audio.pyav import AacEncoder

        encoder = AacEncoder(chosen, rate)
    else:
        from oscine.audio.sndfile import SndfileEncoder

        encoder = SndfileEncoder(chosen, rate, seekable=seekable)
    return encoder if rate == sample_rate else _ResamplingEncoder(encoder, sample_rate)


def encode(name: str, samples: Samples, sample_rate: int, *, target_rate: int | None = None) -> bytes:
    """The whole of `samples` as one file of format `name`, its header with the exact lengths."""
    encoder = open_encoder(name, sample_rate, target_rate=target_rate, seekable=True)
    data = bytearray(encoder.push(samples) + encoder.finish())
    for offset, piece in encoder.patches:
        data[offset : offset + len(piece)] = piece
    return bytes(data)


class _PcmEncoder:
    def __init__(self, chosen: AudioFormat, sample_rate: int) -> None:
        self.format = chosen
        self.sample_rate = sample_rate
        self.patches: list[tuple[int, bytes]] = []

    def push(self, samples: Samples) -> bytes:
        return pcm16_bytes(samples)

    def finish(self) -> bytes:
        return b""

    def close(self) -> None:
        return None


class _WavEncoder(_PcmEncoder):
    def __init__(self, chosen: AudioFormat, sample_rate: int) -> None:
        super().__init__(chosen, sample_rate)
        self._header = wav_header(sample_rate, None)
        self._num_samples = 0

    def push(self, samples: Samples) -> bytes:
        header, self._header = self._header, b""
        self._num_samples += len(samples)
        return header + pcm16_bytes(samples)

    def finish(self) -> bytes:
        self.patches = [(0, wav_header(self.sample_rate, self._num_samples))]
        header, self._header = self._header, b""
        return header


class _ResamplingEncoder:
    """Another encoder behind a streaming resampler."""

    def __init__(self, inner: Encoder, sample_rate: int) -> None:
        self._inner = inner
        self._stream = StreamResampler(sample_rate, inner.sample_rate)
        self.format = inner.format
        self.sample_rate = inner.sample_rate

    @property
    def patches(self) -> list[tuple[int, bytes]]:
        return self._inner.patches

    @patches.setter
    def patches(self, value: list[tuple[int, bytes]]) -> None:
        self._inner.patches = value

    def push(self, samples: Samples) -> bytes:
        check_finite(samples)  # before it: the filter would spread one NaN over its neighbours
        return self._inner.push(self._stream.push(samples))

    def finish(self) -> bytes:
        return self._inner.push(self._stream.finish()) + self._inner.finish()

    def close(self) -> None:
        self._inner.close()


def as_int16_or_float(samples: Samples, *, lossless: bool) -> np.ndarray[tuple[int, ...], np.dtype[Any]]:
    """What a codec is fed: our own int16 for a lossless one (so that flac equals wav), else floats within [-1, 1]."""
    if lossless:
        return to_int16(samples)
    check_finite(samples)
    return np.clip(np.asarray(samples, dtype=np.float32), -1.0, 1.0)
