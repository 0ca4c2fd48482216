"""Tells long work in a thread that nobody waits for it any more.

Whoever starts work for somebody sets what is asked (`cancelled_when`); the work asks between its slices
(`check_cancelled`), wherever it is, without being handed anything. Threads started with a copy of the context, as
asyncio's and anyio's are, ask the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

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
