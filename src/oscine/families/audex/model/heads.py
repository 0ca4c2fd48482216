"""The part of the output matrix that a task needs: most of its 205,312 rows can never be drawn by a sound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from oscine.kernels.int8 import Matrix, product

MIN_RUN = 64
"""Fewest rows of a product: a narrow one takes a kernel whose sums depend on how many jobs there are."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Columns `first` to `first + count` of the product with `weight`, a view of some rows of the output matrix."""

    weight: Matrix
    first: int
    count: int


@dataclass(frozen=True, kw_only=True)
class Head:
    """Some rows of the output matrix; column i of the logits is token `ids[i]`."""

    runs: tuple[Run, ...]
    ids: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Weights that a product reads."""
        tensors = [
            tensor
            for run in self.runs
            for tensor in ([run.weight] if isinstance(run.weight, Tensor) else [run.weight.weight, run.weight.scale])
        ]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def __call__(self, hidden: Tensor) -> Tensor:
        """Normed hidden rows [row, dim] → float32 logits [row, column]."""
        parts = [product(hidden, run.weight)[:, run.first : run.first + run.count] for run in self.runs]
        return torch.cat(parts, dim=-1).float()


def head_of(weight: Matrix, ids: Iterable[int]) -> Head:
    """The head over the token `ids`, in ascending order, so that ties fall as they do in the whole one."""
    ordered = sorted(set(ids))
    starts = [i for i, token in enumerate(ordered) if not i or token != ordered[i - 1] + 1]
    ends = [*starts[1:], len(ordered)]
    runs = (_run(weight, ordered[a], b - a) for a, b in zip(starts, ends, strict=True))
    return Head(runs=tuple(runs), ids=tuple(ordered))


def _run(weight: Matrix, start: int, count: int) -> Run:
    begin = max(0, min(start, len(weight) - MIN_RUN))
    return Run(weight=weight[begin : max(start + count, begin + MIN_RUN)], first=start - begin, count=count)
