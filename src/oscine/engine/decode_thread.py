"""The thread that decodes in the background: of the jobs whose work waits, the one that is due first comes first."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field

from oscine.types import Samples


@dataclass
class _Lane:
    """The work of one job, in its order, and when it is due now."""

    due: Callable[[], float]
    work: deque[tuple[Callable[[], Samples], Future[Samples]]] = field(default_factory=deque)


class DecodeThread:
    """Does work given by another thread; begins with the first piece."""

    def __init__(self, name: str) -> None:
        self._lanes: dict[Hashable, _Lane] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, work: Callable[[], Samples], job: Hashable, due: Callable[[], float]) -> Future[Samples]:
        """Queues `work` behind that of the same job; `due` says when it comes due, and is asked whenever one is chosen.

        What is due at the same time is done in the order in which the jobs came.
        """
        future: Future[Samples] = Future()
        with self._changed:
            self._lanes.setdefault(job, _Lane(due)).work.append((work, future))
            self._changed.notify()
        if not self._thread.is_alive():
            self._thread.start()
        return future

    def close(self) -> None:
        """Waits for what is being done; what is not begun is left undone."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while (chosen := self._next()) is not None:
            work, future = chosen
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as error:  # also what ends a thread: nobody may wait for it in vain
                future.set_exception(error)

    def _next(self) -> tuple[Callable[[], Samples], Future[Samples]] | None:
        """The piece of work to do now, once there is one; None when the thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._lanes)
            if self._closing:
                return None
            job = min(self._lanes, key=lambda job: self._lanes[job].due())
            lane = self._lanes[job]
            chosen = lane.work.popleft()
            if not lane.work:
                del self._lanes[job]
            return chosen
