"""What sequences in flight remember: attention keys and values, and recurrent states where a model has any.

It stores and copies; what is stored when is its owner's business. Unused entries are finite (zeros or left-overs),
because a masked key still takes part in the sum, times zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

Exported = dict[str, Tensor]
"""A row's state: `kv` [layer, 2 * kv_head, length, head_dim], and recurrent states by name."""

GROWTH = 2


class RowTensors:
    """Named tensors whose first axis is the row of a sequence; they grow together, contents stay, the new is zero."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = dict(tensors)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    @property
    def rows(self) -> int:
        """Rows there is storage for."""
        return next((tensor.shape[0] for tensor in self.tensors.values()), 0)

    def ensure(self, rows: int) -> None:
        """Grows to at least `rows` rows."""
        for name, old in self.tensors.items():
            if old.shape[0] < rows:
                self.tensors[name] = old.new_zeros(rows, *old.shape[1:])
                self.tensors[name][: old.shape[0]] = old

    def move(self, source: int, target: int) -> None:
        """Copies a row over another."""
        for tensor in self.tensors.values():
            tensor[target] = tensor[source]

    def clear(self, row: int) -> None:
        """Zeros a row."""
        for tensor in self.tensors.values():
            tensor[row] = 0

    def snapshot(self, rows: int | slice, names: Iterable[str] | None = None) -> Exported:
        """A copy of a row or rows of the tensors named (None: all)."""
        return {name: self.tensors[name][rows].clone() for name in (self.tensors if names is None else names)}

    def restore(self, rows: int | slice, stored: Mapping[str, Tensor]) -> None:
        """Puts back what `snapshot` gave."""
        for name, values in stored.items():
            self.tensors[name][rows] = values


@dataclass(frozen=True, kw_only=True)
class CacheShape:
    """What one sequence of a model keeps: keys and values of `layers`, and `states` by name (shape, dtype)."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    states: Mapping[str, tuple[tuple[int, ...], torch.dtype]] = field(default_factory=dict)

    def row_bytes(self, width: int) -> int:
        """Bytes that one sequence of `width` positions takes."""
        keys = 2 * self.layers * self.kv_heads * width * self.head_dim * self.dtype.itemsize
        return keys + sum(prod(shape) * dtype.itemsize for shape, dtype in self.states.values())


@dataclass(frozen=True, kw_only=True)
class KVPlan:
    """Where one call writes and what it reads: made once, used by every layer.

    `index` int64 [row * time * (2 * kv_heads)] addresses (row, head, position) in the flat storage of a layer.
    """

    index: Tensor
    rows: slice
    width: int


class SequenceCache:
    """State of sequences in rows of one width; grows on demand, never shrinks.

    `layers` are the keys and values of each layer, [row, 2 * kv_heads, capacity, head_dim], keys first; `states` the
    recurrent states, updated in place.
    """

    def __init__(self, shape: CacheShape, device: torch.device | str) -> None:
        self.kv_heads, self.head_dim = shape.kv_heads, shape.head_dim
        empty = (0, 2 * shape.kv_heads, 0, shape.head_dim)
        self.layers = [torch.zeros(empty, dtype=shape.dtype, device=device) for _ in range(shape.layers)]
        self.states = RowTensors(
            {name: torch.zeros(0, *size, dtype=dtype, device=device) for name, (size, dtype) in shape.states.items()}
        )

    @property
    def rows(self) -> int:
        """Rows there is storage for."""
        return self.layers[0].shape[0]

    @property
    def capacity(self) -> int:
        """Positions there is storage for in each row."""
        return self.layers[0].shape[2]

    def ensure(self, rows: int, width: int = 0) -> None:
        """Grows to at least `rows` rows of at least `width` positions, one layer at a time; contents stay."""
        self.states.ensure(rows)
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
        self.states.move(source, target)

    def begin(self, row: int) -> None:
        """Makes a row ready for a new sequence; old keys stay, finite and never seen."""
        self.states.clear(row)

    def clear(self, row: int) -> None:
        """Zeros all of a row: needed when it may hold values that are not finite."""
        for layer in self.layers:
            layer[row] = 0
        self.begin(row)

    def export(self, row: int, length: int) -> Exported:
        """A copy of a row's state after `length` positions."""
        return {"kv": torch.stack([layer[row, :, :length] for layer in self.layers]), **self.states.snapshot(row)}

    def load(self, row: int, stored: Exported) -> int:
        """Puts an exported state into a row, which must be wide enough; its length in positions."""
        for layer, values in zip(self.layers, stored["kv"], strict=True):
            layer[row, :, : values.shape[1]] = values
        self.states.restore(row, {name: values for name, values in stored.items() if name != "kv"})
        return stored["kv"].shape[2]


LaneSnapshot = tuple[int, dict[str, Tensor]]
"""Length and states."""


class Lane:
    """One sequence with storage of its own, which grows by doubling up to `limit` positions; contents stay.

    `states` are replaced by what comes after them, never changed, so that a snapshot copies nothing.
    """

    def __init__(
        self, shape: CacheShape, device: torch.device | str, *, capacity: int, limit: int | None = None
    ) -> None:
        self.length = 0
        """Positions that hold; a call writes beyond them and its owner then moves `length` on."""
        self._limit = limit
        self._cache = SequenceCache(shape, device)
        self._cache.ensure(1, capacity)
        self.states = {name: tensor[0] for name, tensor in self._cache.states.tensors.items()}

    @property
    def capacity(self) -> int:
        """Positions there is room for."""
        return self._cache.capacity

    def reserve(self, length: int) -> None:
        """Makes room for `length` positions; doubles when it grows, but beyond `limit` only as far as it must."""
        if length > self.capacity:
            doubled = GROWTH * self.capacity
            self._cache.ensure(1, max(length, min(doubled, self._limit or doubled)))

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes k, v [head, time, head_dim] after `length`; views [head, length + time, head_dim] of all so far."""
        keys, values = self._cache.layers[layer][0].chunk(2)
        end = self.length + k.shape[1]
        keys[:, self.length : end], values[:, self.length : end] = k, v
        return keys[:, :end], values[:, :end]

    def snapshot(self) -> LaneSnapshot:
        """A point to come back to; keys stay where they are."""
        return self.length, dict(self.states)

    def restore(self, snapshot: LaneSnapshot) -> None:
        """Back to a snapshot of this lane, which may be used again; a call since then may have broken off."""
        self.length, self.states = snapshot[0], dict(snapshot[1])
