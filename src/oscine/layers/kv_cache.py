"""Storage of attention keys and values for a batch of rows at different positions.

It stores and copies; what is stored when is its owner's business. Unused entries are finite (zeros or left-overs),
because a masked key still takes part in the sum, times zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class KVPlan:
    """Where one call writes and what it reads: made once, used by every layer.

    `index` int64 [row * time * (2 * kv_heads)] addresses (row, head, position) in the flat storage of a layer.
    """

    index: Tensor
    rows: slice
    width: int


class KVCache:
    """Keys and values of `num_layers` layers, each one tensor [row, 2 * kv_heads, capacity, head_dim], keys first."""

    def __init__(
        self, num_layers: int, kv_heads: int, head_dim: int, *, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        self.kv_heads = kv_heads
        self.head_dim = head_dim
        self.layers = [torch.zeros(0, 2 * kv_heads, 0, head_dim, dtype=dtype, device=device) for _ in range(num_layers)]

    @property
    def rows(self) -> int:
        """Rows there is storage for."""
        return self.layers[0].shape[0] if self.layers else 0

    @property
    def capacity(self) -> int:
        """Positions there is storage for in each row."""
        return self.layers[0].shape[2] if self.layers else 0

    def row_bytes(self, width: int) -> int:
        """Bytes that one row of `width` positions takes in all layers."""
        return sum(2 * self.kv_heads * width * self.head_dim * layer.element_size() for layer in self.layers)

    def ensure(self, rows: int, width: int) -> None:
        """Grows to at least `rows` rows of at least `width` positions, one layer at a time; contents stay."""
        rows, width = max(rows, self.rows), max(width, self.capacity)
        if (rows, width) == (self.rows, self.capacity):
            return
        for index, old in enumerate(self.layers):
            new = old.new_zeros(rows, 2 * self.kv_heads, width, self.head_dim)
            new[: old.shape[0], :, : old.shape[2]] = old
            self.layers[index] = new

    def plan(self, positions: Tensor, rows: slice, width: int) -> KVPlan:
        """The plan for writing `positions` int64 [row, time] of `rows` and reading the first `width` positions."""
        row = torch.arange(rows.start, rows.stop, device=positions.device)[:, None, None]
        head = torch.arange(2 * self.kv_heads, device=positions.device)
        index = (row * 2 * self.kv_heads + head) * self.capacity + positions[:, :, None]
        return KVPlan(index=index.flatten(), rows=rows, width=width)

    def append(self, layer: int, kv: Tensor, plan: KVPlan) -> tuple[Tensor, Tensor]:
        """Writes kv [row, time, 2 * kv_heads, head_dim]; views of (keys, values) [row, kv_head, width, head_dim]."""
        storage = self.layers[layer]
        storage.view(-1, self.head_dim).index_copy_(0, plan.index, kv.reshape(-1, self.head_dim))
        rows = plan.rows
        keys, values = storage.narrow(0, rows.start, rows.stop - rows.start).narrow(2, 0, plan.width).chunk(2, dim=1)
        return keys, values

    def move(self, source: int, target: int) -> None:
        """Copies a row over another."""
        for layer in self.layers:
            layer[target] = layer[source]

    def clear(self, row: int) -> None:
        """Zeros a row."""
        for layer in self.layers:
            layer[row] = 0

    def export(self, row: int, length: int) -> Tensor:
        """A copy of the first `length` positions of a row [layer, 2 * kv_heads, length, head_dim]."""
        return torch.stack([layer[row, :, :length] for layer in self.layers])

    def load(self, row: int, stored: Tensor) -> None:
        """Puts what `export` gave at the start of a row; the capacity must hold it."""
        for layer, values in zip(self.layers, stored, strict=True):
            layer[row, :, : values.shape[1]] = values
