"""Decoders that work beside the step model: the same events, and nothing lost, late or left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from oscine.engine import cores
from oscine.engine.cores import has_spare_core
from oscine.engine.decode_thread import DecodeThread
from oscine.engine.engine import Engine, EngineOptions
from oscine.types import AudioChunk, Decoder, Done, Event, Failed, Job, Samples
from tests.toys import HOP, HoldDecoder, ToyAR, ToyFamily
from tests.unit.test_engine import Listener, job, run

WAIT_S = 10


class SideHold(Decoder):
    """A `HoldDecoder` that notes its threads, waits for `gate` and breaks at a frame of 66."""

    runs_in_background = True

    def __init__(self, gate: threading.Event, threads: set[str], decoded: list[int]) -> None:
        self._alone, self._gate, self._threads, self._decoded = HoldDecoder(), gate, threads, decoded

    def push(self, frames: Sequence[Any]) -> Samples:
        self._threads.add(threading.current_thread().name)
        assert self._gate.wait(WAIT_S)
        codes = [int(np.asarray(frame).flat[0]) for frame in frames]
        self._decoded.extend(codes)
        if 66 in codes:
            raise RuntimeError("the decoder is on fire")
        return self._alone.push(frames)

    def flush(self) -> Samples:
        return self._alone.flush()


class SideFamily(ToyFamily):
    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.gate, self.threads, self.decoded = threading.Event(), set[str](), list[int]()
        self.gate.set()

    def open_decoder(self, job: Job) -> Decoder:  # type: ignore[override]
        return SideHold(self.gate, self.threads, self.decoded)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(EngineOptions(memory_bytes=100, max_waiting=20, decode_in_background=True))
    yield engine
    engine.close()
    assert not engine._thread.is_alive()
    assert not engine._decoding._thread.is_alive()


def test_events_are_those_of_decoding_at_once(engine: Engine) -> None:
    scripts = {f"j{n}": [[10 * n + k + 5 for k in range(1 + 4 * n)]] for n in range(5)}
    family = SideFamily(ToyAR(script=scripts))
    together = run(engine, family, *(job(name) for name in scripts))
    assert family.threads == {"oscine-decode"}
    for name, listener in zip(scripts, together, strict=True):
        (alone,) = run(engine, ToyFamily(ToyAR(script=scripts)), job(name))
        assert [len(e.samples) for e in alone.events if isinstance(e, AudioChunk)] == [
            len(e.samples) for e in listener.events if isinstance(e, AudioChunk)
        ]
        assert np.array_equal(alone.audio(), listener.audio())
        assert isinstance(alone.wait(), Done)
        assert alone.wait().num_frames == listener.wait().num_frames == len(scripts[name][0])


def test_steps_go_on_while_a_run_is_decoded_and_the_end_waits_for_it(engine: Engine) -> None:
    model = ToyAR(script={"a": [[10, 20, 30, 40, 50, 60, 70]]})
    family, ended = SideFamily(model), threading.Event()
    family.gate.clear()
    release = model.release
    model.release = lambda job: (release(job), ended.set())  # type: ignore[assignment, func-returns-value]
    heard = Listener()
    engine.submit(family, [(job("a"), heard)])
    assert ended.wait(WAIT_S)  # the model is done with the job and free for others
    assert heard.events == []
    assert engine.stats().running == 1
    family.gate.set()
    assert isinstance(heard.wait(), Done)
    assert len(heard.audio()) == 7 * HOP


def test_a_broken_decoder_fails_its_own_job(engine: Engine) -> None:
    family = SideFamily(ToyAR(script={"bad": [[10, 66, 12, 13, 14]], "late": [[10, 66]], "good": [[20, 21, 22]]}))
    bad, late, good = run(engine, family, job("bad"), job("late"), job("good"))
    for listener in (bad, late):
        failed = listener.wait()
        assert isinstance(failed, Failed)
        assert "on fire" in str(failed.error)
    assert isinstance(good.wait(), Done)
    assert len(good.audio()) == 3 * HOP
    assert engine.stats().memory_reserved == 0


def test_a_job_is_cancelled_while_its_frames_are_decoded(engine: Engine) -> None:
    family = SideFamily(ToyAR(script={"a": [[10, 20, 30, 40, 50]], "b": [[11, 12]]}))
    family.gate.clear()
    first, heard = job("a"), Listener()
    engine.submit(family, [(first, heard)])
    while not family.threads:
        threading.Event().wait(0.01)
    first.cancelled.set()
    engine.call(lambda: None).result(WAIT_S)  # an idle engine looks up at least now
    ended = heard.wait()
    assert isinstance(ended, Done)
    assert ended.finish_reason == "cancelled"
    family.gate.set()
    (after,) = run(engine, family, job("b"))
    assert len(after.audio()) == 2 * HOP
    assert len(heard.events) == 1


@pytest.mark.parametrize("drain", [True, False])
def test_closing_waits_for_what_is_being_decoded(drain: bool) -> None:
    engine = Engine(EngineOptions(memory_bytes=100, decode_in_background=True))
    family = SideFamily(ToyAR(script={"a": [[10, 20, 30, 40, 50]]}))
    family.gate.clear()
    heard = Listener()
    engine.submit(family, [(job("a"), heard)])
    while not family.threads:
        threading.Event().wait(0.01)
    threading.Timer(0.2, family.gate.set).start()
    engine.close(drain=drain)
    ended = heard.wait()
    assert isinstance(ended, Done)
    assert ended.finish_reason == ("stop" if drain else "cancelled")
    if drain:
        assert len(heard.audio()) == 5 * HOP


def test_a_job_that_continues_another_waits_for_its_last_sample(engine: Engine) -> None:
    family = SideFamily(ToyAR(script={"a": [[10, 20, 30]], "b": [[40, 50]]}))
    first = job("a")
    order: list[str] = []

    def note(name: str, listener: Listener) -> Any:
        def sink(event: Event) -> None:
            order.append(name)
            listener(event)

        return sink

    one, two = Listener(), Listener()
    engine.submit(family, [(first, note("a", one)), (job("b", after=first), note("b", two))])
    one.wait()
    two.wait()
    assert order == sorted(order)


def test_what_is_heard_first_is_decoded_first(engine: Engine) -> None:
    """A job that comes while another's later runs wait is decoded before them, and they are not forgotten."""
    family = SideFamily(ToyAR(script={"long": [[10 + n for n in range(40)]], "late": [[90, 91, 92]]}))
    family.gate.clear()
    model, ended = family.step_model(), threading.Event()
    release = model.release
    model.release = lambda job: (release(job), ended.set())
    long, late = Listener(), Listener()
    engine.submit(family, [(job("long", max_frames=60), long)])
    assert ended.wait(WAIT_S)  # all of its frames are there, and all of its runs wait
    ended.clear()
    engine.submit(family, [(job("late"), late)])
    assert ended.wait(WAIT_S)
    family.gate.set()
    assert isinstance(long.wait(), Done)
    assert isinstance(late.wait(), Done)
    assert len(long.audio()) == 40 * HOP
    assert len(late.audio()) == 3 * HOP
    assert [frame for frame in family.decoded if frame < 90] == [10 + n for n in range(40)]
    assert 90 in family.decoded[: family.decoded.index(49) - 6]


def test_when_work_is_due_is_asked_when_it_is_chosen() -> None:
    """What waited while nobody listened is urgent once somebody does; a job's own work keeps its order."""
    due, done, gate = {"a": 0.0, "b": 5.0, "c": 9.0}, list[str](), threading.Event()
    thread = DecodeThread("test")

    def work(name: str) -> Samples:
        assert gate.wait(WAIT_S)
        done.append(name)
        return np.zeros(0, np.float32)

    futures = [
        thread.submit(partial(work, name), name[0], partial(due.__getitem__, name[0]))
        for name in ("a1", "b1", "c1", "b2", "c2")
    ]
    due["c"] = 1.0
    gate.set()
    for future in futures:
        future.result(WAIT_S)
    thread.close()
    assert done == ["a1", "c1", "c2", "b1", "b2"]


def test_beside_is_for_a_core_that_torch_leaves_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert has_spare_core()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert not has_spare_core()
    monkeypatch.delattr(cores.os, "sched_getaffinity")
    monkeypatch.setattr(cores.os, "cpu_count", lambda: 4)
    assert has_spare_core()


def test_a_decoder_that_may_not_works_at_once(engine: Engine) -> None:
    family = SideFamily(ToyAR(script={"a": [[10, 20, 30]]}))

    class Bound(SideHold):
        runs_in_background = False

    family.open_decoder = lambda job: Bound(family.gate, family.threads, family.decoded)  # type: ignore[method-assign]
    (heard,) = run(engine, family, job("a"))
    assert len(heard.audio()) == 3 * HOP
    assert family.threads == {"oscine-engine"}
