"""Per-row tensors of the jobs in flight, beside their rows of the slow cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from oscine.families.audio8.backends.protocol import SamplingRows, noise_size
from oscine.families.audio8.config import LMConfig
from oscine.kernels.vector import VECTOR_LOOP
from oscine.runtime.sampling import truncation

STEPPED = ("columns", "positions", "recent")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How one job is drawn; `do_sample` False takes the best candidate everywhere."""

    do_sample: bool = True
    temperature: float = 0.7
    top_k: int = 50
    top_p: float = 0.9


class DecodeRows:
    """Row r of every tensor belongs to the job in row r of the cache; a free row holds harmless values.

    `columns` int64 [row, C + 1] is the column a job feeds next, `positions` int64 [row] where it goes, `recent` int64
    [row, window] its last semantic codes.
    """

    def __init__(self, config: LMConfig, device: torch.device) -> None:
        self._pinned = device.type == "cuda"
        self._tensors: dict[str, Tensor] = {
            "columns": torch.zeros(0, config.num_codebooks + 1, dtype=torch.long, device=device),
            "positions": torch.zeros(0, dtype=torch.long, device=device),
            "recent": torch.zeros(0, config.ras_window_size, dtype=torch.long, device=device),
            "temperature": torch.zeros(0, device=device),
            "top_k": torch.zeros(0, dtype=torch.long, device=device),
            "top_p": torch.zeros(0, device=device),
            "ras": torch.zeros(0, dtype=torch.bool, device=device),
            "noise": torch.zeros(0, noise_size(config), device=device),
        }
        self._drawn = torch.zeros(0, noise_size(config))  # where generators write; the same tensor as noise on a CPU
        self._config = config
        self._sampling: dict[tuple[int, int, int | None, bool], SamplingRows] = {}

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    @property
    def count(self) -> int:
        """Rows there is storage for."""
        return self._tensors["positions"].shape[0]

    def ensure(self, rows: int) -> None:
        """Grows to at least `rows` rows; contents stay, new rows are zero."""
        if rows <= self.count:
            return
        for name, old in self._tensors.items():
            grown = old.new_zeros(rows, *old.shape[1:])
            grown[: old.shape[0]] = old
            self._tensors[name] = grown
        self._sampling.clear()
        on_host = torch.zeros(self._tensors["noise"].shape, pin_memory=True) if self._pinned else None
        self._drawn = self._tensors["noise"] if on_host is None else on_host

    def start(self, row: int, params: Sampling, position: int) -> None:
        """Gives the row to a new job whose first frame will be fed at `position`."""
        self._sampling.clear()
        self._tensors["positions"][row] = position
        self._tensors["recent"][row] = -1
        self._tensors["temperature"][row] = params.temperature if params.do_sample else 0.0
        self._tensors["top_k"][row] = params.top_k
        self._tensors["top_p"][row] = params.top_p
        self._tensors["ras"][row] = params.do_sample

    def move(self, source: int, target: int) -> None:
        """Copies a row over another."""
        self._sampling.clear()
        for tensor in self._tensors.values():
            tensor[target] = tensor[source]

    def free(self, row: int) -> None:
        """Makes a row harmless as padding."""
        self._sampling.clear()
        for tensor in self._tensors.values():
            tensor[row] = 0

    def snapshot(self, rows: slice) -> dict[str, Tensor]:
        """A copy of what a step changes in `rows`, but for the noise."""
        return {name: self._tensors[name][rows].clone() for name in STEPPED}

    def restore(self, rows: slice, stored: Mapping[str, Tensor]) -> None:
        """Puts back what `snapshot` gave."""
        for name, values in stored.items():
            self._tensors[name][rows] = values

    def draw_noise(self, generators: Sequence[tuple[int, Generator]], rows: slice) -> None:
        """Fills the noise of each (row, generator) with one frame's uniforms, in the order of the definition."""
        for row, generator in generators:
            self._drawn[row].uniform_(generator=generator)
        if self._drawn is not self._tensors["noise"]:
            self._tensors["noise"][rows].copy_(self._drawn[rows], non_blocking=True)

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
        part, size = {name: tensor[rows] for name, tensor in self._tensors.items()}, self._config.codebook_size + 1
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
        columns, recent = self._tensors["columns"][rows], self._tensors["recent"][rows]
        columns[:, 0] = codes[:, 0] + self._config.semantic_begin_id
        columns[:, 1:] = codes
        if recent.shape[1]:
            recent.copy_(torch.cat([recent[:, 1:], codes[:, :1]], dim=1))
