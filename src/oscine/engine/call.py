"""Work that is no job, done on the engine's thread between two steps; and what is told when that thread has ended."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from oscine.errors import EngineFailed, OscineError

T = TypeVar("T")


class Call(Generic[T]):
    """Work for the engine's thread between two steps, and the future of its result."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self.future: Future[T] = Future()

    def run(self) -> None:
        """Does the work, unless the future was cancelled. Raises what is no `Exception`, once the future has it."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._work())
        except Exception as error:
            self.future.set_exception(error)
        except BaseException as error:
            self.future.set_exception(engine_failed(error))
            raise

    def refuse(self, error: OscineError) -> None:
        """The future raises `error`."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


def engine_failed(error: BaseException) -> EngineFailed:
    """What everybody is told whose work the engine can do no more because of `error`."""
    failure = EngineFailed(f"the engine has failed ({type(error).__name__}): the process has to be started again")
    failure.__cause__ = error
    return failure
