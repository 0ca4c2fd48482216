"""One job's fault in a step of several: that job alone fails, the others get what they get alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from oscine.engine.engine import Engine, EngineOptions
from oscine.engine.isolation import isolated
from oscine.errors import GenerationError
from oscine.families.audex import steps as audex_steps
from oscine.families.audex.family import AudexFamily
from oscine.families.audex.sampling import Sampling, draw
from oscine.families.audio8.steps import Audio8StepModel
from oscine.types import Done, Event, Failed, Job, Request, Samples, StepOut
from tests.audio8_toys import TINY, lm_config, needs_native, random_backend, random_job
from tests.toys import ToyAR, ToyFamily
from tests.unit import test_auk_neighbours as auk
from tests.unit.audex_models import dense_family, hybrid_family
from tests.unit.auk_factory import write_released
from tests.unit.test_audex_neighbours import Listener
from tests.unit.test_engine import Listener as ToyListener
from tests.unit.test_engine import job as toy_job

FAILING = 1
COUNT = 4


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(EngineOptions(memory_bytes=1 << 40))
    yield engine
    engine.close()


# --- the engine ---


class Burning(ToyAR):
    """Breaks off every step of more than a prompt that has the job `bad` in it."""

    def step(self, jobs: Sequence[Job]) -> Sequence[StepOut]:
        self.fail_ids = {"bad"} if self.batch_key(jobs[0]) == ("decode",) else set()
        return super().step(jobs)


def run_toys(engine: Engine, model: ToyAR, *names: str) -> list[ToyListener]:
    listeners = [ToyListener() for _ in names]
    jobs = [toy_job(name, seed=number + 1) for number, name in enumerate(names)]
    engine.submit(ToyFamily(model), list(zip(jobs, listeners, strict=True)))
    for listener in listeners:
        listener.wait()
    return listeners


def test_a_broken_step_fails_one_job_alone(engine: Engine) -> None:
    good = run_toys(engine, Burning(stop_code=-1), "a", "b", "c")
    mixed = run_toys(engine, Burning(stop_code=-1), "a", "bad", "c")
    failed = mixed[1].wait()
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, GenerationError)
    assert "on fire" in str(failed.error)
    for place in (0, 2):
        assert isinstance(mixed[place].wait(), Done)
        np.testing.assert_array_equal(mixed[place].audio(), good[place].audio())
    assert engine.stats().memory_reserved == 0


# --- Audex ---

FAMILIES: dict[str, Callable[[Path], AudexFamily]] = {"dense": dense_family, "hybrid": hybrid_family}


@pytest.fixture(params=FAMILIES)
def audex(request: pytest.FixtureRequest, golden_root: Path) -> AudexFamily:
    return FAMILIES[request.param](golden_root)


def audex_run(engine: Engine, family: AudexFamily, numbers: Sequence[int]) -> dict[int, Listener]:
    """Speech, every second job guided, in step with each other."""
    listeners, submitted = {}, []
    for n in numbers:
        request = Request(text="Hello.", seed=n, temperature=1.0, cfg_scale=1.0 + n % 2, max_new_tokens=40)
        listeners[n] = Listener()
        submitted += [(job, listeners[n]) for job in family.prepare(request, f"j{n}").jobs]
    engine.submit(family, submitted)
    assert all(listener.ended.wait(60) for listener in listeners.values())
    return listeners


def check_audex(engine: Engine, family: AudexFamily, expected: dict[int, Samples], match: str) -> None:
    heard = audex_run(engine, family, range(COUNT))
    failed = heard.pop(FAILING).outcome
    assert isinstance(failed, Failed)
    assert match in str(failed.error)
    for number, listener in heard.items():
        assert isinstance(listener.outcome, Done)
        np.testing.assert_array_equal(listener.audio(), expected[number])


def alone_audex(engine: Engine, family: AudexFamily) -> dict[int, Samples]:
    return {n: audex_run(engine, family, [n])[n].audio() for n in range(COUNT) if n != FAILING}


def test_a_broken_call_of_the_language_model_fails_one_job_alone(engine: Engine, audex: AudexFamily) -> None:
    """The call breaks when all lanes have moved on: keys and states are taken back before the jobs go on alone."""
    expected = alone_audex(engine, audex)
    steps, lm = audex.step_model(), audex._model.lm
    original, broken = lm.decode, []

    def decode(ids: Tensor, lanes: Sequence[Any]) -> Tensor:
        out = original(ids, lanes)
        slot = steps._slots.get(f"j{FAILING}.0")
        if slot and len(slot.tokens) > 3 and any(lane is own for lane in lanes for own in slot.lanes):
            broken.append(len(lanes))
            raise RuntimeError("this lane is broken")
        return out

    lm.decode = decode  # type: ignore[method-assign]
    check_audex(engine, audex, expected, "lane is broken")
    assert broken[0] > broken[-1] == 2  # once in company, once alone: its own two lanes


def test_a_broken_draw_fails_its_job_alone(engine: Engine, audex: AudexFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = alone_audex(engine, audex)
    steps = audex.step_model()

    def broken(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
        slot = steps._slots.get(f"j{FAILING}.0")
        if slot and generator is slot.generator and len(slot.tokens) > 3:
            raise RuntimeError("nothing can be drawn")
        return draw(logits, sampling, generator)

    monkeypatch.setattr(audex_steps, "draw", broken)
    check_audex(engine, audex, expected, "nothing can be drawn")


# --- Audio8 ---


def audio8_frames(steps: Audio8StepModel, jobs: Sequence[Job], count: int) -> dict[str, list[StepOut]]:
    """What each job gets, all in step, those that fail leaving at once."""
    outs: dict[str, list[StepOut]] = {job.id: [] for job in jobs}
    for job in jobs:
        steps.admit(job)
        outs[job.id].append(steps.step([job])[0])
    running = list(jobs)
    for _ in range(count):
        for job, out in zip(list(running), step(steps, running), strict=True):
            outs[job.id].append(out)
            if out.error is not None:
                steps.release(job)
                running.remove(job)
    for job in running:
        steps.release(job)
    return outs


def step(steps: Audio8StepModel, jobs: Sequence[Job]) -> list[StepOut]:
    """As the engine steps them."""
    outs = isolated(steps.step, jobs)
    return [StepOut(error=out) if isinstance(out, Exception) else out for out in outs]


@pytest.mark.parametrize("kind", ["dense", "hybrid", pytest.param("native", marks=needs_native)])
@pytest.mark.parametrize("where", ["advance", "draw"])
def test_a_broken_step_of_audio8_fails_one_job_alone(kind: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call breaks when its work is done: positions, states and noise are put back before the jobs go on alone."""
    config = lm_config(TINY, hybrid=kind == "hybrid")
    backend = random_backend(config, "native" if kind == "native" else "eager")
    # 18 jobs are two calls where the rule allows 15 rows
    jobs = [random_job(config, n, num_text=9, num_reference=4, min_new_frames=99) for n in range(18)]
    expected = {job.id: audio8_frames(Audio8StepModel(backend), [job], 6)[job.id] for job in jobs}
    steps = Audio8StepModel(backend)
    original, sizes = getattr(backend, where), []

    def broken(*args: Any) -> Any:
        result = original(*args)
        rows = args[3] if where == "advance" else None
        slot = steps._slots.get(jobs[FAILING])
        if slot and slot.emitted == 3 and slot.row is not None:
            first = rows.start if rows else steps_first[-1]
            last = rows.stop if rows else first + args[0].shape[0]
            if first <= slot.row < last:
                sizes.append(last - first)
                raise RuntimeError("this row is broken")
        return result

    steps_first = [0]
    advance = steps._advance

    def noting(slots: Any, rows: slice) -> Any:
        steps_first.append(rows.start)
        return advance(slots, rows)

    steps._advance = noting  # type: ignore[method-assign]
    monkeypatch.setattr(backend, where, broken)
    heard = audio8_frames(steps, jobs, 6)
    failed = heard.pop(jobs[FAILING].id)
    assert "row is broken" in str(failed[-1].error)
    assert len(failed) == 4
    for name, outs in heard.items():
        assert all(out.error is None for out in outs)
        assert torch.equal(frames_of(outs), frames_of(expected[name]))
    assert sizes[0] > sizes[-1]
    assert len(sizes) == 2


def frames_of(outs: Sequence[StepOut]) -> Tensor:
    return torch.stack([frame for out in outs for frame in out.frames])


# --- AuK ---


def outcomes(engine: Engine, family: Any, batch: Sequence[Job]) -> list[tuple[Samples, Event]]:
    listeners = [ToyListener() for _ in batch]
    engine.submit(family, list(zip(batch, listeners, strict=True)))
    return [(listener.audio(), listener.wait()) for listener in listeners if listener.wait()]


def test_a_broken_evaluation_fails_one_request_alone(engine: Engine, tmp_path: Path) -> None:
    family = auk.load(write_released(tmp_path))
    expected = [auk.whole(auk.run(engine, family, [job])[0]) for job in auk.jobs(family, auk.REQUESTS)]
    dit = family.step_model()._holder.get()
    original, failing, sizes = dit.step_packed, auk.jobs(family, auk.REQUESTS)[FAILING].inputs.frames, []

    def broken(xs: Sequence[Tensor], *rest: Any) -> list[Tensor]:
        out = original(xs, *rest)
        if any(len(x) == failing for x in xs):
            sizes.append(len(xs))
            raise RuntimeError("these latents are broken")
        return out

    dit.step_packed = broken  # type: ignore[method-assign]
    heard = outcomes(engine, family, auk.jobs(family, auk.REQUESTS))
    for number, (audio, event) in enumerate(heard):
        if number == FAILING:
            assert isinstance(event, Failed)
            assert "latents are broken" in str(event.error)
        else:
            assert isinstance(event, Done)
            np.testing.assert_array_equal(audio, expected[number])
    assert sizes[0] > sizes[-1] == 1
