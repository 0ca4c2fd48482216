"""Faults in work on several jobs: what was done is undone, and what is one job's own stays with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from oscine.types import StepOut


class Undoable(Protocol):
    """Something with state that can be brought back to an earlier one."""

    def snapshot(self) -> Any:
        """A point to come back to; cheap."""

    def restore(self, snapshot: Any) -> None:
        """Back to a snapshot of its own."""


@contextmanager
def undo_on_error(owners: Iterable[Undoable]) -> Iterator[None]:
    """Brings all `owners` back to where they are now if the body raises; the error goes on."""
    points = [(owner, owner.snapshot()) for owner in owners]
    try:
        yield
    except Exception:
        for owner, point in points:
            owner.restore(point)
        raise


def own_outcome(advance: Callable[[], StepOut]) -> StepOut:
    """What `advance` returns, or what it raises as the error of that one job: the others have moved on already."""
    try:
        return advance()
    except Exception as error:
        return StepOut(error=error)
