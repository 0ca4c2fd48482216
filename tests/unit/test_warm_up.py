"""A decoder's warm-up is never heard: whole, streamed, decoded beside the model or together with other jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pytest

from oscine.engine.engine import Engine, EngineOptions
from oscine.errors import NoAudio
from oscine.stream import SpeechStream, collect
from oscine.types import Decoder, Done, Failed, Job, Plan, Samples
from tests.toys import HOP, ToyAR, ToyFamily
from tests.unit.test_engine import job, run

CLICK = 0.9
CODES = [10, 20, 30, 40, 50, 60]


class Lagging(Decoder):
    """Each frame's samples come with the next frame; in its place the first one brings a click in dead air."""

    def __init__(self) -> None:
        self._late: Samples = np.float32([CLICK, CLICK, 0.01, 0.0])

    def push(self, frames: Sequence[Any]) -> Samples:
        made = np.repeat(np.float32([np.asarray(frame).flat[0] / 100 for frame in frames]), HOP)
        joined = np.concatenate([self._late, made])
        self._late = joined[len(made) :]
        return joined[: len(made)]

    def flush(self) -> Samples:
        return np.zeros(0, np.float32)


class LaggingAlone(Lagging):
    warm_up = HOP


class LaggingBeside(Lagging):
    warm_up = HOP
    runs_in_background = True


class LaggingTogether(Lagging):
    warm_up = HOP
    is_joint = True


class LaggingFamily(ToyFamily):
    def __init__(self, model: ToyAR, kind: type[Lagging], sizes: tuple[int, ...] = (1, 3)) -> None:
        super().__init__(model)
        self._kind, self._sizes = kind, sizes

    def open_decoder(self, job: Job) -> Decoder:  # type: ignore[override]
        return cast(Decoder, self._kind())

    def chunk_sizes(self) -> tuple[int, ...]:
        return self._sizes


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(EngineOptions(memory_bytes=100, max_waiting=20, decode_in_background=True))
    yield engine
    engine.close()


def heard_of(codes: Sequence[int]) -> Samples:
    """What is heard of frames whose decoder lags by one."""
    return np.repeat(np.float32(codes[:-1]) / 100, HOP)


@pytest.mark.parametrize("kind", [LaggingAlone, LaggingBeside, LaggingTogether])
@pytest.mark.parametrize("sizes", [(1,), (2, 3), (4,)])
def test_the_first_sample_heard_is_the_first_frames_own(
    engine: Engine, kind: type[Lagging], sizes: tuple[int, ...]
) -> None:
    """The click of a cold decoder was the first thing heard of every utterance."""
    scripts = {"a": [CODES], "b": [[70, 80]]}
    family = LaggingFamily(ToyAR(script=scripts), kind, sizes)
    for name, listener in zip(scripts, run(engine, family, *(job(name) for name in scripts)), strict=True):
        codes = scripts[name][0]
        done = listener.wait()
        assert isinstance(done, Done)
        assert done.num_frames == len(codes)
        np.testing.assert_array_equal(listener.audio(), heard_of(codes))


def test_streamed_is_whole_and_every_piece_starts_with_its_own_sound(engine: Engine) -> None:
    scripts = {"r.0": [CODES], "r.1": [[70, 80, 90]]}

    def stream() -> SpeechStream:
        family = LaggingFamily(ToyAR(script=scripts), LaggingAlone)
        return SpeechStream(family, engine, Plan(jobs=tuple(job(name) for name in scripts), seed=0))

    with stream() as chunks:
        streamed = list(chunks)
    whole = collect(stream())
    np.testing.assert_array_equal(np.concatenate([chunk.samples for chunk in streamed]), whole)
    assert [chunk.start for chunk in streamed] == [*np.cumsum([0, *(len(c.samples) for c in streamed[:-1])])]
    assert len(whole) == len(heard_of(CODES)) + len(heard_of([70, 80, 90]))
    assert np.abs(whole).max() < CLICK
    with stream() as again:
        collect(again)
        first, second = again.pieces
    assert (first.start_s, second.start_s) == (0.0, len(heard_of(CODES)) / again.sample_rate)
    assert first.duration_s + second.duration_s == pytest.approx(again.timings.audio_s)


def test_a_job_that_is_all_warm_up_is_an_error(engine: Engine) -> None:
    family = LaggingFamily(ToyAR(script={"a": [[10]]}), LaggingAlone)
    (listener,) = run(engine, family, job("a"))
    failed = listener.wait()
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, NoAudio)
    assert "1 frames" in str(failed.error)
    assert engine.stats().running == 0
