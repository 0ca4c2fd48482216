"""Reads a folder of clips (see README.md) once into flat arrays, and cuts random training segments from them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import torch
from torch import Tensor

ALIGNMENT_FRAME = 600  # samples a unit of `durations` lasts
HELD_OUT_EVERY = 80  # every 80th clip is never trained on
SILENCE = 0  # label of the start and end symbols


@dataclass(frozen=True, kw_only=True)
class Clips:
    """All clips, back to back.

    `audio` int16 [sample]; `labels` uint8 [alignment frame], indices into `symbols`; clip i covers samples
    `starts[i]` to `starts[i + 1]`. Starts are multiples of ALIGNMENT_FRAME.
    """

    audio: np.ndarray
    labels: np.ndarray
    starts: np.ndarray
    ids: list[str]
    symbols: list[str]

    @property
    def held_out(self) -> list[int]:
        """Indices of the clips kept for evaluation."""
        return list(range(0, len(self.ids), HELD_OUT_EVERY))

    @property
    def trained(self) -> list[int]:
        """Indices of all other clips."""
        return [i for i in range(len(self.ids)) if i % HELD_OUT_EVERY]

    def clip(self, index: int) -> Tensor:
        """Clip `index` as float32 [sample] in [-1, 1]."""
        return self._float(int(self.starts[index]), int(self.starts[index + 1]))

    def _float(self, start: int, end: int) -> Tensor:
        return torch.from_numpy(self.audio[start:end].astype(np.float32) / 32768.0)

    def segments(
        self, generator: torch.Generator, batch: int, length: int, label_offsets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Random segments [batch, 1, length] and the labels at `label_offsets` (samples from the segment's start).

        Labels are int64 [batch, *label_offsets.shape]; offsets outside the clip read as silence. Long clips are
        drawn more often, so that every second of audio is equally likely.
        """
        audio, labels = [], []
        for start, end in self._draw(generator, batch, length):
            audio.append(torch.nn.functional.pad(self._float(start, min(start + length, end)), (0, length))[:length])
            labels.append(self.labels_at(start, end, label_offsets))
        return torch.stack(audio)[:, None], torch.stack(labels)

    def labels_at(self, start: int, end: int, offsets: Tensor) -> Tensor:
        """Labels at samples `start + offsets` of the clip that ends at `end`."""
        samples = (start + offsets).numpy()
        inside = (samples >= 0) & (samples < end)
        frames = np.where(inside, samples, 0) // ALIGNMENT_FRAME
        return torch.from_numpy(np.where(inside, self.labels[frames], SILENCE).astype(np.int64))

    def _draw(self, generator: torch.Generator, batch: int, length: int) -> list[tuple[int, int]]:
        trained = np.array(self.trained)
        spans = np.maximum(self.starts[trained + 1] - self.starts[trained] - length + ALIGNMENT_FRAME, 1)
        edges = np.cumsum(spans)
        picks = torch.randint(0, int(edges[-1]), (batch,), generator=generator).numpy()
        chosen = np.searchsorted(edges, picks, side="right")
        offsets = picks - (edges[chosen] - spans[chosen])
        starts = self.starts[trained[chosen]] + offsets
        return [(int(s), int(self.starts[trained[c] + 1])) for s, c in zip(starts, chosen, strict=True)]


def load_clips(data: Path, cache: Path) -> Clips:
    """Clips of the folder `data`, from `cache` when it is already there; writes `cache` otherwise."""
    index_path = cache / "clips.json"
    if not index_path.is_file():
        _write_cache(data, cache)
    index = json.loads(index_path.read_text())
    return Clips(
        audio=np.load(cache / "audio.npy"),
        labels=np.load(cache / "labels.npy"),
        starts=np.array(index["starts"]),
        ids=index["ids"],
        symbols=index["symbols"],
    )


def read_meta(data: Path) -> list[dict]:
    """One record a clip, in the file's order."""
    return [json.loads(line) for line in (data / "meta.jsonl").read_text(encoding="utf-8").splitlines()]


def spoken_symbols(phonemes: str) -> list[str]:
    """For each character the symbol heard while it lasts: stress marks are the next one, the length mark the last."""
    heard = list(phonemes)
    for i in reversed(range(len(heard))):
        if heard[i] in "ˈˌ" and i + 1 < len(heard):
            heard[i] = heard[i + 1]
    for i in range(1, len(heard)):
        if heard[i] == "ː":
            heard[i] = heard[i - 1]
    return heard


def _write_cache(data: Path, cache: Path) -> None:
    records = read_meta(data)
    symbols = ["<silence>", *sorted({symbol for record in records for symbol in record["phonemes"]})]
    number = {symbol: i for i, symbol in enumerate(symbols)}
    audio, labels, starts = [], [], [0]
    for record in records:
        samples, rate = soundfile.read(data / "audio" / f"{record['id']}.opus", dtype="float32")
        if rate != 24000 or len(record["durations"]) != len(record["phonemes"]) + 2:
            raise ValueError(f"clip {record['id']}: rate {rate} or number of durations is wrong")
        spoken = [number[s] for s in spoken_symbols(record["phonemes"])]
        track = np.repeat([SILENCE, *spoken, SILENCE], record["durations"])
        length = len(track) * ALIGNMENT_FRAME
        fitted = np.pad(samples[:length], (0, max(0, length - len(samples))))
        audio.append(np.round(np.clip(fitted, -1.0, 1.0) * 32767.0).astype(np.int16))
        labels.append(track.astype(np.uint8))
        starts.append(starts[-1] + length)
    cache.mkdir(parents=True, exist_ok=True)
    np.save(cache / "audio.npy", np.concatenate(audio))
    np.save(cache / "labels.npy", np.concatenate(labels))
    index = {"ids": [r["id"] for r in records], "starts": starts, "symbols": symbols}
    (cache / "clips.json").write_text(json.dumps(index, ensure_ascii=False))
