"""Reads a folder of clips (see README.md) once into one flat array."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import torch
from torch import Tensor

ALIGNMENT_FRAME = 600  # samples a unit of `durations` lasts


@dataclass(frozen=True, kw_only=True)
class Clips:
    """All clips, back to back: `audio` int16 [sample], clip i covers samples `starts[i]` to `starts[i + 1]`."""

    audio: np.ndarray
    starts: np.ndarray
    ids: list[str]

    def clip(self, index: int) -> Tensor:
        """Clip `index` as float32 [sample] in [-1, 1]; its length is a multiple of ALIGNMENT_FRAME."""
        samples = self.audio[int(self.starts[index]) : int(self.starts[index + 1])]
        return torch.from_numpy(samples.astype(np.float32) / 32768.0)


def load_clips(data: Path, cache: Path) -> Clips:
    """Clips of the folder `data`, from `cache` when it is already there; writes `cache` otherwise."""
    index_path = cache / "clips.json"
    if not index_path.is_file():
        _write_cache(data, cache)
    index = json.loads(index_path.read_text())
    return Clips(audio=np.load(cache / "audio.npy"), starts=np.array(index["starts"]), ids=index["ids"])


def read_meta(data: Path) -> list[dict]:
    """One record a clip, in the file's order."""
    return [json.loads(line) for line in (data / "meta.jsonl").read_text(encoding="utf-8").splitlines()]


def _write_cache(data: Path, cache: Path) -> None:
    records = read_meta(data)
    audio, starts = [], [0]
    for record in records:
        samples, rate = soundfile.read(data / "audio" / f"{record['id']}.opus", dtype="float32")
        if rate != 24000 or len(record["durations"]) != len(record["phonemes"]) + 2:
            raise ValueError(f"clip {record['id']}: rate {rate} or number of durations is wrong")
        length = sum(record["durations"]) * ALIGNMENT_FRAME
        fitted = np.pad(samples[:length], (0, max(0, length - len(samples))))
        audio.append(np.round(np.clip(fitted, -1.0, 1.0) * 32767.0).astype(np.int16))
        starts.append(starts[-1] + length)
    cache.mkdir(parents=True, exist_ok=True)
    np.save(cache / "audio.npy", np.concatenate(audio))
    (cache / "clips.json").write_text(json.dumps({"ids": [r["id"] for r in records], "starts": starts}))
