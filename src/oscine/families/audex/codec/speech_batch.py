"""Frames of several streams in one call of the speech decoder, each stream's bits being those of a call of its own.

Only products with weights are batched, in calls of measured sizes. Attention, rotary tables and what looks ahead have
shapes that depend on their own stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.layers.rope import rope_table
from oscine.runtime.cache import Lane
from oscine.runtime.exact import MIN_MANY, RowRule, few_rows, many_rows

ROPE_BASE = 10000.0
PROBED_ROWS = (MIN_MANY, 17, 25, 50, 96, 160, 256)
"""Rows of products of many frames that are tried; ten streams in company have 250."""

Rules = tuple[RowRule, RowRule]
"""For streams of less than `MIN_MANY` frames in a call, and for the others.

A stream goes where its own frames would be, whatever the company: kernels differ between few rows and many.
"""
NOTHING_PROMISED: Rules = (RowRule(), RowRule(least=MIN_MANY))


def measured_rules(layers: Sequence[nn.Linear]) -> Rules:
    """The rules that hold for these layers as they are now, on this machine."""
    weight = layers[0].weight
    sizes = {(layer.in_features, layer.out_features) for layer in layers}
    return few_rows(weight.device, weight.dtype, sizes), many_rows(layers, counts=PROBED_ROWS)


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Frames of one stream in a call, those after what `lane` holds; None: the first ones, and nothing is kept."""

    frames: int
    lane: Lane | None = None

    @property
    def start(self) -> int:
        """Index of the first frame in its stream."""
        return self.lane.length if self.lane else 0


class FrameCall:
    """A call whose rows are frames of several streams, end to end; rows beyond them are padding.

    The mask and the rotary table of each stream are made here, once for all layers.
    """

    def __init__(self, stretches: Sequence[Stretch], sizes: Sequence[int], *, head_dim: int, like: Tensor) -> None:
        self.stretches, self._sizes = stretches, list(sizes)
        ends = list(accumulate(stretch.frames for stretch in stretches))
        self.rows = [slice(end - stretch.frames, end) for end, stretch in zip(ends, stretches, strict=True)]
        self.padding = sum(sizes) - ends[-1]
        tables, self._visible = [], []
        for stretch in stretches:
            end = stretch.start + stretch.frames
            if stretch.lane is not None:
                stretch.lane.reserve(end)
            positions = torch.arange(stretch.start, end, device=like.device)
            tables.append(rope_table(positions, head_dim, ROPE_BASE))
            alone = stretch.frames == 1
            self._visible.append(None if alone else torch.arange(end, device=like.device) <= positions[:, None])
        self.rope = F.pad(torch.cat(tables), (0, 0, 0, 0, 0, self.padding))
        """Rotary table [row, head_dim / 2, 2]."""

    def product(self, layer: nn.Linear, x: Tensor) -> Tensor:
        """The layer on x [1, row, dim] in calls of the allowed sizes."""
        if len(self._sizes) == 1:
            whole: Tensor = layer(x)
            return whole
        return torch.cat([layer(part) for part in torch.split(x, self._sizes, dim=1)], dim=1)

    def attend(self, index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention of q, k, v [row, head, head_dim] in layer `index`, stream by stream → as q; keeps k, v."""
        out = torch.zeros_like(q)
        for stretch, rows, visible in zip(self.stretches, self.rows, self._visible, strict=True):
            keys, values = k[rows].transpose(0, 1), v[rows].transpose(0, 1)
            if stretch.lane is not None:
                keys, values = stretch.lane.append(index, keys, values)
            queries = q[rows].transpose(0, 1)[None]
            mixed = F.scaled_dot_product_attention(queries, keys[None], values[None], attn_mask=visible)
            out[rows] = mixed[0].transpose(0, 1)
        return out

    def finish(self) -> None:
        """Moves the streams on, after the last layer."""
        for stretch in self.stretches:
            if stretch.lane is not None:
                stretch.lane.length += stretch.frames
