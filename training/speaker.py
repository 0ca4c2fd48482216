"""Who speaks: the embedding of the resemblyzer package's pretrained speaker encoder, without that package's imports.

Of the package only the weights are used; the network is a three-layer LSTM over a 40-band mel spectrogram (Wan et al.,
"Generalized end-to-end loss for speaker verification"), so librosa and a voice detector are not needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

RATE = 16_000
WINDOW, HOP, NUM_MELS = 400, 160, 40
PARTIAL_FRAMES, PARTIAL_STEP = 160, 77
"""Windows of 1.6 s, 1.3 of them a second."""

MIN_COVERAGE = 0.75
TARGET_DBFS = -30.0

Floats = npt.NDArray[np.float32]


class SpeakerEncoder:
    """Embeds 16 kHz speech; `weights` is the package's `pretrained.pt`."""

    def __init__(self, weights: Path) -> None:
        import torch

        state: dict[str, Any] = torch.load(weights, map_location="cpu", weights_only=True)["model_state"]
        self.lstm = torch.nn.LSTM(NUM_MELS, 256, 3, batch_first=True)
        self.linear = torch.nn.Linear(256, 256)
        for name, module in (("lstm", self.lstm), ("linear", self.linear)):
            module.load_state_dict({k.removeprefix(f"{name}."): v for k, v in state.items() if k.startswith(name)})
        self.filters = mel_filters()

    def embed(self, samples: Floats) -> Floats:
        """The unit vector [256] of mono 16 kHz speech; ValueError for silence."""
        import torch

        mel = self._mel(prepare(samples))
        starts = range(0, max(1, len(mel) - PARTIAL_FRAMES + PARTIAL_STEP + 1), PARTIAL_STEP)
        parts = [mel[start : start + PARTIAL_FRAMES] for start in starts]
        if len(parts) > 1 and len(parts[-1]) < MIN_COVERAGE * PARTIAL_FRAMES:
            parts.pop()
        batch = np.stack([np.pad(part, ((0, PARTIAL_FRAMES - len(part)), (0, 0))) for part in parts])
        with torch.inference_mode():
            _, (hidden, _) = self.lstm(torch.from_numpy(batch))
            vectors = torch.relu(self.linear(hidden[-1]))
            mean = torch.nn.functional.normalize(vectors, dim=1).mean(dim=0)
            return np.asarray(torch.nn.functional.normalize(mean, dim=0), dtype=np.float32)

    def _mel(self, samples: Floats) -> Floats:
        """Mel power spectrogram [frame, band]; windows are centred, the ends padded with zeros."""
        padded = np.pad(samples, WINDOW // 2)
        frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
        window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
        power = np.abs(np.fft.rfft(frames * window, axis=1)) ** 2
        return np.asarray(power @ self.filters.T, dtype=np.float32)


def mean_embedding(embeddings: list[Floats]) -> Floats:
    """The unit vector in the middle of several."""
    middle = np.mean(embeddings, axis=0)
    return np.asarray(middle / np.linalg.norm(middle), dtype=np.float32)


def prepare(samples: Floats) -> Floats:
    """Speech without the silence around it, raised to the loudness the encoder expects; ValueError for silence."""
    frames = samples[: len(samples) // 480 * 480].reshape(-1, 480)
    loudness = np.sqrt((frames**2).mean(axis=1))
    loud = np.flatnonzero(loudness > 0.01 * loudness.max(initial=0.0))
    if not len(loud):
        raise ValueError("nothing but silence: no speaker to recognise")
    speech = samples[loud[0] * 480 : (loud[-1] + 1) * 480]
    gain_db = TARGET_DBFS - 10 * np.log10(np.mean(speech**2))
    return np.asarray(speech * 10 ** (max(gain_db, 0.0) / 20), dtype=np.float32)


def mel_filters() -> Floats:
    """Triangles [40, 201] on the Slaney mel scale (linear to 1 kHz, logarithmic above), each of area one."""
    log_step = np.log(6.4) / 27
    mel_1k = 15.0
    top = mel_1k + np.log(RATE / 2 / 1000) / log_step
    mels = np.linspace(0, top, NUM_MELS + 2)
    edges = np.where(mels < mel_1k, mels * 200 / 3, 1000 * np.exp(log_step * (mels - mel_1k)))
    bins = np.arange(WINDOW // 2 + 1) * RATE / WINDOW
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    return np.asarray(triangles * (2 / (edges[2:] - edges[:-2]))[:, None], dtype=np.float32)
