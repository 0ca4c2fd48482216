"""CUDA graphs: work recorded once for fixed shapes and replayed, so that a step is one launch instead of thousands.

A `Capture` does the recording, so that everything around it runs, and is tested, without CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from oscine.families.auk.model.layouts import AuKStepContext

Work = Callable[..., Tensor]
"""A function of tensors of fixed shapes, without a decision that depends on their values."""
Capture = Callable[[Work, Sequence[Tensor]], Work]
"""(work, inputs of the shapes to come) → the same work, done by replaying what it did."""

WARM_UPS = 3
"""Runs before the capture: compilers, libraries and the allocator settle outside of it."""


def captured(work: Work, inputs: Sequence[Tensor]) -> Work:
    """The work as a CUDA graph; it copies its inputs in, replays, and gives a copy of its output."""
    held = [value.clone() for value in inputs]
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            work(*held)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = work(*held)

    def replay(*values: Tensor) -> Tensor:
        copy_into(held, values)
        graph.replay()
        return output.clone()

    return replay


class CapturedStep:
    """One captured evaluation of the transformer, for every request of its shapes.

    The context's tensors are copied in when another request comes, the latents and the modulation row at every step.
    """

    def __init__(
        self,
        capture: Capture,
        evaluate: Callable[[Tensor, Tensor, AuKStepContext], Tensor],
        x: Tensor,
        rows: Tensor,
        context: AuKStepContext,
    ) -> None:
        self._own, self._bound = _without_table(context).clone(), context
        self._replay = capture(lambda x, rows: evaluate(x, rows, self._own), (x, rows))

    def __call__(self, x: Tensor, rows: Tensor, context: AuKStepContext) -> Tensor:
        """The velocity [branch * batch, frame, latent]."""
        if context is not self._bound:
            self._own.copy_(_without_table(context))
            self._bound = context
        return self._replay(x, rows)


def shapes_of(context: AuKStepContext) -> tuple[tuple[int, ...] | None, ...]:
    """The shapes a graph of the context is for; the modulation table is no part of it, its rows are an input."""
    return tuple(None if value is None else tuple(value.shape) for value in _without_table(context).tensors())


def _without_table(context: AuKStepContext) -> AuKStepContext:
    return replace(context, modulation=None)


def copy_into(held: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Copies values into the tensors that a graph reads."""
    for mine, theirs in zip(held, values, strict=True):
        mine.copy_(theirs)
