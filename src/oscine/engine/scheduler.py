"""Who is admitted and who steps next: plain Python on lists and integers, no tensors.

Admission is first come, first served within the memory budget. Among the running jobs, those whose next step has an
equal batch key form a group; the group served longest ago goes first, and in it the jobs served longest ago. Each
group therefore waits for at most one step of every other group: nothing starves, and a new job's first step comes
between two steps of the running ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from oscine.engine.memory import MemoryBudget
from oscine.errors import InputTooLong, QueueFull


class Schedulable(Protocol):
    """What the scheduler needs of an entry."""

    served: int  # tick of its last step; set by the scheduler

    @property
    def memory(self) -> int:
        """Worst case in bytes."""

    @property
    def generating(self) -> bool:
        """Whether it still has steps to make."""

    def blocked(self) -> bool:
        """Whether it must wait for another job before it can be admitted."""


E = TypeVar("E", bound=Schedulable)


@dataclass
class Scheduler(Generic[E]):
    """Waiting and running entries. `max_waiting` (None: no limit) and `max_running` are numbers of jobs."""

    budget: MemoryBudget
    max_waiting: int | None
    max_running: int
    waiting: list[E] = field(default_factory=list)
    running: list[E] = field(default_factory=list)
    tick: int = 0

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

    def admissible(self) -> E | None:
        """Takes the next entry that may start out of the queue and reserves its memory; None when there is none."""
        if len(self.running) >= self.max_running:
            return None
        for index, entry in enumerate(self.waiting):
            if entry.blocked():
                continue
            if not self.budget.fits(entry.memory):
                return None  # nobody overtakes: a large job would wait for ever
            self.budget.reserve(entry.memory)
            entry.served = self.tick
            self.running.append(self.waiting.pop(index))
            return entry
        return None

    def plan(self, key: Callable[[E], Hashable], max_batch: Callable[[E], int]) -> Sequence[E]:
        """The entries that step now, all of one key; empty when none has a step to make."""
        groups: dict[Hashable, list[E]] = {}
        for entry in (entry for entry in self.running if entry.generating):
            groups.setdefault(key(entry), []).append(entry)
        if not groups:
            return ()
        oldest = min(groups.values(), key=lambda group: min(entry.served for entry in group))
        batch = sorted(oldest, key=lambda entry: entry.served)[: max_batch(oldest[0])]
        self.tick += 1
        for entry in batch:
            entry.served = self.tick
        return batch

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
