"""Tells long work in a thread that nobody waits for it any more.

Whoever starts work for somebody sets what is asked (`cancelled_when`); the work asks between its slices
(`check_cancelled`), wherever it is, without being handed anything. Threads started with a copy of the context, as
asyncio's and anyio's are, ask the same.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Self, TypeVar

from oscine.errors import Cancelled

T = TypeVar("T")

POLL_S = 0.05
"""How often work that waits for other threads asks."""

_is_cancelled: ContextVar[Callable[[], bool] | None] = ContextVar("oscine_is_cancelled", default=None)


@contextmanager
def cancelled_when(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """Work begun in the block is cancelled once `is_cancelled()` is true; that is asked from any thread."""
    token = _is_cancelled.set(is_cancelled)
    try:
        yield
    finally:
        _is_cancelled.reset(token)


def check_cancelled() -> None:
    """Returns at once; raises Cancelled if the work of this context is no longer wanted. Costs under a microsecond."""
    is_cancelled = _is_cancelled.get()
    if is_cancelled is not None and is_cancelled():
        raise Cancelled("whoever asked for this has left")


class Watchdog:
    """Calls `act`, in a thread of its own, if the block takes longer than `seconds` or its work is no longer wanted.

    For work that waits for what cannot ask by itself: `act` ends what it waits for. It is called once at most, and not
    after the block. `late` says that it was for want of time.
    """

    def __init__(self, act: Callable[[], None], seconds: float) -> None:
        self.late = False
        self._act, self._deadline = act, time.monotonic() + seconds
        self._ended = threading.Event()
        self._acting = threading.Lock()

    def __enter__(self) -> Self:
        watch = partial(copy_context().run, self._watch)
        threading.Thread(target=watch, name="oscine-watchdog", daemon=True).start()
        return self

    def __exit__(self, *details: object) -> None:
        with self._acting:
            self._ended.set()

    def _watch(self) -> None:
        late = False
        with suppress(Cancelled):
            while not late:
                if self._ended.wait(min(POLL_S, max(self._deadline - time.monotonic(), 0.0))):
                    return
                check_cancelled()
                late = time.monotonic() >= self._deadline
        with self._acting:
            if not self._ended.is_set():
                self.late = late
                self._act()


def wait_for(attempt: Callable[[float], bool], seconds: float | None = None) -> bool:
    """Whether `attempt`, which waits as long as it is told, succeeds within `seconds` (None: whenever that is).

    Raises Cancelled.
    """
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    while not attempt(min(POLL_S, max(deadline - time.monotonic(), 0.0))):
        if time.monotonic() >= deadline:
            return False
        check_cancelled()
    return True


def result_of(future: Future[T]) -> T:
    """The result of `future`, waited for. Raises what it raises, and Cancelled, after which it is cancelled too."""
    while True:
        try:
            return future.result(POLL_S)
        except TimeoutError:
            if future.done():  # its own error
                raise
        try:
            check_cancelled()
        except Cancelled:
            future.cancel()
            raise
