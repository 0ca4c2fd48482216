"""The step model: partial heads, one job's failure, stop rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oscine.errors import NonFiniteOutput
from oscine.families.audex.family import AudexFamily
from oscine.families.audex.model.heads import head_of
from oscine.families.audex.steps import AudexStepModel
from oscine.types import AudioInput, Job, Request, StepOut
from tests.unit.audex_models import dense_family


@pytest.fixture(scope="module")
def family(golden_root: Path) -> AudexFamily:
    return dense_family(golden_root)


def job(family: AudexFamily, name: str, **fields: Any) -> Job:
    return family.prepare(Request(**{"text": "Hello there.", "seed": 1, "temperature": 1.0, **fields}), name).jobs[0]


def run(steps: AudexStepModel, job: Job) -> tuple[list[int], list[Any], StepOut]:
    """(tokens, frames, last result) of a job stepped to its end."""
    steps.admit(job)
    tokens, frames = steps._slots[job.id].tokens, []
    while True:
        (out,) = steps.step([job])
        frames += out.frames
        if out.finish or out.error:
            steps.release(job)
            return tokens, frames, out


@pytest.mark.parametrize("rows", [20, 64, 70, 200])
def test_heads_are_views_of_the_rows_they_name(rows: int) -> None:
    weight = torch.randn(rows, 4, generator=torch.Generator().manual_seed(0))
    hidden = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    head = head_of(weight, [9, 3, 4, 5, 19, 3])
    assert head.ids == (3, 4, 5, 9, 19)
    assert [run.count for run in head.runs] == [3, 1, 1]
    storage = weight.untyped_storage().data_ptr()
    assert all(run.weight.untyped_storage().data_ptr() == storage for run in head.runs)
    assert all(len(run.weight) == min(rows, 64) for run in head.runs)
    assert torch.allclose(head(hidden), (hidden @ weight.T)[:, list(head.ids)])


def test_speech_only_keeps_to_the_block(family: AudexFamily) -> None:
    """The miniature, random as it is, leaves the block when it may; restricted it never does, until an end."""
    tokens = family._model.tokens
    restricted = AudexStepModel(family._model, family.step_model()._rule, speech_only=True)
    free, *_ = run(family.step_model(), job(family, "a", max_new_tokens=40))
    kept, frames, _ = run(restricted, job(family, "b", max_new_tokens=40))
    assert len(tokens.speech.codes(free)) < len(free) - 1
    ends = {tokens.speechgen_end, *tokens.eos}
    assert all(tokens.speech.codes([token]) or token in ends for token in kept)
    assert frames == tokens.speech.codes(kept)


def test_sounds_keep_their_grid_and_drop_a_partial_frame(family: AudexFamily) -> None:
    tokens = family._model.tokens
    for limit in (8, 10):
        made, frames, out = run(family.step_model(), job(family, f"s{limit}", task="sound", max_new_tokens=limit))
        assert out.finish == "length" or made[-1] == tokens.audiogen_end
        codes = tokens.audio.codes(made)
        assert [code // 1024 for code in codes] == [i % 4 for i in range(len(codes))]
        assert frames == [codes[i : i + 4] for i in range(0, len(codes) - len(codes) % 4, 4)]


def test_cap_zero_ends_at_once(family: AudexFamily) -> None:
    capped = job(family, "c", task="sound")
    capped.inputs = replace(capped.inputs, codec_cap=0)
    made, frames, out = run(family.step_model(), capped)
    assert (made, frames, out.finish) == ([family._model.tokens.audiogen_end], [], "stop")


@torch.inference_mode()
def test_one_jobs_nan_is_its_own(family: AudexFamily) -> None:
    steps, jobs = family.step_model(), [job(family, "x"), job(family, "y", cfg_scale=2.0)]
    for one in jobs:
        steps.admit(one)
        steps.step([one])
    for layer in steps._slots[jobs[0].id].lanes[0]._cache.layers:
        layer.fill_(float("nan"))
    bad, good = steps.step(jobs)
    assert isinstance(bad.error, NonFiniteOutput)
    assert good.error is None
    for one in jobs:
        steps.release(one)


@pytest.mark.parametrize("task", ["speech", "ask"])
def test_every_stop_token_stops(family: AudexFamily, task: str) -> None:
    """The task's own end and both ends of text; a text's end is a frame, so that no answer is without frames."""
    tokens, steps = family._model.tokens, family.step_model()
    wave = AudioInput(samples=np.zeros(100, np.float32), sample_rate=16000)
    made = job(family, "z", task=task, **({"audio": wave} if task == "ask" else {}))
    ends = [*tokens.eos, *([tokens.speechgen_end] if task == "speech" else [])]
    for end in ends:
        steps.admit(made)
        slot = steps._slots[made.id]
        logits = torch.zeros(1, family._model.lm.config.vocab_size)
        logits[0, end] = 1e4
        out = steps._advance(slot, logits)
        assert out.finish == "stop"
        assert list(out.frames) == ([end] if task == "ask" else [])
        steps.release(made)
