"""Waits for what is made in a thread, with a sign of life now and then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from oscine.server.state import ServerState

T = TypeVar("T")


class Pulled(Generic[T]):
    """What `pull` gives, call by call in a thread; what has come stays until it is taken. Used on the event loop."""

    def __init__(self, state: ServerState, pull: Callable[[], T]) -> None:
        self._state, self._pull = state, pull
        self._pending: asyncio.Task[T] | None = None
        self._due = time.monotonic() + state.settings.progress_s

    async def arrives(self) -> None:
        """Returns once the next is there. Raises what came in its place, which stays too."""
        await asyncio.wait([self._ordered()])
        self._ordered().result()

    async def arrives_in_time(self) -> bool:
        """Whether the next is there before `progress_s` have passed since `told`. Raises as `arrives`."""
        pending = self._ordered()
        done, _ = await asyncio.wait([pending], timeout=max(self._due - time.monotonic(), 0.0))
        if done:
            pending.result()
        return bool(done)

    def told(self) -> None:
        """The client is about to get a sign of life, so that the next has its time from now on."""
        self._due = time.monotonic() + self._state.settings.progress_s

    async def take(self) -> T:
        """The next. Raises what came in its place."""
        pending = self._ordered()
        await asyncio.wait([pending])
        self._pending = None
        return pending.result()

    def close(self) -> None:
        """Lets go of what is still to come. Idempotent."""
        if self._pending is not None:
            self._pending.add_done_callback(_forget)
            self._pending = None

    def _ordered(self) -> asyncio.Task[T]:
        if self._pending is None:
            self._pending = asyncio.create_task(self._state.in_thread(self._pull))
        return self._pending


def _forget(task: asyncio.Task[T]) -> None:
    """Takes note of how a task ended, so that nobody misses it."""
    if not task.cancelled():
        task.exception()
