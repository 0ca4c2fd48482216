"""Convolutions as streams: pushed pieces give the same values as the whole signal, edges at both true ends included.

A whole decode is one push with `final=True`, so there is one implementation of padding. Tensors are
[batch, channel, time].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = Callable[[], tuple[Tensor, Tensor | None]]
"""Gives (weight, bias) when asked, so that a stream opened early sees weights folded later."""


class Stream(Protocol):
    """One signal on its way through an operation."""

    def push(self, x: Tensor, final: bool) -> Tensor:
        """The outputs that are settled once `x` (maybe empty) is added; `final` says that the signal ends here."""


class ConvStream:
    """A (strided, dilated) convolution; `pad` samples of zeros, or of the edge's value, at the two true ends.

    signal      .....xxxxxxxxxxx|        a push ends at |
    kept            [=========]          reach = dilation * (kernel - 1) samples wait for the next push
    """

    def __init__(
        self,
        weights: Weights,
        *,
        pad: tuple[int, int],
        stride: int = 1,
        dilation: int = 1,
        replicate: bool = False,
        groups: int = 1,
    ) -> None:
        self._weights, self._stride, self._dilation, self._groups = weights, stride, dilation, groups
        self._edges = _Edges(*pad, replicate=replicate)
        self._kept: Tensor | None = None

    def push(self, x: Tensor, final: bool) -> Tensor:
        """See `Stream`."""
        weight, bias = self._weights()
        buffer = _join(self._kept, self._edges.add(x, final))
        reach = self._dilation * (weight.shape[-1] - 1)
        count = (buffer.shape[-1] - reach - 1) // self._stride + 1
        if count <= 0:
            self._kept = buffer
            return buffer.new_empty(buffer.shape[0], weight.shape[0], 0)
        self._kept = _keep(buffer, count * self._stride, final)
        return F.conv1d(buffer, weight, bias, stride=self._stride, dilation=self._dilation, groups=self._groups)


class TransposedStream:
    """A transposed convolution; `trim` outputs are cut from the two true ends, `edge` inputs replicated before them."""

    def __init__(
        self,
        weights: Weights,
        *,
        stride: int,
        trim: tuple[int, int],
        edge: tuple[int, int] = (0, 0),
        groups: int = 1,
    ) -> None:
        self._weights, self._stride, self._groups = weights, stride, groups
        self._skip, self._trim_right = trim
        self._edges = _Edges(*edge, replicate=True)
        self._history: Tensor | None = None

    def push(self, x: Tensor, final: bool) -> Tensor:
        """See `Stream`."""
        weight, bias = self._weights()
        kernel, stride = weight.shape[-1], self._stride
        emitted = 0 if self._history is None else self._history.shape[-1] * stride
        buffer = _join(self._history, self._edges.add(x, final))
        length = buffer.shape[-1]
        if not length:
            return buffer.new_empty(buffer.shape[0], weight.shape[1] * self._groups, 0)
        out = F.conv_transpose1d(buffer, weight, bias, stride=stride, groups=self._groups)
        end = (length - 1) * stride + kernel - self._trim_right if final else length * stride
        out = out[..., emitted:end]
        skipped = min(self._skip, out.shape[-1])
        self._skip -= skipped
        depth = -(-kernel // stride) - 1  # earlier inputs that later outputs still see
        self._history = _keep(buffer, max(0, length - depth), final)
        return out[..., skipped:]


class ResidualStream:
    """`x + branch(x)`, the skip path waiting for a branch that looks ahead."""

    def __init__(self, branch: Sequence[Stream]) -> None:
        self._branch = branch
        self._waiting: Tensor | None = None

    def push(self, x: Tensor, final: bool) -> Tensor:
        """See `Stream`."""
        y = x
        for stream in self._branch:
            y = stream.push(y, final)
        waiting = _join(self._waiting, x)
        count = y.shape[-1]
        self._waiting = _keep(waiting, count, final)
        return waiting[..., :count] + y


class MeanStream:
    """The mean of parallel branches, each given as a chain of streams."""

    def __init__(self, branches: Sequence[Sequence[Stream]]) -> None:
        self._branches = branches
        self._waiting: list[Tensor | None] = [None] * len(branches)

    def push(self, x: Tensor, final: bool) -> Tensor:
        """See `Stream`."""
        ready = []
        for chain, waiting in zip(self._branches, self._waiting, strict=True):
            y = x
            for stream in chain:
                y = stream.push(y, final)
            ready.append(_join(waiting, y))
        count = min(y.shape[-1] for y in ready)
        self._waiting = [_keep(y, count, final) for y in ready]
        total = ready[0][..., :count]
        for y in ready[1:]:
            total = total + y[..., :count]
        return total / len(ready)


class _Edges:
    """Adds what lies beyond the two true ends of a signal."""

    def __init__(self, left: int, right: int, *, replicate: bool) -> None:
        self._left, self._right, self._replicate = left, right, replicate
        self._last: Tensor | None = None  # the last sample seen, once there is one

    def add(self, x: Tensor, final: bool) -> Tensor:
        parts = [x]
        if x.shape[-1]:
            if self._last is None and self._left:
                parts.insert(0, self._beyond(x[..., :1], self._left))
            self._last = x[..., -1:]
        if final and self._right and self._last is not None:
            parts.append(self._beyond(self._last, self._right))
        return torch.cat(parts, dim=-1) if len(parts) > 1 else x

    def _beyond(self, sample: Tensor, count: int) -> Tensor:
        edge = sample if self._replicate else torch.zeros_like(sample)
        return edge.expand(*edge.shape[:-1], count)


def _join(before: Tensor | None, x: Tensor) -> Tensor:
    return x if before is None or not before.shape[-1] else torch.cat([before, x], dim=-1)


def _keep(x: Tensor, start: int, final: bool) -> Tensor | None:
    """A copy of what later pushes need, so that the large tensor it was cut from is freed; nothing once it is over."""
    return None if final else x[..., start:].clone()
