"""Decoders that work on several jobs at once: what waits for whom, the same samples, and one job's fault."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from oscine.engine.decode import PATIENCE, GridDecoder, joint_runs
from oscine.engine.engine import Engine, EngineOptions
from oscine.errors import NonFiniteOutput
from oscine.types import Decoder, Done, Failed, Job, Samples
from tests.toys import HOP, HoldDecoder, ToyAR, ToyFamily
from tests.unit.test_engine import job, run

SIZES = (1, 3)


class JointHold(Decoder):
    """A `HoldDecoder` that notes how many jobs share a call; a frame of 66 breaks the call, 99 its own samples."""

    is_joint = True
    calls: ClassVar[list[int]] = []
    broken: ClassVar[int] = 0
    """Jobs of the largest call that broke."""

    def __init__(self) -> None:
        self._alone = HoldDecoder()

    def push(self, frames: Sequence[Any]) -> Samples:
        return self.push_all([(self, frames)])[0]

    def flush(self) -> Samples:
        return self._alone.flush()

    @classmethod
    def push_all(cls, pushes: Sequence[tuple[JointHold, Sequence[Any]]]) -> Sequence[Samples]:
        cls.calls.append(len(pushes))
        codes = [int(np.asarray(frame).flat[0]) for _, frames in pushes for frame in frames]
        if 66 in codes:
            cls.broken = max(cls.broken, len(pushes))
            raise RuntimeError("the decoder is on fire")  # no decoder has moved on yet
        made = [decoder._alone.push(frames) for decoder, frames in pushes]
        bad = [any(int(np.asarray(frame).flat[0]) == 99 for frame in frames) for _, frames in pushes]
        return [samples * np.float32("nan") if broken else samples for samples, broken in zip(made, bad, strict=True)]


class JointFamily(ToyFamily):
    def open_decoder(self, job: Job) -> Decoder:  # type: ignore[override]
        return JointHold()

    def chunk_sizes(self) -> tuple[int, ...]:
        return SIZES


@pytest.fixture
def engine() -> Iterator[Engine]:
    JointHold.calls, JointHold.broken = [], 0
    engine = Engine(EngineOptions(memory_bytes=100, max_waiting=20))
    yield engine
    engine.close()


def test_samples_are_those_of_a_job_alone(engine: Engine) -> None:
    scripts = {f"j{n}": [[10 * n + k + 10 for k in range(4 + 5 * n)]] for n in range(4)}
    together = run(engine, JointFamily(ToyAR(script=scripts)), *(job(name) for name in scripts))
    assert max(JointHold.calls) > 1
    for name, listener in zip(scripts, together, strict=True):
        (alone,) = run(engine, ToyFamily(ToyAR(script=scripts)), job(name))
        assert np.array_equal(alone.audio(), listener.audio())
        assert len(listener.audio()) == HOP * len(scripts[name][0])


def test_a_broken_call_fails_the_failing_job_alone(engine: Engine) -> None:
    """One job's frames break the joint call: all jobs of that call used to fail with it."""
    scripts = {"bad": [[10, 66, 12, 13, 14, 15]], "one": [[20, 21, 22, 23, 24, 25]], "two": [[30, 31, 32, 33, 34]]}
    bad, *innocent = run(engine, JointFamily(ToyAR(script=scripts)), *(job(name) for name in scripts))
    failed = bad.wait()
    assert isinstance(failed, Failed)
    assert "on fire" in str(failed.error)
    assert JointHold.broken > 1
    for name, listener in zip(("one", "two"), innocent, strict=True):
        assert isinstance(listener.wait(), Done)
        (alone,) = run(engine, ToyFamily(ToyAR(script=scripts)), job(name))
        assert np.array_equal(alone.audio(), listener.audio())


def test_samples_that_are_no_numbers_fail_one_job(engine: Engine) -> None:
    scripts = {"bad": [[10, 11, 99, 13, 14, 15]], "good": [[20, 21, 22, 23, 24, 25]]}
    bad, good = run(engine, JointFamily(ToyAR(script=scripts)), job("bad"), job("good"))
    failed = bad.wait()
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, NonFiniteOutput)
    assert isinstance(good.wait(), Done)
    assert len(good.audio()) == 6 * HOP


def grid(runs: int, pending: int) -> GridDecoder:
    """A decoder that has had `runs` runs and holds `pending` frames of the next."""
    made = GridDecoder(JointHold(), SIZES)
    for size in [SIZES[min(i, len(SIZES) - 1)] for i in range(runs)]:
        made.add([[0]] * size)
        made.take()
    made.add([[0]] * pending)
    return made


def test_a_first_run_takes_along_what_waits() -> None:
    late, first, idle = grid(4, 3), grid(0, 1), grid(2, 1)
    assert joint_runs([late, idle]) == []
    assert joint_runs([late, first, idle]) == [late, first]


def test_nobody_waits_when_all_are_due() -> None:
    alone = grid(3, 3)
    assert joint_runs([alone]) == [alone]
    assert joint_runs([alone, grid(1, 3)])
    assert joint_runs([grid(3, 2)]) == joint_runs([]) == []


def test_patience_ends() -> None:
    waiting, idle = grid(4, 3), grid(2, 1)
    asked = [joint_runs([waiting, idle]) for _ in range(PATIENCE + 1)]
    assert asked == [[]] * PATIENCE + [[waiting]]
    waiting.take()
    waiting.add([[0]] * 3)
    assert joint_runs([waiting, idle]) == []
    waiting.add([[0]] * 3)  # a second run is due: the job is behind
    assert joint_runs([waiting, idle]) == [waiting]
