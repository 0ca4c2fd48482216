"""What needs PyAV (FFmpeg): AAC out, and containers libsndfile does not read in."""

from __future__ import annotations

import io
from typing import BinaryIO

import av
import numpy as np

from oscine.audio.formats import AudioFormat
from oscine.audio.wav import codec_input
from oscine.errors import BadAudio
from oscine.types import Samples

_AAC_BITS_PER_SECOND = 128_000


class AacEncoder:
    """AAC in ADTS frames; see `oscine.audio.encode.Encoder`."""

    def __init__(self, chosen: AudioFormat, sample_rate: int) -> None:
        self.format = chosen
        self.sample_rate = sample_rate
        self.patches: list[tuple[int, bytes]] = []
        self._buffer = io.BytesIO()
        self._container = av.open(self._buffer, "w", format="adts")
        self._stream = self._container.add_stream("aac", rate=sample_rate, layout="mono")
        self._stream.bit_rate = min(_AAC_BITS_PER_SECOND, 6 * sample_rate)
        self._position = 0

    def push(self, samples: Samples) -> bytes:
        if len(samples):
            data = codec_input(samples, lossless=False)
            frame = av.AudioFrame.from_ndarray(data[None, :], format="fltp", layout="mono")
            frame.sample_rate = self.sample_rate
            frame.pts = self._position
            self._position += len(samples)
            self._container.mux(self._stream.encode(frame))
        return self._take()

    def finish(self) -> bytes:
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._take()

    def close(self) -> None:
        self._container.close()

    def _take(self) -> bytes:
        data = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return data


def decode(source: BinaryIO, *, max_seconds: float | None) -> tuple[Samples, int, bool]:
    """Mono samples [sample], their rate, and whether `max_seconds` was exceeded (the rest was not decoded).

    Raises BadAudio if FFmpeg cannot read it or finds no audio in it.
    """
    try:
        with av.open(source, mode="r") as container:
            if not container.streams.audio:
                raise BadAudio("the file holds no audio stream")
            stream = container.streams.audio[0]
            rate = int(stream.rate)
            limit = float("inf") if max_seconds is None else max_seconds * rate
            resampler = av.AudioResampler(format="fltp", rate=rate)
            blocks: list[Samples] = []
            total = 0
            for frame in container.decode(stream):
                for part in resampler.resample(frame):
                    blocks.append(part.to_ndarray().mean(axis=0, dtype=np.float32))
                    total += part.samples
                if total > limit:
                    return np.concatenate(blocks), rate, True
            return (np.concatenate(blocks) if blocks else np.zeros(0, np.float32)), rate, False
    except (av.FFmpegError, ValueError) as error:
        raise BadAudio(f"FFmpeg cannot decode it: {error}") from error
