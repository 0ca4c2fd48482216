"""A request of several pieces: order, joins, bounded look-ahead, cancel, failures, progress."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from oscine.engine.engine import Engine, EngineOptions
from oscine.errors import GenerationError, InputTooLong, QueueFull
from oscine.stream import PIECES_AHEAD, SpeechStream, collect
from oscine.types import Done, Job, Plan, Samples, StepOut
from tests.toys import HOP, HoldDecoder, ToyAR, ToyFamily, ToyFlow


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(EngineOptions(memory_bytes=100, max_waiting=20))
    yield engine
    engine.close()


def plan(count: int, frames: int = 5, **fields: int) -> Plan:
    jobs = tuple(
        Job(id=f"p{i}", inputs=None, seed=97 * i, max_frames=frames, memory=1, text=f"piece {i}", **fields)
        for i in range(count)
    )
    return Plan(jobs=jobs, seed=0, spoken_text=tuple(f"spoken {i}" for i in range(count)), input_tokens=count)


def family(count: int = 1, frames: int = 5) -> ToyFamily:
    return ToyFamily(ToyAR(script={f"p{i}": [[10 * (i + 1) + k for k in range(frames)]] for i in range(count)}))


def test_pieces_come_in_order_and_are_reported(engine: Engine) -> None:
    progress: list[float] = []
    stream = SpeechStream(family(3), engine, plan(3), on_progress=progress.append)
    audio = collect(stream)
    expected = np.repeat(np.float32([10 * (i + 1) + k for i in range(3) for k in range(5)]) / 100, HOP)
    np.testing.assert_allclose(audio, expected, atol=1e-6)  # at 100 Hz the fade is shorter than a sample
    assert [p.text for p in stream.pieces] == ["piece 0", "piece 1", "piece 2"]
    assert [p.spoken_text for p in stream.pieces] == ["spoken 0", "spoken 1", "spoken 2"]
    assert [p.start_s for p in stream.pieces] == pytest.approx([0.0, 0.2, 0.4])
    assert progress == sorted(set(progress))
    assert {1 / 3, 2 / 3, 1.0} <= set(progress)
    assert stream.finish_reason == "length"
    assert stream.usage == {"input_tokens": 3, "output_tokens": 15, "total_tokens": 18}
    assert 0 < stream.timings.first_audio_s <= stream.timings.total_s
    assert stream.timings.audio_s == pytest.approx(0.6)


class SteppedFlow(ToyFlow):
    """A flow that takes a step whenever it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Semaphore(0)

    def step(self, jobs: Sequence[Job]) -> Sequence[StepOut]:
        assert self.go.acquire(timeout=60)
        return super().step(jobs)


class Heard(HoldDecoder):
    """Notes how many steps the model had taken whenever there was audio."""

    def __init__(self, model: ToyAR, steps: list[int]) -> None:
        super().__init__()
        self._model, self._steps = model, steps

    def push(self, frames: Sequence[Any]) -> Samples:
        samples = super().push(frames)
        if len(samples):
            self._steps.append(len(self._model.batches))
        return samples


def steps_to_first_audio(engine: Engine, count: int) -> int:
    """How many steps of the model it takes until a request of `count` pieces is heard."""
    toys, steps = ToyFamily(ToyAR(stop_code=-1)), []
    toys.open_decoder = lambda job: Heard(toys._model, steps)  # type: ignore[method-assign]
    with SpeechStream(toys, engine, plan(count)) as stream:
        next(stream)
    return steps[0]


def test_a_long_text_is_heard_after_as_many_steps_as_a_short_one(engine: Engine) -> None:
    alone = steps_to_first_audio(engine, 1)
    assert alone > 1
    assert steps_to_first_audio(engine, 2) == steps_to_first_audio(engine, 60) == alone


def test_steps_within_a_piece_are_progress_too(engine: Engine) -> None:
    flow = SteppedFlow()
    job = Job(id="f", inputs={"steps": 4, "target": 1}, seed=1, max_frames=3, memory=1)
    told: queue.SimpleQueue[float] = queue.SimpleQueue()
    stream = SpeechStream(ToyFamily(flow), engine, Plan(jobs=(job,), seed=0), on_progress=told.put)
    assert stream.progress == 0
    with ThreadPoolExecutor(1) as pool:
        audio = pool.submit(collect, stream)
        for share in (0.25, 0.5, 0.75):
            flow.go.release()
            assert told.get(timeout=30) == stream.progress == share
            assert not audio.done()
        flow.go.release()
        assert len(audio.result(30)) == 3 * HOP
    assert told.get(timeout=30) == stream.progress == 1
    assert told.empty()


@pytest.mark.parametrize("fields", [{"ends_full": True}, {}], ids=["a length that was asked for", "a budget"])
def test_frames_of_the_most_there_may_be_tell_how_far_a_piece_is(engine: Engine, fields: dict[str, bool]) -> None:
    stream = SpeechStream(family(2, frames=8), engine, plan(2, frames=8, **fields))
    shares = [stream.progress for _ in stream]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] <= stream.progress == 1
    assert stream.num_frames == 16


def test_chunks_are_numbered_by_sample_over_all_pieces(engine: Engine) -> None:
    position = 0
    for chunk in SpeechStream(family(2), engine, plan(2)):
        assert chunk.start == position
        position += len(chunk.samples)
    assert position == 10 * HOP


def test_only_a_few_pieces_are_in_the_engine_at_a_time(engine: Engine) -> None:
    plans = plan(30)
    stream = SpeechStream(family(30), engine, plans)
    next(stream)
    started = [job for job in plans.jobs if job.frames or job.ended]
    assert len(started) <= PIECES_AHEAD
    assert len(collect(stream)) > 0
    assert all(isinstance(job.outcome, Done) for job in plans.jobs)


def test_cancel_ends_the_iteration_and_frees_everything(engine: Engine) -> None:
    endless = ToyFamily(ToyAR(stop_code=-1))
    stream = SpeechStream(endless, engine, plan(2, frames=10**9))
    next(stream)
    stream.cancel()
    collect(stream)
    assert stream.finish_reason == "cancelled"
    assert engine.call(lambda: (len(endless._model.slots), engine.stats().running)).result(5) == (0, 0)


def test_leaving_the_with_block_cancels(engine: Engine) -> None:
    endless = ToyFamily(ToyAR(stop_code=-1))
    with SpeechStream(endless, engine, plan(1, frames=10**9)) as stream:
        next(stream)
    assert stream.plan.jobs[0].cancelled.is_set()
    while engine.stats().running:
        pass


def test_a_failure_reaches_the_caller_and_cancels_the_other_pieces(engine: Engine) -> None:
    toys = family(3)
    toys._model.fail_ids.add("p1")
    stream = SpeechStream(toys, engine, plan(3))
    with pytest.raises(GenerationError, match="on fire"):
        collect(stream)
    assert stream.plan.jobs[2].cancelled.is_set()


def test_a_full_queue_is_refused_before_the_first_chunk(engine: Engine) -> None:
    small = Engine(EngineOptions(memory_bytes=100, max_waiting=1, max_running=1))
    endless = ToyFamily(ToyAR(stop_code=-1))
    running = SpeechStream(endless, small, plan(1, frames=10**9))
    next(running)
    waiting = SpeechStream(endless, small, Plan(jobs=(job_behind(running),), seed=0))
    with pytest.raises(QueueFull):
        SpeechStream(family(2), small, plan(2))
    for stream in (waiting, running):
        stream.cancel()
    small.close()


def test_a_request_let_in_finds_room_for_its_later_pieces_however_full_the_queue() -> None:
    """The fifth piece of a long text was once refused like a new request, in the middle of its speech."""
    with_room = Engine(EngineOptions(memory_bytes=100, max_waiting=PIECES_AHEAD, max_running=1))
    endless = ToyFamily(ToyAR(stop_code=-1))
    stream = SpeechStream(family(9), with_room, plan(9))
    waiting: list[SpeechStream] = []
    for _ in stream:  # others fill the queue whenever there is room
        with contextlib.suppress(QueueFull):
            while True:
                waiting.append(SpeechStream(endless, with_room, Plan(jobs=(job_behind(stream),), seed=0)))
    assert waiting
    assert len(stream.pieces) == 9
    for other in waiting:
        other.cancel()
    with_room.close()


def job_behind(stream: SpeechStream) -> Job:
    """A job that stays in the queue until `stream` has ended."""
    return Job(id="behind", inputs=None, seed=0, max_frames=5, memory=1, after=stream.plan.jobs[-1])


def test_a_later_piece_that_can_never_fit_is_refused_before_the_first(engine: Engine) -> None:
    pieces = plan(7)
    pieces.jobs[-1].memory = 101
    with pytest.raises(InputTooLong):
        SpeechStream(family(7), engine, pieces)
    assert engine.stats().waiting == engine.stats().running == 0


def test_one_line_is_logged_and_it_holds_no_text(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="oscine.stream"):
        collect(SpeechStream(family(2), engine, plan(2)))
    (record,) = [r for r in caplog.records if r.name == "oscine.stream"]
    assert "2 of 2 pieces" in record.getMessage()
    assert "length" in record.getMessage()
    assert "piece 0" not in record.getMessage()
