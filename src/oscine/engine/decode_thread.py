"""The thread that decodes in the background: of the work that waits, what is due first is done first."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from oscine.types import Samples


@dataclass(frozen=True, order=True)
class _Piece:
    due: float
    number: int
    work: Callable[[], Samples] | None = field(compare=False)
    future: Future[Samples] = field(compare=False)


class DecodeThread:
    """Does work given by another thread; begins with the first piece."""

    def __init__(self, name: str) -> None:
        self._waiting: queue.PriorityQueue[_Piece] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def submit(self, work: Callable[[], Samples], due: float) -> Future[Samples]:
        """Queues `work`; pieces due at the same time are done in the order they came in."""
        if not self._thread.is_alive():
            self._thread.start()
        future: Future[Samples] = Future()
        self._waiting.put(_Piece(due, next(self._numbers), work, future))
        return future

    def close(self) -> None:
        """Waits for what is being done; what is not begun is left undone."""
        if self._thread.is_alive():
            self._waiting.put(_Piece(float("-inf"), -1, None, Future()))
            self._thread.join()

    def _run(self) -> None:
        while True:
            piece = self._waiting.get()
            if piece.work is None:
                return
            if not piece.future.set_running_or_notify_cancel():
                continue
            try:
                piece.future.set_result(piece.work())
            except BaseException as error:  # also what ends a thread: nobody may wait for it in vain
                piece.future.set_exception(error)
