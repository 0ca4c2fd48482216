"""Clips with their codes and the phase of the voice, and random training segments of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from training.dataset import Clips, load_clips
from training.factors import FRAME, Curves, phase_points, read_codebook, read_curves, speech_frames

Place = Literal["anywhere", "onset", "ending"]
"""Where a segment lies: on a tape of all clips, or from where an utterance starts, or up to where one ends."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A batch of segments of F frames: `codes` [B, C, F], `audio` [B, 1, F * FRAME] that these codes should become.

    `starts` int64 [B, F] is the phase of the voice at the start of each frame, in units of 1 / CYCLE_UNITS cycles.
    """

    codes: Tensor
    audio: Tensor
    starts: Tensor


@dataclass(frozen=True, kw_only=True)
class Source:
    """A folder of clips, their codes by clip index, the teacher's curves by id, loudness centres [128, 2]."""

    clips: Clips
    codes: dict[int, Tensor]
    curves: dict[str, Curves]
    centres: Tensor

    @classmethod
    def load(cls, data: Path, cache: Path, codes: Path, prosody: Path) -> Source:
        """Everything of one data folder; clips without codes are left out."""
        clips, stored = load_clips(data, cache), load_file(codes)
        known = {i: stored[name].long() for i, name in enumerate(clips.ids) if name in stored}
        return cls(clips=clips, codes=known, curves=read_curves(prosody), centres=read_codebook(codes)[1])

    def spoken(self, index: int) -> range:
        """The frames of clip `index` that the language model would speak."""
        kept = speech_frames(self.codes[index], self.centres)
        return range(kept.start, kept.stop)

    def cut(self, index: int, first: int, frames: int) -> Segment:
        """Frames `first` to `first + frames` of clip `index`; beyond its ends there is silence."""
        codes = self.codes[index]
        at = torch.arange(first, first + frames).clamp(0, codes.shape[1] - 1)
        points = torch.from_numpy(phase_points(self.curves[self.clips.ids[index]].phase, codes.shape[1]))
        return Segment(
            codes=codes[:, at][None],
            audio=self._audio(index, first * FRAME, frames * FRAME)[None, None],
            starts=points[2 * at][None],
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

    def draw(self, generator: torch.Generator, batch: int, frames: int, place: Place = "anywhere") -> Segment:
        """A batch of random segments.

        Where a clip ends another one begins, as if all were on one tape, in another order each time.
        """
        rows = [self._tape(generator, frames, place) for _ in range(batch)]
        return _joined(rows, dim=0)

    def _tape(self, generator: torch.Generator, frames: int, place: Place) -> Segment:
        spot = _random(generator, int(self.edges[-1]))
        number = int(np.searchsorted(self.edges, spot, side="right"))
        left = int(self.edges[number]) - spot
        if place != "anywhere":
            number = _random(generator, len(self.trained))
            left = len(self.spoken[number])
        parts, missing = [], frames
        while missing:
            source, index = self.trained[number]
            count = min(missing, left)
            first = self.spoken[number].stop - (count if place == "ending" else left)
            parts.append(source.cut(index, first, count))
            number = _random(generator, len(self.trained))
            missing, left = missing - count, len(self.spoken[number])
        return _joined(parts[::-1] if place == "ending" else parts, dim=-1)


def _random(generator: torch.Generator, below: int) -> int:
    return int(torch.randint(0, below, (), generator=generator))


def _joined(parts: Sequence[Segment], dim: int) -> Segment:
    return Segment(**{name: torch.cat([getattr(part, name) for part in parts], dim=dim) for name in vars(parts[0])})
