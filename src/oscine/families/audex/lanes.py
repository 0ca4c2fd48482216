"""What one sequence keeps between steps (its lane), and how a call's rows read and write it.

A lane belongs to one job, so attention and state updates run lane by lane with shapes that depend on that lane alone:
neighbours cannot change a bit, and no keys are copied together. Only products with weights are batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

GROWTH = 2


class LaneKV:
    """Keys and values of one sequence in all attention layers; grows by doubling up to `limit`, contents stay."""

    def __init__(
        self,
        layers: int,
        heads: int,
        head_dim: int,
        *,
        capacity: int,
        like: Tensor,
        limit: int | None = None,
    ) -> None:
        self.length = 0
        """Positions that hold; a call writes beyond them and its owner then moves `length` on."""
        self._limit = limit
        self._store = like.new_zeros(2, layers, heads, capacity, head_dim)

    @property
    def capacity(self) -> int:
        """Positions there is room for."""
        return self._store.shape[3]

    def reserve(self, length: int) -> None:
        """Makes room for `length` positions; doubles when it grows, but beyond `limit` only as far as it must."""
        if length > self.capacity:
            shape = list(self._store.shape)
            shape[3] = max(length, min(GROWTH * self.capacity, self._limit or GROWTH * self.capacity))
            grown = self._store.new_zeros(shape)
            grown[:, :, :, : self.length] = self._store[:, :, :, : self.length]
            self._store = grown

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes k, v [head, time, head_dim] after `length`; views [head, length + time, head_dim] of all so far."""
        end = self.length + k.shape[1]
        self._store[0, layer, :, self.length : end] = k
        self._store[1, layer, :, self.length : end] = v
        return self._store[0, layer, :, :end], self._store[1, layer, :, :end]


@dataclass(kw_only=True)
class MambaState:
    """A Mamba block's memory: the last conv inputs [channel, kernel] and the state float32 [head, head_dim, state]."""

    conv: Tensor
    ssm: Tensor


LaneSnapshot = tuple[int, list[MambaState]]
"""Length and states."""


@dataclass(kw_only=True)
class Lane:
    """One sequence on the device. `kv` and `mamba` are in the order of the attention and Mamba blocks."""

    kv: LaneKV
    mamba: list[MambaState] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens taken in so far."""
        return self.kv.length

    def snapshot(self) -> LaneSnapshot:
        """A point to come back to. Nothing is copied: keys stay where they are, and calls replace the states."""
        return self.length, [replace(state) for state in self.mamba]

    def restore(self, snapshot: LaneSnapshot) -> None:
        """Back to a snapshot of this lane, which may be used again; a call since then may have broken off."""
        self.kv.length = snapshot[0]
        self.mamba = [replace(state) for state in snapshot[1]]


class Prefill:
    """A call whose rows are consecutive positions of one fresh lane."""

    def __init__(self, lane: Lane) -> None:
        self.lanes = (lane,)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention of q [time, head, head_dim] over k, v [time, kv_head, head_dim] → as q; stores k, v."""
        k, v = self.lanes[0].kv.append(layer, k.transpose(0, 1), v.transpose(0, 1))
        group = q.shape[1] // k.shape[0]
        k, v = k.repeat_interleave(group, dim=0)[None], v.repeat_interleave(group, dim=0)[None]
        return F.scaled_dot_product_attention(q.transpose(0, 1)[None], k, v, is_causal=True)[0].transpose(0, 1)


class Decode:
    """A call whose rows are one new position each of several lanes; rows beyond the lanes are padding."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self.lanes = tuple(lanes)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of q [row, head, head_dim], each row over its own lane → as q; stores k, v [row, kv_head, ...]."""
        out = torch.zeros_like(q)
        for row, lane in enumerate(self.lanes):
            keys, values = lane.kv.append(layer, k[row, :, None], v[row, :, None])
            # The heads that share keys stand in as queries of one head: nothing is repeated or masked.
            grouped = torch.unflatten(q[row], 0, (keys.shape[0], -1))[None]
            out[row] = F.scaled_dot_product_attention(grouped, keys[None], values[None])[0].flatten(0, 1)
        return out


Call = Prefill | Decode
