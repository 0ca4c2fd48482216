"""What ends the engine's thread: everybody is told, at once and for good."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from oscine.engine.decode_thread import DecodeThread
from oscine.engine.engine import Engine, EngineOptions
from oscine.errors import EngineFailed, GenerationError
from oscine.types import Failed, Job
from tests.toys import ToyAR, ToyFamily

from .test_engine import Listener, job

FAULTS = (SystemExit(3), MemoryError(), RuntimeError("broken"))


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(EngineOptions(memory_bytes=100, max_waiting=20))
    yield engine
    engine.close(timeout_s=10)


class BreaksAt(ToyAR):
    """Raises `fault` when job "bad" is asked for its batch key, which is no step of any job."""

    def __init__(self, fault: BaseException) -> None:
        super().__init__(stop_code=-1)
        self.fault = fault

    def batch_key(self, job: Job) -> Any:
        if job.id == "bad":
            raise self.fault
        return super().batch_key(job)


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_a_fault_of_the_engine_is_told_to_all_who_wait_and_all_who_come(engine: Engine, fault: BaseException) -> None:
    family = ToyFamily(BreaksAt(fault))
    heard = [Listener() for _ in range(3)]
    running, bad, waiting = job("a", max_frames=10**9), job("bad"), job("b", memory=100)
    engine.submit(family, [(running, heard[0])])
    while not heard[0].events:
        pass
    called = threading.Event()
    engine.call(called.wait)  # the rest comes while the engine is held up: all of it waits when the fault comes
    engine.submit(family, [(bad, heard[1]), (waiting, heard[2])])
    called.set()
    for listener in heard:
        end = listener.wait()
        assert isinstance(end, Failed)
        assert isinstance(end.error, EngineFailed)
    assert type(fault).__name__ in str(engine.failure)
    assert engine.stats().running == engine.stats().waiting == engine.stats().memory_reserved == 0
    with pytest.raises(EngineFailed):
        engine.submit(family, [(job("later"), Listener())])
    with pytest.raises(EngineFailed):
        engine.call(lambda: 1)


def test_work_that_ends_the_thread_and_work_behind_it_have_an_answer(engine: Engine) -> None:
    def leave() -> None:
        raise SystemExit(3)

    held = threading.Event()
    engine.call(held.wait)
    futures = [engine.call(leave), engine.call(lambda: None)]
    held.set()
    for future in futures:
        with pytest.raises(EngineFailed, match="SystemExit"):
            future.result(10)


def test_a_lack_of_memory_in_a_step_is_the_jobs_own(engine: Engine) -> None:
    class Starved(ToyAR):
        def step(self, jobs: Any) -> Any:
            raise MemoryError

    heard = Listener()
    engine.submit(ToyFamily(Starved()), [(job("a"), heard)])
    assert isinstance(heard.wait().error, GenerationError)
    assert engine.call(lambda: 1).result(10) == 1


def test_a_job_whose_slot_cannot_be_given_back_still_has_its_end(engine: Engine) -> None:
    class Clings(ToyAR):
        def release(self, job: Job) -> None:
            raise RuntimeError("stuck")

    heard = Listener()
    engine.submit(ToyFamily(Clings(stop_code=-1)), [(job("a", max_frames=10**9), heard)])
    while not heard.events:
        pass
    engine._scheduler.running[0].job.cancel()
    assert heard.wait().finish_reason == "cancelled"


def test_the_decode_thread_answers_for_whatever_ends_its_work() -> None:
    def leave() -> Any:
        raise SystemExit(3)

    side = DecodeThread("test")
    with pytest.raises(SystemExit):
        side.submit(leave, "a", lambda: 0.0).result(10)
    assert side.submit(lambda: "on", "a", lambda: 0.0).result(10) == "on"  # type: ignore[arg-type, return-value, comparison-overlap]
    side.close()
