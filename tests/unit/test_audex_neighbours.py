"""A job's tokens and samples are the same alone and in company, bit for bit (float32 on the CPU)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oscine.engine.engine import Engine
from oscine.families.audex.family import AudexFamily
from oscine.runtime.exact import fixed_rows
from oscine.types import AudioChunk, AudioInput, Done, Event, Job, Request, Samples, TextChunk
from tests.unit.audex_models import dense_family, hybrid_family, int8_family

FAMILIES: dict[str, Callable[[Path], AudexFamily]] = {
    "dense": dense_family,
    "hybrid": hybrid_family,
    "int8": int8_family,
}
TEXTS = ("Hello there.", "One two three four five.", "a", "Rain on a tin roof, and then some.")


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, golden_root: Path) -> AudexFamily:
    return FAMILIES[request.param](golden_root)


def jobs_of(family: AudexFamily, count: int, tokens: int = 9) -> list[Job]:
    """Speech and sound, guided and not, with different seeds, texts and lengths."""
    jobs = []
    for n in range(count):
        task: Any = "sound" if n % 3 == 2 else "speech"
        request = Request(
            task=task,
            text=TEXTS[n % len(TEXTS)] + " x" * n,
            seed=n,
            temperature=1.0,
            cfg_scale=1.0 if n % 2 else 2.0,
            max_new_tokens=tokens + n,
        )
        jobs += family.prepare(request, f"j{n}").jobs
    return jobs


def tokens_of(family: AudexFamily, jobs: list[Job], batch: int, logits: dict[str, list[torch.Tensor]]) -> None:
    """Steps jobs to their ends, up to `batch` at a time; later ones join when earlier ones have ended."""
    steps = family.step_model()
    waiting, running = list(jobs), []
    original = steps._advance

    def spy(slot: Any, rows: torch.Tensor) -> Any:
        owner = next(job.id for job in jobs if steps._slots.get(job.id) is slot)
        logits.setdefault(owner, []).append(rows.clone())
        return original(slot, rows)

    steps._advance = spy  # type: ignore[method-assign]
    try:
        while waiting or running:
            while waiting and len(running) < batch:
                job = waiting.pop(0)
                steps.admit(job)
                running.append(job)
            fresh = [job for job in running if steps.batch_key(job) != "decode"]
            group = fresh[:1] or running
            for job, out in zip(list(group), steps.step(group), strict=True):
                assert out.error is None
                if out.finish:
                    steps.release(job)
                    running.remove(job)
    finally:
        del steps._advance
    assert not steps._slots


@pytest.mark.parametrize("batch", [2, 3, 8, 17])
def test_neighbours_do_not_change_logits(family: AudexFamily, batch: int) -> None:
    jobs = jobs_of(family, 17 if batch == 17 else 6)
    together: dict[str, list[torch.Tensor]] = {}
    tokens_of(family, jobs, batch, together)
    for job in jobs[:5]:
        alone: dict[str, list[torch.Tensor]] = {}
        tokens_of(family, [job], 1, alone)
        assert len(alone[job.id]) == len(together[job.id])
        for step, (a, b) in enumerate(zip(alone[job.id], together[job.id], strict=True)):
            assert torch.equal(a, b), f"{job.id} step {step}: {(a - b).abs().max()}"


def test_neighbours_under_the_fixed_shape(golden_root: Path) -> None:
    """The rule that needs no facts about the machine: every call has the same number of rows."""
    family = hybrid_family(golden_root)
    family._steps._rule = fixed_rows(6, "a test")
    jobs = jobs_of(family, 5)
    together: dict[str, list[torch.Tensor]] = {}
    tokens_of(family, jobs, 5, together)
    alone: dict[str, list[torch.Tensor]] = {}
    tokens_of(family, jobs[:1], 1, alone)
    assert all(torch.equal(a, b) for a, b in zip(alone["j0.0"], together["j0.0"], strict=True))


def test_restored_jobs_repeat_themselves(family: AudexFamily) -> None:
    """A snapshot taken in mid-flight leads, with the same random stream, to the same tokens; the lane had moved on."""
    steps = family.step_model()
    (job,) = family.prepare(Request(text="Hello there.", seed=3, temperature=1.0, cfg_scale=2.0), "r").jobs
    steps.admit(job)
    for _ in range(4):
        steps.step([job])
    point, runs = steps.snapshot(job), []
    for _ in range(2):
        steps.restore(job, point, 11)
        for _ in range(6):
            steps.step([job])
        runs.append(list(steps._slots[job.id].tokens))
    steps.release(job)
    assert runs[0] == runs[1]
    assert len(runs[0]) == 10


class Listener:
    """Collects one job's audio and words until its terminal event."""

    def __init__(self) -> None:
        self.chunks: list[Samples] = []
        self.words = ""
        self.outcome: Event | None = None
        self.ended = threading.Event()

    def __call__(self, event: Event) -> None:
        if isinstance(event, AudioChunk):
            self.chunks.append(event.samples)
        elif isinstance(event, TextChunk):
            self.words += event.text
        else:
            self.outcome = event
            self.ended.set()

    def audio(self) -> Samples:
        assert self.ended.wait(60)
        assert isinstance(self.outcome, Done), self.outcome
        return np.concatenate(self.chunks) if self.chunks else np.zeros(0, np.float32)


def through_engine(family: AudexFamily, jobs: list[Job]) -> list[Samples]:
    engine = Engine()
    try:
        listeners = [Listener() for _ in jobs]
        engine.submit(family, list(zip(jobs, listeners, strict=True)))
        return [listener.audio() for listener in listeners]
    finally:
        engine.close()


def test_neighbours_do_not_change_samples(family: AudexFamily) -> None:
    together = through_engine(family, jobs_of(family, 6))
    for number in (0, 2, 5):
        (alone,) = through_engine(family, [jobs_of(family, 6)[number]])
        assert len(alone)
        assert np.array_equal(alone, together[number])


def test_listening_neighbours(golden_root: Path) -> None:
    """Questions about audio batch with speech; answers and speech stay what they were."""
    family = dense_family(golden_root)
    wave = AudioInput(samples=np.sin(np.arange(8000, dtype=np.float32) / 20), sample_rate=16000)

    def made() -> list[Job]:
        ask = Request(task="ask", text="How many dogs?", audio=wave, seed=1, temperature=1.0, max_new_tokens=12)
        speech = Request(text="Hello there.", seed=2, temperature=1.0, max_new_tokens=24)
        return [*family.prepare(ask, "a").jobs, *family.prepare(speech, "s").jobs]

    both = made()
    together = through_engine(family, both)
    alone_ask, alone_speech = made()
    through_engine(family, [alone_ask])
    assert alone_ask.frames == both[0].frames
    assert family.text_of(alone_ask) == family.text_of(both[0])
    assert np.array_equal(through_engine(family, [alone_speech])[0], together[1])
