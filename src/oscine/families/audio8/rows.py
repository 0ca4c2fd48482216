"""Per-row tensors of the jobs in flight, which go along with their rows of the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from oscine.families.audio8.backends.protocol import SamplingRows, noise_size
from oscine.families.audio8.config import LMConfig
from oscine.kernels.vector import VECTOR_LOOP
from oscine.runtime.cache import RowTensors
from oscine.runtime.sampling import truncation

STEPPED = ("columns", "positions", "recent")
"""What a step changes, but for the noise."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How one job is drawn; `do_sample` False takes the best candidate everywhere."""

    do_sample: bool = True
    temperature: float = 0.7
    top_k: int = 50
    top_p: float = 0.9


class DecodeRows(RowTensors):
    """Row r of every tensor belongs to the job in row r of the cache; a free row holds harmless values.

    `columns` int64 [row, C + 1] is the column a job feeds next, `positions` int64 [row] where it goes, `recent` int64
    [row, window] its last semantic codes.
    """

    def __init__(self, config: LMConfig, device: torch.device) -> None:
        super().__init__(
            {
                "columns": torch.zeros(0, config.num_codebooks + 1, dtype=torch.long, device=device),
                "positions": torch.zeros(0, dtype=torch.long, device=device),
                "recent": torch.zeros(0, config.ras_window_size, dtype=torch.long, device=device),
                "temperature": torch.zeros(0, device=device),
                "top_k": torch.zeros(0, dtype=torch.long, device=device),
                "top_p": torch.zeros(0, device=device),
                "ras": torch.zeros(0, dtype=torch.bool, device=device),
                "noise": torch.zeros(0, noise_size(config), device=device),
            }
        )
        self._pinned = device.type == "cuda"
        self._drawn = torch.zeros(0, noise_size(config))  # where generators write; the same tensor as noise on a CPU
        self._config = config
        self._sampling: dict[tuple[int, int, int | None, bool], SamplingRows] = {}

    def ensure(self, rows: int) -> None:
        """As `RowTensors.ensure`."""
        if rows > self.rows:
            super().ensure(rows)
            self._sampling.clear()
            self._drawn = torch.zeros(self["noise"].shape, pin_memory=True) if self._pinned else self["noise"]

    def start(self, row: int, params: Sampling, position: int) -> None:
        """Gives the row to a new job whose first frame will be fed at `position`."""
        self._sampling.clear()
        self.tensors["positions"][row] = position
        self.tensors["recent"][row] = -1
        self.tensors["temperature"][row] = params.temperature if params.do_sample else 0.0
        self.tensors["top_k"][row] = params.top_k
        self.tensors["top_p"][row] = params.top_p
        self.tensors["ras"][row] = params.do_sample

    def move(self, source: int, target: int) -> None:
        """As `RowTensors.move`."""
        self._sampling.clear()
        super().move(source, target)

    def clear(self, row: int) -> None:
        """Makes a row harmless as padding."""
        self._sampling.clear()
        super().clear(row)

    def draw_noise(self, generators: Sequence[tuple[int, Generator]], rows: slice) -> None:
        """Fills the noise of each (row, generator) with one frame's uniforms, in the order of the definition."""
        for row, generator in generators:
            self._drawn[row].uniform_(generator=generator)
        if self._drawn is not self.tensors["noise"]:
            self.tensors["noise"][rows].copy_(self._drawn[rows], non_blocking=True)

    def sampling(self, rows: slice, *, end_allowed: Tensor | None, best: int | None, greedy: bool) -> SamplingRows:
        """How `rows` are drawn; kept until a row changes hands.

        `best`: no more than so many of the best ids can be drawn, in any row (None: all). `greedy`: no row draws.
        """
        key = (rows.start, rows.stop, best, greedy)
        if key not in self._sampling:
            self._sampling[key] = self._sampling_rows(rows, best, greedy)
        kept = self._sampling[key]
        return kept if end_allowed is None else replace(kept, end_allowed=end_allowed)

    def _sampling_rows(self, rows: slice, best: int | None, greedy: bool) -> SamplingRows:
        """`sampling` anew. The cuts are for whole rounds of a vectorised loop over ranks."""
        part, size = {name: tensor[rows] for name, tensor in self.tensors.items()}, self._config.codebook_size + 1
        count = size if best is None else min(size, -(-best // VECTOR_LOOP) * VECTOR_LOOP)
        device, k = part["top_k"].device, part["top_k"]
        normal = truncation(count, device, top_k=k, top_p=part["top_p"], temperature=part["temperature"])
        high = truncation(
            count, device, top_k=k, top_p=self._config.ras_top_p, temperature=self._config.ras_temperature
        )
        return SamplingRows(
            normal=None if greedy else normal,
            high=None if greedy else high,
            ras=part["ras"],
            recent=part["recent"],
            noise=part["noise"],
        )

    def push(self, rows: slice, codes: Tensor) -> None:
        """Makes frames of codes [row, C] what `rows` feed next, and remembers their semantic codes."""
        columns, recent = self.tensors["columns"][rows], self.tensors["recent"][rows]
        columns[:, 0] = codes[:, 0] + self._config.semantic_begin_id
        columns[:, 1:] = codes
        if recent.shape[1]:
            recent.copy_(torch.cat([recent[:, 1:], codes[:, :1]], dim=1))
