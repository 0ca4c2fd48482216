"""Work in a thread learns that nobody waits for it any more."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextvars import copy_context

import pytest

from oscine.cancellation import cancelled_when, check_cancelled, result_of
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
