"""A log stays small whatever clients do, and clients' bytes stay within their budget."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from oscine.server.budget import SLOWEST, SMALL, ByteBudget, Lease, Pace
from oscine.server.sparingly import Sparingly, kept_small

MIB = 1 << 20


def record(message: str, *args: Any) -> logging.LogRecord:
    return logging.LogRecord("asyncio", logging.ERROR, "", 0, message, args, None)


def test_messages_alike_are_written_once_in_a_while_and_counted() -> None:
    sparingly = Sparingly(seconds=1000)
    first, other = record("socket.accept() out of system resource\nsocket: %s", 1), record("something else")
    assert [sparingly.filter(first), sparingly.filter(other)] == [True, True]
    assert not any(sparingly.filter(record("socket.accept() out of system resource\nsocket: %s", n)) for n in range(99))
    for kind in sparingly._kinds:
        sparingly._kinds[kind] = (0.0, sparingly._kinds[kind][1])  # time goes by
    again = record("socket.accept() out of system resource\nsocket: %s", 5)
    assert sparingly.filter(again)
    assert again.getMessage().endswith("socket: 5 (99 more like the last)")


def test_it_remembers_few_kinds_of_message() -> None:
    sparingly = Sparingly(seconds=1000)
    assert all(sparingly.filter(record(f"{number}")) for number in range(1000))
    assert len(sparingly._kinds) <= 100


def test_a_failing_accept_is_told_once_a_second_at_most(caplog: pytest.LogCaptureFixture) -> None:
    with kept_small():
        for _ in range(1000):
            logging.getLogger("asyncio").error("socket.accept() out of system resource")
    assert len(caplog.records) <= 2
    caplog.clear()
    for _ in range(10):
        logging.getLogger("asyncio").error("socket.accept() out of system resource")
    assert len(caplog.records) == 10  # only while a server runs


class Message:
    """One that arrives; it gives way by letting go."""

    def __init__(self, budget: ByteBudget, receive_s: float = 10.0) -> None:
        self.gave_way = False
        self.pace = Pace(receive_s)
        self.lease: Lease = budget.lease(self.pace, self._give_way)

    def _give_way(self) -> None:
        self.gave_way = True
        self.lease.release()


def in_loop(test: Callable[[], None]) -> None:
    async def run() -> None:
        test()

    asyncio.run(run())


def test_a_budget_is_never_exceeded_and_what_is_given_back_can_be_taken_again() -> None:
    def test() -> None:
        budget = ByteBudget(MIB)
        one, two = Message(budget), Message(budget)
        assert one.lease.resize(SMALL)
        assert budget.used == 0
        assert one.lease.resize(MIB + SMALL)
        assert budget.used == MIB
        assert two.lease.resize(SMALL)
        assert not two.lease.resize(SMALL + 1)
        assert not one.gave_way  # it is not old
        one.lease.release()
        one.lease.release()
        assert budget.used == 0
        assert two.lease.resize(MIB)

    in_loop(test)


def test_old_messages_give_way_the_oldest_first_and_only_as_many_as_it_takes() -> None:
    def test() -> None:
        budget = ByteBudget(4 * MIB)
        arriving = [Message(budget) for _ in range(4)]
        for message in arriving:
            assert message.lease.resize(MIB + SMALL)
        for message in arriving[:3]:
            message.pace.began -= 11.0
        arriving[0].lease.arrived()  # whole: it is being worked on
        new = Message(budget)
        assert new.lease.resize(MIB + SMALL)
        assert [message.gave_way for message in arriving] == [False, True, False, False]
        assert not Message(budget).lease.resize(3 * MIB)
        assert budget.used <= budget.total

    in_loop(test)


def test_a_pace_allows_for_size_but_not_for_a_pause() -> None:
    def test() -> None:
        pace = Pace(10.0)
        began = pace.began
        assert pace.deadline(0) == began + 10.0
        assert pace.deadline(100 * SLOWEST) == pytest.approx(began + 10.0)  # nothing has come since
        pace._last = began + 50.0
        assert pace.deadline(30 * SLOWEST) == pytest.approx(began + 40.0)
        assert pace.deadline(100 * SLOWEST) == pytest.approx(began + 60.0)

    in_loop(test)
