"""Admission and grouping, on plain integers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest

from oscine.engine.memory import MemoryBudget
from oscine.engine.scheduler import Scheduler
from oscine.errors import InputTooLong, QueueFull


@dataclass
class Item:
    name: str
    key: str = "decode"
    memory: int = 1
    served: int = 0
    waits: bool = False
    submitted: float = 0.0
    due: float = math.inf
    heard: bool = False
    begun: bool = False
    steps_to_audio: int = 1
    generating: bool = True

    def blocked(self) -> bool:
        return self.waits


def scheduler(memory: int = 100, running: int = 10) -> Scheduler[Item]:
    return Scheduler(MemoryBudget(memory), max_waiting=3, max_running=running)


def plan(s: Scheduler[Item], limit: int = 15) -> list[str]:
    return [item.name for item in s.plan(lambda item: item.key, lambda item: limit, 0.0)]


def admit_all(s: Scheduler[Item], *items: Item) -> None:
    s.waiting += items
    while s.admissible(0.0):
        pass


def test_memory_is_reserved_at_admission_and_nobody_overtakes() -> None:
    s = scheduler(memory=10)
    admit_all(s, Item("a", memory=6), Item("big", memory=9), Item("small", memory=1))
    assert [i.name for i in s.running] == ["a"]
    assert s.budget.reserved == 6
    s.remove(s.running[0])
    assert s.budget.reserved == 0
    assert s.admissible(0.0).name == "big"


def test_a_job_that_waits_for_another_does_not_block_the_queue() -> None:
    s = scheduler()
    admit_all(s, Item("later", waits=True), Item("now"))
    assert [i.name for i in s.running] == ["now"]
    assert [i.name for i in s.waiting] == ["later"]


def test_running_jobs_are_bounded() -> None:
    s = scheduler(running=2)
    admit_all(s, Item("a"), Item("b"), Item("c"))
    assert len(s.running) == 2


def test_too_large_for_ever_and_queue_full_are_different_errors() -> None:
    s = scheduler(memory=10)
    with pytest.raises(InputTooLong, match="working memory"):
        s.check_fits(11)
    with pytest.raises(QueueFull, match="3 jobs"):
        s.check_room(4)
    s.check_fits(10)
    s.check_room(3)
    replace(s, max_waiting=None).check_room(10**6)


def test_groups_take_turns_so_that_nothing_starves() -> None:
    s = scheduler(running=30)
    admit_all(s, Item("d1"), Item("d2"), Item("p1", "prefill"), Item("f", "flow"))
    served: list[str] = []
    for round_number in range(12):
        # A fresh prefill arrives every round: the decode group must still be served every other step or so.
        admit_all(s, Item(f"p{round_number + 2}", "prefill"))
        batch = plan(s)
        served.append(batch[0][0])
        if batch[0].startswith("p"):
            for item in [i for i in s.running if i.name in batch]:
                s.remove(item)
    assert served.count("d") == 4
    assert served.count("f") == 4
    assert served.count("p") == 4


def test_a_batch_holds_one_key_only_and_rotates_when_it_is_full() -> None:
    s = scheduler(running=30)
    admit_all(s, *[Item(f"d{i}") for i in range(5)])
    assert sorted(plan(s, limit=3)) == ["d0", "d1", "d2"]
    assert {"d3", "d4"} < set(plan(s, limit=3))
