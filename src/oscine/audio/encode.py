"""Encoders that turn float samples into container bytes as they are produced.

| format | library | first bytes | decoded length |
|---|---|---|---|
| pcm, wav | own | at once | exact |
| flac | libsndfile | blocks of 4096 samples | exact; a stream's header says "unknown", a file's the length |
| mp3 | libsndfile | frames of 26 to 72 ms | exact as a file; as a stream 1,105 samples late and padded to a frame |
| opus | libsndfile | pages of 0.1 s | exact, at 48 kHz |
| ogg (Vorbis) | libsndfile | header at once, pages of about 4 KB | exact |
| aac (ADTS) | PyAV, when installed | frames of 1024 samples | padded to a frame |
"""

from __future__ import annotations

from typing import Protocol

from oscine.audio.formats import AudioFormat, check_available, encoded_rate
from oscine.audio.resample import StreamResampler
from oscine.audio.wav import check_finite, pcm16_bytes, wav_header
from oscine.types import Samples


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


def open_encoder(
    name: str, sample_rate: int, *, target_rate: int | None = None, seekable: bool = False, seed: int = 0
) -> Encoder:
    """An encoder of format `name` for samples of `sample_rate`, resampled as a stream to `target_rate` if given.

    `seekable` says that the caller will apply `patches`; otherwise every byte is right without them. Equal samples in
    equal pushes give equal bytes; streams of one format and unequal `seed` can be told apart where the format has a
    number for that (Ogg). Raises InvalidRequest for an unknown format, UnsupportedFeature if its library is not
    installed.
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

        encoder = SndfileEncoder(chosen, rate, seekable=seekable, seed=seed)
    return encoder if rate == sample_rate else _ResamplingEncoder(encoder, sample_rate)


def encode(name: str, samples: Samples, sample_rate: int, *, target_rate: int | None = None, seed: int = 0) -> bytes:
    """The whole of `samples` as one file of format `name`, its header with the exact lengths; `seed` as above."""
    encoder = open_encoder(name, sample_rate, target_rate=target_rate, seekable=True, seed=seed)
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
