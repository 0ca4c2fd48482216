"""Work in a thread learns that nobody waits for it any more."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextvars import copy_context

import pytest

from oscine.cancellation import POLL_S, Watchdog, cancelled_when, check_cancelled, result_of, wait_for
from oscine.errors import Cancelled


def test_without_anybody_who_may_leave_nothing_is_cancelled() -> None:
    check_cancelled()


def test_a_thread_with_a_copy_of_the_context_is_cancelled_and_another_is_not() -> None:
    gone, ended = threading.Event(), []

    def work(name: str) -> None:
        try:
            check_cancelled()
        except Cancelled:
            ended.append(name)

    with cancelled_when(gone.is_set):
        check_cancelled()
        context = copy_context()
    gone.set()
    for thread in (
        threading.Thread(target=context.run, args=(work, "ours")),
        threading.Thread(target=work, args=("",)),
    ):
        thread.start()
        thread.join()
    assert ended == ["ours"]
    check_cancelled()  # outside of the block


def test_waiting_for_a_result_ends_with_the_one_who_waits() -> None:
    future: Future[int] = Future()
    with cancelled_when(lambda: True), pytest.raises(Cancelled):
        result_of(future)
    assert future.cancelled()


def test_a_result_that_is_a_timeout_of_its_own_is_told() -> None:
    future: Future[int] = Future()
    future.set_exception(TimeoutError("its own"))
    with pytest.raises(TimeoutError, match="its own"):
        result_of(future)


def test_a_watchdog_ends_what_is_no_longer_wanted_or_takes_too_long_and_nothing_else() -> None:
    gone, ended = threading.Event(), threading.Event()
    with cancelled_when(gone.is_set), Watchdog(ended.set, 1000.0) as watchdog:
        gone.set()
        assert ended.wait(10)
    assert not watchdog.late
    ended.clear()
    with Watchdog(ended.set, 0.0) as watchdog:
        assert ended.wait(10)
    assert watchdog.late
    ended.clear()
    watchdog = Watchdog(ended.set, 1000.0)
    with watchdog:
        pass
    watchdog._deadline = 0.0
    assert not ended.wait(3 * POLL_S)


def test_waiting_again_and_again_ends_with_success_with_time_and_with_the_one_who_waits() -> None:
    assert wait_for(lambda timeout: True, 0.0)
    assert not wait_for(lambda timeout: False, 0.0)
    tries: list[float] = []

    def third_time(timeout: float) -> bool:
        tries.append(timeout)
        return len(tries) == 3

    assert wait_for(third_time)
    assert all(0 <= timeout <= POLL_S for timeout in tries)
    with cancelled_when(lambda: True), pytest.raises(Cancelled):
        wait_for(lambda timeout: False)
