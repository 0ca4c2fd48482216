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
from training.factors import DELAY, FRAME, PITCHED_HZ, pitch_curves, read_codebook, speech_frames
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
    """A folder of clips, their codes by clip index, (pitch, phase) curves by id, loudness centres [128, 2]."""

    clips: Clips
    codes: dict[int, Tensor]
    curves: dict[str, tuple[np.ndarray, np.ndarray]]
    centres: Tensor

    @classmethod
    def load(cls, data: Path, cache: Path, codes: Path, prosody: Path) -> Source:
        """Everything of one data folder; clips without codes are left out."""
        clips, stored = load_clips(data, cache), load_file(codes)
        known = {i: stored[name].long() for i, name in enumerate(clips.ids) if name in stored}
        return cls(clips=clips, codes=known, curves=pitch_curves(prosody), centres=read_codebook(codes)[1])

    def spoken(self, index: int) -> range:
        """The frames of clip `index` that the language model would speak, and those in which their sound comes out."""
        kept = speech_frames(self.codes[index], self.centres)
        return range(kept.start, kept.stop + DELAY)

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
    """Draws batches from all sources: every spoken frame is equally likely, the first and last of a clip too."""

    def __init__(self, sources: Sequence[Source], held_out_every: int) -> None:
        pairs = [(source, index) for source in sources for index in source.codes]
        self.trained = [pair for i, pair in enumerate(pairs) if i % held_out_every]
        self.held_out = [pair for i, pair in enumerate(pairs) if i % held_out_every == 0]
        self.spoken = [source.spoken(index) for source, index in self.trained]
        self.edges = np.cumsum([len(frames) for frames in self.spoken])

    def draw(self, generator: torch.Generator, batch: int, frames: int, hop: int, *, onset: bool = False) -> Segment:
        """A batch of random segments; `hop` is the spacing of the phase track in samples.

        Where a clip ends another one begins, as if all were on one tape, in another order each time. With `onset` each
        segment starts where an utterance starts.
        """
        rows = [self._tape(generator, frames, hop, onset) for _ in range(batch)]
        return _joined(rows, dim=0)

    def _tape(self, generator: torch.Generator, frames: int, hop: int, onset: bool) -> Segment:
        place = _random(generator, int(self.edges[-1]))
        number = int(np.searchsorted(self.edges, place, side="right"))
        left = int(self.edges[number]) - place
        if onset:
            number = _random(generator, len(self.trained))
            left = len(self.spoken[number])
        parts, missing = [], frames
        while missing:
            source, index = self.trained[number]
            count = min(missing, left)
            parts.append(source.cut(index, self.spoken[number].stop - left, count, hop))
            number = _random(generator, len(self.trained))
            missing, left = missing - count, len(self.spoken[number])
        return _joined(parts, dim=-1)


def _random(generator: torch.Generator, below: int) -> int:
    return int(torch.randint(0, below, (), generator=generator))


def _joined(parts: Sequence[Segment], dim: int) -> Segment:
    return Segment(**{name: torch.cat([getattr(part, name) for part in parts], dim=dim) for name in vars(parts[0])})
