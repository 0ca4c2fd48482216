"""What a job gets never depends on its neighbours: bit-equal codes and hidden states in float32 on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from oscine.families.audio8.backends.eager import EagerBackend
from oscine.families.audio8.backends.protocol import Backend
from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.rows import Sampling
from oscine.families.audio8.steps import Audio8StepModel
from oscine.runtime.exact import ExactRule, fixed_rows, fixed_width
from oscine.types import Job
from tests.audio8_toys import MIDDLE, lm_config, needs_native, random_backend, random_job

FRAMES = 8


class Recorder(Audio8StepModel):
    """Also keeps, for each job, the hidden states its frames were drawn from."""

    def _emit(self, slots, first, final, fast_hidden):  # type: ignore[no-untyped-def]
        for index, slot in enumerate(slots):
            self.seen.setdefault(slot.job.id, []).append(torch.cat([final[index], fast_hidden[index]]).clone())
            if isinstance(self.backend, EagerBackend):  # compiled steps keep their logits to themselves
                self.logits.setdefault(slot.job.id, []).append(self.backend.compact_logits(final)[index].clone())
        return super()._emit(slots, first, final, fast_hidden)

    def __init__(self, backend: Backend, rule: ExactRule | None = None) -> None:
        super().__init__(backend, rule=rule)
        self.seen: dict[str, list[Tensor]] = {}
        self.logits: dict[str, list[Tensor]] = {}


Schedule = Callable[[Recorder, Sequence[Job]], None]


def advance(steps: Recorder, jobs: Sequence[Job]) -> None:
    """One step of each phase for the jobs that are not done."""
    for key in [("prefill",), ("decode",)]:
        batch = [job for job in jobs if len(job.frames) < FRAMES and steps.batch_key(job) == key]
        groups = [batch] if key == ("decode",) else [[job] for job in batch]
        for group in groups:
            for job, out in zip(group, steps.step(group) if group else [], strict=True):
                assert out.error is None
                assert out.finish is None
                job.frames.extend(out.frames)


def together(steps: Recorder, jobs: Sequence[Job]) -> None:
    for job in jobs:
        steps.admit(job)
    while any(len(job.frames) < FRAMES for job in jobs):
        advance(steps, jobs)
    for job in jobs:
        steps.release(job)


def joining_and_leaving(steps: Recorder, jobs: Sequence[Job]) -> None:
    """Jobs come in one by one, and leave as they finish, so rows move about all the time."""
    waiting, running = list(jobs), []
    while waiting or running:
        if waiting:
            running.append(waiting.pop(0))
            steps.admit(running[-1])
        advance(steps, running)
        for job in [job for job in running if len(job.frames) >= FRAMES]:
            steps.release(job)
            running.remove(job)


def with_others_cancelled(steps: Recorder, jobs: Sequence[Job]) -> None:
    """Other jobs take the first and middle rows and are dropped in the midst of everything."""
    config = steps.model.config
    others = [make_job(config, 900 + i) for i in range(3)]
    steps.admit(others[0])
    advance(steps, others[:1])
    for job in jobs:
        steps.admit(job)
    for other in others[1:]:
        steps.admit(other)
    for cancelled in [2, 0, 1]:
        advance(steps, [*others, *jobs])
        steps.release(others.pop(min(cancelled, len(others) - 1)))
    while any(len(job.frames) < FRAMES for job in jobs):
        advance(steps, jobs)
    for job in jobs:
        steps.release(job)


def in_halves(steps: Recorder, jobs: Sequence[Job]) -> None:
    """Every step call takes only some of the active jobs, never the same ones in a row."""
    for job in jobs:
        steps.admit(job)
    turn = 0
    while any(len(job.frames) < FRAMES for job in jobs):
        unfinished = [job for job in jobs if len(job.frames) < FRAMES]
        chosen = [job for i, job in enumerate(unfinished) if (i + turn) % 3] or unfinished
        advance(steps, list(reversed(chosen)))
        turn += 1
    for job in jobs:
        steps.release(job)


def make_job(config: LMConfig, seed: int) -> Job:
    sampling = Sampling(do_sample=seed % 4 != 0, temperature=0.6 + 0.1 * (seed % 5), top_k=(seed % 3) * 40, top_p=0.95)
    lengths = {0: 20, 1: 240, 2: 7, 3: 270}  # key widths on both sides of a block's half
    return random_job(config, seed, sampling=sampling, num_text=lengths[seed % 4], min_new_frames=FRAMES)


def alone(backend: Backend, count: int, rule: ExactRule | None = None) -> tuple[list[Job], Recorder]:
    steps = Recorder(backend, rule)
    jobs = [make_job(backend.model.config, seed) for seed in range(count)]
    for job in jobs:
        together(steps, [job])
    return jobs, steps


Reference = tuple[Backend, list[Job], Recorder]


@pytest.fixture(scope="module", params=["dense", "hybrid", pytest.param("native", marks=needs_native)])
def reference(request: pytest.FixtureRequest) -> Reference:
    kind = "native" if request.param == "native" else "eager"
    backend = random_backend(lm_config(MIDDLE, hybrid=request.param == "hybrid"), kind)
    return (backend, *alone(backend, 17))


def assert_same(steps: Recorder, jobs: Sequence[Job], expected: Sequence[Job], alone: Recorder) -> None:
    for job, reference in zip(jobs, expected, strict=False):
        assert torch.equal(torch.stack(job.frames), torch.stack(reference.frames)), f"codes of {job.id}"
        for mine, theirs in ((steps.seen, alone.seen), (steps.logits, alone.logits)):
            pairs = zip(mine.get(job.id, []), theirs.get(job.id, []), strict=True)
            differing = [i for i, pair in enumerate(pairs) if not torch.equal(*pair)]
            assert not differing, f"states of {job.id} at frames {differing}"


@pytest.mark.parametrize("count", [2, 4, 8, 17])
def test_a_job_is_the_same_in_any_batch(reference: Reference, count: int) -> None:
    backend, expected, alone_steps = reference
    steps = Recorder(backend, alone_steps.rule)
    jobs = [make_job(backend.model.config, seed) for seed in range(count)]
    together(steps, jobs)
    assert_same(steps, jobs, expected, alone_steps)


@pytest.mark.parametrize("schedule", [joining_and_leaving, with_others_cancelled, in_halves])
def test_a_job_is_the_same_whoever_comes_and_goes(reference: Reference, schedule: Schedule) -> None:
    backend, expected, alone_steps = reference
    steps = Recorder(backend, alone_steps.rule)
    jobs = [make_job(backend.model.config, seed) for seed in range(6)]
    schedule(steps, jobs)
    assert_same(steps, jobs, expected, alone_steps)
    assert steps._table.active == []


@pytest.mark.parametrize("hybrid", [False, True])
def test_the_fixed_shape_rule_keeps_the_promise_too(hybrid: bool) -> None:
    backend = random_backend(lm_config(MIDDLE, hybrid=hybrid))
    capacity = backend.model.config.max_seq_len
    rule = ExactRule(rows=fixed_rows(4, "a test"), width=fixed_width(capacity, "a test"))
    expected, alone_steps = alone(backend, 3, rule)
    steps = Recorder(backend, rule)
    jobs = [make_job(backend.model.config, seed) for seed in range(3)]
    in_halves(steps, jobs)
    assert_same(steps, jobs, expected, alone_steps)


def test_a_neighbour_that_breaks_harms_nobody(reference: Reference) -> None:
    """A job whose state turns to NaN fails alone, and leaves nothing behind in the row it had."""
    backend, expected, alone_steps = reference
    steps = Recorder(backend, alone_steps.rule)
    good, bad, later = (make_job(backend.model.config, seed) for seed in (1, 50, 2))
    for job in (good, bad):
        steps.admit(job)
    advance(steps, [good, bad])
    row = steps._slots[bad].row
    with torch.inference_mode():
        for layer in steps._table.cache.layers:
            layer[row] = float("nan")
    outs = steps.step([good, bad])
    good.frames.extend(outs[0].frames)
    assert outs[0].error is None
    assert outs[1].error is not None
    steps.release(bad)
    steps.admit(later)
    while len(good.frames) < FRAMES or len(later.frames) < FRAMES:
        advance(steps, [good, later])
    assert_same(steps, [good, later], [expected[1], expected[2]], alone_steps)
