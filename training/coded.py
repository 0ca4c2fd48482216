"""Clips with their codes and the phase of the voice, and random training segments of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from training.dataset import Clips, load_clips
from training.factors import DELAY, FRAME, PITCHED_HZ, pitch_curves
from training.prosody import PITCH_HOP


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A batch of segments of F frames: `codes` [B, C, F], `audio` [B, 1, F * FRAME] that these codes should become.

    `phase` [B, time] in cycles and `voiced` [B, time] in 0..1 belong to samples (i + 1/2) * hop of `audio`.
    """

    codes: Tensor
    audio: Tensor
    phase: Tensor
    voiced: Tensor


@dataclass(frozen=True, kw_only=True)
class Source:
    """A folder of clips, their codes by clip index, and (pitch, phase) curves by id."""

    clips: Clips
    codes: dict[int, Tensor]
    curves: dict[str, tuple[np.ndarray, np.ndarray]]

    @classmethod
    def load(cls, data: Path, cache: Path, codes: Path, prosody: Path) -> Source:
        """Everything of one data folder; clips without codes are left out."""
        clips, stored = load_clips(data, cache), load_file(codes)
        known = {i: stored[name].long() for i, name in enumerate(clips.ids) if name in stored}
        return cls(clips=clips, codes=known, curves=pitch_curves(prosody))

    def cut(self, index: int, first: int, frames: int, hop: int) -> Segment:
        """Frames `first` to `first + frames` of clip `index`; beyond its ends there is silence."""
        codes = self.codes[index]
        at = torch.arange(first, first + frames).clamp(0, codes.shape[1] - 1)
        start = (first - DELAY) * FRAME
        pitch, phase = self.curves[self.clips.ids[index]]
        times = (np.arange(len(phase)) + 0.5) * PITCH_HOP
        points = start + (np.arange(frames * FRAME // hop) + 0.5) * hop
        inside = (points >= 0) & (points < times[-1])
        voiced = inside & (np.interp(points, times, pitch) > PITCHED_HZ)
        return Segment(
            codes=codes[:, at][None],
            audio=self._audio(index, start, frames * FRAME)[None, None],
            phase=torch.from_numpy(np.interp(points, times, phase.astype(np.float64)))[None].float(),
            voiced=torch.from_numpy(voiced)[None].float(),
        )

    def _audio(self, index: int, start: int, length: int) -> Tensor:
        whole = self.clips.clip(index)
        head = torch.zeros(max(0, -start))
        body = whole[max(0, start) : max(0, start + length)]
        return torch.nn.functional.pad(torch.cat([head, body]), (0, length))[:length]


class Segments:
    """Draws batches from all sources, every frame equally likely."""

    def __init__(self, sources: Sequence[Source], held_out_every: int) -> None:
        pairs = [(source, index) for source in sources for index in source.codes]
        self.trained = [pair for i, pair in enumerate(pairs) if i % held_out_every]
        self.held_out = [pair for i, pair in enumerate(pairs) if i % held_out_every == 0]
        self.lengths = np.array([source.codes[index].shape[1] for source, index in self.trained])

    def draw(self, generator: torch.Generator, batch: int, frames: int, hop: int) -> Segment:
        """A batch of random segments; `hop` is the spacing of the phase track in samples."""
        spans = np.maximum(self.lengths + DELAY - frames + 1, 1)
        edges = np.cumsum(spans)
        picks = torch.randint(0, int(edges[-1]), (batch,), generator=generator).numpy()
        chosen = np.searchsorted(edges, picks, side="right")
        parts = []
        for pick, number in zip(picks, chosen, strict=True):
            source, index = self.trained[number]
            parts.append(source.cut(index, int(pick - (edges[number] - spans[number])), frames, hop))
        return Segment(**{name: torch.cat([getattr(p, name) for p in parts]) for name in vars(parts[0])})
