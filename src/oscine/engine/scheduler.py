"""Who is admitted and who steps next: plain Python on lists and numbers, no tensors.

Admission goes by memory: what somebody hears already comes first, then what is due first, then what came first. Who of
the running jobs steps is for `planning` to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from oscine.engine.memory import MemoryBudget
from oscine.engine.planning import Steppable, StepPlanner
from oscine.errors import InputTooLong, QueueFull

PATIENCE_S = 10.0
"""How long a job waits to be admitted before nobody overtakes it but what is heard already."""


class Schedulable(Steppable, Protocol):
    """What the scheduler needs of an entry."""

    @property
    def memory(self) -> int:
        """Worst case in bytes."""

    @property
    def generating(self) -> bool:
        """Whether it still has steps to make."""

    @property
    def begun(self) -> bool:
        """Whether somebody hears what it belongs to already."""

    @property
    def submitted(self) -> float:
        """When it came."""

    def blocked(self) -> bool:
        """Whether it must wait, for another job or for its listener's turn."""


E = TypeVar("E", bound=Schedulable)


@dataclass
class Scheduler(Generic[E]):
    """Waiting and running entries. `max_waiting` (None: no limit) and `max_running` are numbers of jobs.

    As many jobs as nobody listens to may run beside those that somebody does.
    """

    budget: MemoryBudget
    max_waiting: int | None
    max_running: int
    waiting: list[E] = field(default_factory=list)
    running: list[E] = field(default_factory=list)
    planner: StepPlanner[E] = field(default_factory=StepPlanner)

    def check_fits(self, memory: int) -> None:
        """Raises `InputTooLong` for a job that can never fit."""
        if not self.budget.ever_fits(memory):
            raise InputTooLong(
                f"the request needs {memory / 2**20:.0f} MiB of working memory; this engine may use "
                f"{self.budget.total / 2**20:.0f} MiB: shorten the reference or the text, or set max_new_tokens"
            )

    def check_room(self, incoming: int) -> None:
        """Raises `QueueFull` when `incoming` jobs exceed the queue."""
        if self.max_waiting is not None and incoming > self.max_waiting:
            raise QueueFull(f"{self.max_waiting} jobs are waiting already; try again later")

    def admissible(self, now: float) -> E | None:
        """Takes the next entry that may start out of the queue and reserves its memory; None when there is none.

        One that does not fit is not overtaken by the next: a large job would wait for ever. For the same reason only
        what is heard already overtakes one that has waited for `PATIENCE_S`.
        """
        ready = [entry for entry in self.waiting if not entry.blocked() and self._has_place(entry)]
        if not ready:
            return None
        begun = [entry for entry in ready if entry.begun]
        oldest = min(ready, key=lambda entry: entry.submitted)
        patient = not begun and now - oldest.submitted > PATIENCE_S
        first = oldest if patient else min(begun or ready, key=lambda entry: entry.due)
        if not self.budget.fits(first.memory):
            return None
        self.budget.reserve(first.memory)
        first.served = self.planner.tick
        self.waiting.remove(first)
        self.running.append(first)
        return first

    def plan(self, key: Callable[[E], Hashable], max_batch: Callable[[E], int], now: float) -> Sequence[E]:
        """The entries that step now, all of one key; empty when none has a step to make. `took` says how it went."""
        return self.planner.plan([entry for entry in self.running if entry.generating], key, max_batch, now)

    def took(self, seconds: float) -> None:
        """The step that was planned last has taken so long."""
        self.planner.took(seconds)

    def clear(self) -> None:
        """Takes all entries out."""
        self.waiting.clear()
        for entry in self.running:
            self.budget.free(entry.memory)
        self.running.clear()

    def remove(self, entry: E) -> None:
        """Takes an entry out, waiting or running, and frees what it had reserved."""
        if entry in self.running:
            self.running.remove(entry)
            self.budget.free(entry.memory)
        else:
            self.waiting.remove(entry)

    def _has_place(self, entry: E) -> bool:
        listened = entry.due < math.inf
        return sum((each.due < math.inf) == listened for each in self.running) < self.max_running
