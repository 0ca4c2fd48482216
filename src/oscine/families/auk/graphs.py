"""CUDA graphs: work recorded once for fixed shapes and replayed, so that a step is one launch instead of thousands.

What is captured is told by a `Capture`, so that everything around it runs, and is tested, without CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor

from oscine.families.auk.layouts import AuKStepContext

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
        own = _copied(context)
        self._tensors, self._bound = tensors_of(own), context
        self._replay = capture(lambda x, rows: evaluate(x, rows, own), (x, rows))

    def __call__(self, x: Tensor, rows: Tensor, context: AuKStepContext) -> Tensor:
        """The velocity [branch * batch, frame, latent]."""
        if context is not self._bound:
            copy_into(self._tensors, tensors_of(context))
            self._bound = context
        return self._replay(x, rows)


def tensors_of(context: AuKStepContext) -> list[Tensor]:
    """The context's tensors in order, all but the modulation table: its rows are an input of their own."""
    values = (getattr(context, field.name) for field in fields(context) if field.name != "modulation")
    flat = (part for value in values for part in (value if isinstance(value, tuple) else (value,)))
    return [value for value in flat if isinstance(value, Tensor)]


def copy_into(held: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Copies values into the tensors that a graph reads."""
    for mine, theirs in zip(held, values, strict=True):
        mine.copy_(theirs)


def _copied(context: AuKStepContext) -> AuKStepContext:
    def copy(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(copy(part) for part in value)
        return value.clone() if isinstance(value, Tensor) else value

    names = [field.name for field in fields(context) if field.name != "modulation"]
    changes: dict[str, object] = {name: copy(getattr(context, name)) for name in names}
    return replace(context, modulation=None, **changes)  # type: ignore[arg-type]
