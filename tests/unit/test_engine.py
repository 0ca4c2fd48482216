"""The engine with two toy families: batching, order of events, cancel, failures, retries, neighbours."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from oscine.engine.engine import Engine, EngineOptions
from oscine.errors import GenerationError, InputTooLong, NoAudio, NotReady, OscineError, QueueFull
from oscine.types import AudioChunk, Done, Event, Failed, Guard, Job
from tests.toys import HOP, ToyAR, ToyFamily, ToyFlow

GUARD = Guard(suspect_frames=4, fail_frames=12, max_period=5)


class Listener:
    """Collects one job's events; `wait` returns its terminal event."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._ended = threading.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if not isinstance(event, AudioChunk):
            self._ended.set()

    def wait(self) -> Done | Failed:
        assert self._ended.wait(10), "no terminal event"
        terminal = [e for e in self.events if not isinstance(e, AudioChunk)]
        assert len(terminal) == 1
        assert self.events[-1] is terminal[0]
        return terminal[0]  # type: ignore[return-value]

    def audio(self) -> np.ndarray:
        chunks = [e for e in self.events if isinstance(e, AudioChunk)]
        position = 0
        for chunk in chunks:
            assert chunk.start == position
            position += len(chunk.samples)
        return np.concatenate([c.samples for c in chunks]) if chunks else np.zeros(0, np.float32)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(EngineOptions(memory_bytes=100, max_waiting=20))
    yield engine
    engine.close()
    assert not engine._thread.is_alive()


def job(name: str, seed: int = 0, **fields: Any) -> Job:
    return Job(**{"id": name, "inputs": None, "seed": seed, "max_frames": 30, "memory": 1, **fields})


def run(engine: Engine, family: ToyFamily, *jobs: Job) -> list[Listener]:
    listeners = [Listener() for _ in jobs]
    engine.submit(family, list(zip(jobs, listeners, strict=True)))
    for listener in listeners:
        listener.wait()
    return listeners


def test_a_job_gives_chunks_on_the_grid_then_one_done(engine: Engine) -> None:
    family = ToyFamily(ToyAR(script={"a": [[10, 20, 30, 40, 50]]}))
    (heard,) = run(engine, family, job("a"))
    assert heard.wait().finish_reason == "stop"
    np.testing.assert_array_equal(heard.audio(), np.repeat(np.float32([0.1, 0.2, 0.3, 0.4, 0.5]), HOP))
    assert heard.wait().num_frames == 5


def test_the_budget_ends_a_job_as_length(engine: Engine) -> None:
    family = ToyFamily(ToyAR(stop_code=-1))
    (heard,) = run(engine, family, job("a", max_frames=9))
    assert heard.wait().finish_reason == "length"
    assert len(heard.audio()) == 9 * HOP


def test_a_length_that_was_asked_for_is_a_natural_end(engine: Engine) -> None:
    family = ToyFamily(ToyAR(stop_code=-1))
    (heard,) = run(engine, family, job("a", max_frames=9, ends_full=True))
    assert heard.wait().finish_reason == "stop"
    assert heard.wait().num_frames == 9


def test_neighbours_do_not_change_an_autoregressive_job(engine: Engine) -> None:
    def sample(name: str, seed: int) -> Job:
        return job(name, seed=seed, max_frames=200)

    alone = run(engine, ToyFamily(ToyAR()), sample("x", 5))[0].audio()
    assert len(alone)
    for count in (2, 4, 8, 17):
        model = ToyAR()
        heard = run(engine, ToyFamily(model), sample("x", 5), *[sample(f"n{i}", 100 + i) for i in range(count - 1)])
        np.testing.assert_array_equal(heard[0].audio(), alone)
        assert max(size for key, size in model.batches if key == ("decode",)) > 1


def test_neighbours_of_a_flow_job_share_its_steps_without_changing_it(engine: Engine) -> None:
    def flow(name: str, steps: int, seed: int) -> Job:
        return job(name, seed=seed, max_frames=6, inputs={"steps": steps, "target": steps})

    alone = run(engine, ToyFamily(ToyFlow()), flow("x", 5, 1))[0].audio()
    model = ToyFlow()
    heard = run(engine, ToyFamily(model), flow("x", 5, 1), flow("y", 9, 2), flow("z", 2, 3))
    np.testing.assert_array_equal(heard[0].audio(), alone)
    assert max(size for _, size in model.batches) == 3


def test_both_kinds_of_family_run_in_one_engine(engine: Engine) -> None:
    ar, flow = ToyFamily(ToyAR(stop_code=-1)), ToyFamily(ToyFlow())
    a, f = Listener(), Listener()
    engine.submit(ar, [(job("a", max_frames=40), a)])
    engine.submit(flow, [(job("f", max_frames=4, inputs={"steps": 3, "target": 1}), f)])
    assert (a.wait().finish_reason, f.wait().finish_reason) == ("length", "stop")


def test_a_cancelled_job_ends_within_a_step_and_frees_its_slot(engine: Engine) -> None:
    model = ToyAR(stop_code=-1)
    family, heard = ToyFamily(model), Listener()
    endless = job("a", max_frames=10**9)
    engine.submit(family, [(endless, heard)])
    while not heard.events:
        pass
    endless.cancel()
    assert heard.wait().finish_reason == "cancelled"
    assert engine.call(lambda: dict(model.slots)).result(5) == {}
    assert engine.stats().memory_reserved == 0


def test_a_waiting_job_can_be_cancelled(engine: Engine) -> None:
    family = ToyFamily(ToyAR(stop_code=-1))
    running, waiting = Listener(), Listener()
    first, second = job("a", memory=100, max_frames=10**9), job("b", memory=100)
    engine.submit(family, [(first, running), (second, waiting)])
    second.cancel()
    assert waiting.wait().finish_reason == "cancelled"
    first.cancel()
    assert running.wait().finish_reason == "cancelled"


def test_a_piece_waits_for_the_piece_it_continues_and_shares_its_fate(engine: Engine) -> None:
    model = ToyAR(script={"a": [[1, 2, 3]], "b": [[4, 5]]})
    first = job("a")
    heard = run(engine, ToyFamily(model), first, job("b", after=first))
    assert [h.wait().finish_reason for h in heard] == ["stop", "stop"]
    assert [int(f[0]) for f in first.frames] == [1, 2, 3]
    assert max(size for _, size in model.batches) == 1

    broken = job("bad")
    model.fail_ids.add("bad")
    heard = run(engine, ToyFamily(model), broken, job("next", after=broken))
    assert isinstance(heard[1].wait().error, GenerationError)


def test_a_fault_of_the_model_is_an_error_of_its_jobs_and_the_engine_lives_on(engine: Engine) -> None:
    model = ToyAR(script={"good": [[1]]})
    model.fail_ids.add("bad")
    (heard,) = run(engine, ToyFamily(model), job("bad"))
    error = heard.wait().error
    assert isinstance(error, GenerationError)
    assert "on fire" in str(error)
    (heard,) = run(engine, ToyFamily(model), job("good"))
    assert heard.wait().finish_reason == "stop"
    assert engine.stats().memory_reserved == 0


def test_a_refused_admission_is_the_familys_own_error(engine: Engine) -> None:
    (heard,) = run(engine, ToyFamily(ToyFlow()), job("f", inputs={"steps": 0, "target": 1}))
    assert isinstance(heard.wait().error, OscineError)
    assert "at least 1" in str(heard.wait().error)


def test_a_loop_is_rewound_once_and_the_bad_frames_are_never_heard(engine: Engine) -> None:
    start = [11, 12, 13, 14]
    bad, good = [*start, *[1, 2, 3] * 20], [*start, *[1, 2, 3] * 3, 21, 22, 23]
    model = ToyAR(script={"a": [bad, good]})
    (heard,) = run(engine, ToyFamily(model), job("a", guard=GUARD, max_frames=80))
    done = heard.wait()
    assert (done.finish_reason, done.attempts) == ("stop", 2)
    np.testing.assert_array_equal(heard.audio(), np.repeat(np.float32(good) / 100, HOP))


def test_a_second_loop_is_an_honest_end(engine: Engine) -> None:
    model = ToyAR(script={"a": [[11, 12, *[1, 2, 3] * 20]]})
    (heard,) = run(engine, ToyFamily(model), job("a", guard=GUARD, max_frames=80))
    done = heard.wait()
    assert (done.finish_reason, done.attempts) == ("loop", 2)
    assert done.num_frames == 2 + 9 + 9  # each attempt is heard until the third repeat, no further


def test_endless_room_tone_ends_as_silence(engine: Engine) -> None:
    model = ToyAR(script={"a": [[11, 12, 13, *[5] * 60]]})
    (heard,) = run(engine, ToyFamily(model), job("a", guard=GUARD, max_frames=80))
    assert heard.wait().finish_reason == "silence"
    assert heard.wait().num_frames < 3 + GUARD.fail_frames


def test_a_natural_pause_is_held_for_a_moment_and_then_heard_in_full(engine: Engine) -> None:
    codes = [11, 12, 13, *[5] * 9, 14, 15]
    (heard,) = run(engine, ToyFamily(ToyAR(script={"a": [codes]})), job("a", guard=GUARD))
    assert heard.wait().finish_reason == "stop"
    np.testing.assert_array_equal(heard.audio(), np.repeat(np.float32(codes) / 100, HOP))


def test_a_short_job_that_runs_away_is_tried_again_from_its_prompt(engine: Engine) -> None:
    guard = Guard(suspect_frames=4, fail_frames=12, max_period=5, hold_frames=10, retry_length=True)
    model = ToyAR(script={"a": [list(range(10, 40)), [1, 2]]})
    (heard,) = run(engine, ToyFamily(model), job("a", guard=guard, max_frames=10))
    assert (heard.wait().finish_reason, heard.wait().attempts) == ("stop", 2)
    assert len(heard.audio()) == 2 * HOP


def test_no_frame_at_all_is_tried_again_and_then_an_error(engine: Engine) -> None:
    heard = run(engine, ToyFamily(ToyAR(script={"a": [[]], "b": [[], [4]]})), job("a"), job("b"))
    assert isinstance(heard[0].wait().error, NoAudio)
    assert heard[1].wait().finish_reason == "stop"


def test_a_sink_that_raises_hurts_nobody_else(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError("deaf")

    heard = Listener()
    family = ToyFamily(ToyAR(script={"a": [[1, 2, 3]], "b": [[1, 2, 3]]}))
    engine.submit(family, [(job("a"), broken), (job("b"), heard)])
    assert heard.wait().finish_reason == "stop"
    assert engine.call(lambda: len(engine._scheduler.running)).result(5) == 0


def test_full_queue_and_too_large_jobs_are_refused_before_anything_is_queued(engine: Engine) -> None:
    family = ToyFamily(ToyAR())
    with pytest.raises(QueueFull):
        engine.submit(family, [(job(f"q{i}"), Listener()) for i in range(21)])
    with pytest.raises(InputTooLong):
        engine.submit(family, [(job("big", memory=101), Listener())])
    assert engine.stats().waiting == 0


def test_call_runs_on_the_device_thread_and_carries_errors(engine: Engine) -> None:
    assert engine.call(lambda: threading.current_thread().name).result(5) == "oscine-engine"
    with pytest.raises(ZeroDivisionError):
        engine.call(lambda: 1 // 0).result(5)


@pytest.mark.parametrize("drain", [True, False])
def test_close_finishes_or_cancels_and_refuses_new_work(drain: bool) -> None:
    engine = Engine(EngineOptions(memory_bytes=100))
    family, heard = ToyFamily(ToyAR(stop_code=-1)), Listener()
    engine.submit(family, [(job("a", max_frames=500), heard)])
    engine.close(drain=drain)
    assert heard.wait().finish_reason in (("length",) if drain else ("cancelled", "length"))
    with pytest.raises(NotReady):
        engine.submit(family, [(job("b"), Listener())])
    with pytest.raises(NotReady):
        engine.call(lambda: None)
