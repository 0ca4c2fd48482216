"""AAC out, which needs PyAV (FFmpeg)."""

from __future__ import annotations

import io

import av

from oscine.audio.formats import AudioFormat
from oscine.audio.wav import codec_input
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
