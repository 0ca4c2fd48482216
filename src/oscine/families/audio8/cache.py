"""What the slow model remembers of its rows: keys and values, and for the hybrid the recurrent state."""

from __future__ import annotations

import torch
from torch import Tensor

from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.hybrid import MixerState
from oscine.layers.kv_cache import KVCache

Exported = dict[str, Tensor]
"""A row's state: `kv` [layer, 2 * kv_head, length, head_dim] and, for the hybrid, `conv` and `ssm` [layer, ...]."""


def row_bytes(config: LMConfig, dtype: torch.dtype, width: int) -> int:
    """Bytes that one row of `width` positions takes."""
    keys = 2 * config.n_local_heads * width * config.head_dim * dtype.itemsize
    hybrid = config.hybrid
    if hybrid is None:
        return config.n_layer * keys
    conv = (hybrid.mamba_d_conv - 1) * hybrid.conv_dim * dtype.itemsize
    return config.n_layer * (keys + conv + hybrid.mamba_n_heads * hybrid.mamba_d_head * hybrid.mamba_d_state * 4)


class SlowCache:
    """State of many rows of the slow model; grows on demand, never shrinks.

    `conv` [layer, row, d_conv - 1, conv_dim] and `ssm` float32 [layer, row, head, head_dim, d_state] are empty for a
    dense model.
    """

    def __init__(self, config: LMConfig, *, dtype: torch.dtype, device: torch.device | str) -> None:
        self.kv = KVCache(config.n_layer, config.n_local_heads, config.head_dim, dtype=dtype, device=device)
        hybrid = config.hybrid
        self.is_hybrid = hybrid is not None
        conv_shape = (hybrid.mamba_d_conv - 1, hybrid.conv_dim) if hybrid else ()
        ssm_shape = (hybrid.mamba_n_heads, hybrid.mamba_d_head, hybrid.mamba_d_state) if hybrid else ()
        self.conv = torch.zeros(config.n_layer, 0, *conv_shape, dtype=dtype, device=device)
        self.ssm = torch.zeros(config.n_layer, 0, *ssm_shape, dtype=torch.float32, device=device)

    @property
    def rows(self) -> int:
        """Rows there is storage for."""
        return self.kv.rows

    def ensure(self, rows: int, width: int) -> None:
        """Grows to at least `rows` rows of at least `width` positions; contents stay, new entries are zero."""
        self.kv.ensure(rows, width)
        if self.is_hybrid and self.conv.shape[1] < rows:
            self.conv = _with_rows(self.conv, rows)
            self.ssm = _with_rows(self.ssm, rows)

    def mixer_state(self, layer: int, rows: slice) -> MixerState:
        """A layer's recurrent state of `rows`: views, updated in place."""
        return MixerState(conv=self.conv[layer, rows], ssm=self.ssm[layer, rows])

    def move(self, source: int, target: int) -> None:
        """Copies a row over another."""
        self.kv.move(source, target)
        if self.is_hybrid:
            self.conv[:, target] = self.conv[:, source]
            self.ssm[:, target] = self.ssm[:, source]

    def begin(self, row: int) -> None:
        """Makes a row ready for a new sequence; old keys stay, finite and never seen."""
        if self.is_hybrid:
            self.conv[:, row] = 0
            self.ssm[:, row] = 0

    def clear(self, row: int) -> None:
        """Zeros all of a row: needed when it may hold values that are not finite."""
        self.kv.clear(row)
        self.begin(row)

    def export(self, row: int, length: int) -> Exported:
        """A copy of a row's state after `length` positions."""
        recurrent = self.snapshot(row)
        return {"kv": self.kv.export(row, length), **recurrent}

    def load(self, row: int, stored: Exported) -> int:
        """Puts an exported state into a row; its length in positions."""
        self.kv.load(row, stored["kv"])
        self.restore(row, stored)
        return stored["kv"].shape[2]

    def snapshot(self, row: int | slice) -> Exported:
        """A copy of the part of a row or rows that a later step overwrites: recurrent state (nothing when dense)."""
        if not self.is_hybrid:
            return {}
        return {"conv": self.conv[:, row].clone(), "ssm": self.ssm[:, row].clone()}

    def restore(self, row: int | slice, stored: Exported) -> None:
        """Puts the recurrent state of `snapshot` or `export` back."""
        if self.is_hybrid:
            self.conv[:, row] = stored["conv"]
            self.ssm[:, row] = stored["ssm"]


def _with_rows(old: Tensor, rows: int) -> Tensor:
    new = old.new_zeros(old.shape[0], rows, *old.shape[2:])
    new[:, : old.shape[1]] = old
    return new
