"""Running fixture prompts through the step model, as an engine would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.prompt import PromptIds, prefix_columns, suffix_columns
from oscine.families.audio8.rows import Sampling
from oscine.families.audio8.slots import Audio8Inputs
from oscine.families.audio8.steps import Audio8StepModel
from oscine.types import Job


def inputs_from_columns(columns: Tensor, config: LMConfig, sampling: Sampling) -> Audio8Inputs:
    """Inputs whose prompt is exactly these columns [C + 1, T]: text, at most one run of audio, text."""
    tokens = columns[0]
    audio = ((tokens >= config.semantic_begin_id) & (tokens <= config.semantic_end_id)).nonzero().flatten()
    start, end = (int(audio[0]), int(audio[-1]) + 1) if len(audio) else (len(tokens) - 1, len(tokens) - 1)
    prompt = PromptIds(before=tuple(tokens[:start].tolist()), after=tuple(tokens[end:].tolist()))
    codes = columns[1:, start:end] if len(audio) else None
    rebuilt = torch.cat([prefix_columns(prompt, codes, config), suffix_columns(prompt, config)], dim=1)
    assert torch.equal(rebuilt, columns), "the prompt is not text, one run of audio, text"
    reference = None if codes is None else codes.numpy()
    return Audio8Inputs(prompt=prompt, reference=reference, sampling=sampling, min_new_frames=0)


def job_of(inputs: Audio8Inputs, *, seed: int = 0, max_frames: int = 10_000, name: str = "job") -> Job:
    return Job(id=name, inputs=inputs, seed=seed, max_frames=max_frames, memory=0)


def sampling_of(case: dict[str, Any]) -> Sampling:
    return Sampling(do_sample=True, temperature=case["temperature"], top_k=case["top_k"], top_p=case["top_p"])


GREEDY = Sampling(do_sample=False, temperature=0.0, top_k=0, top_p=1.0)


def run(steps: Audio8StepModel, jobs: Sequence[Job]) -> dict[Job, str]:
    """Runs jobs together until all have ended, frames in `Job.frames`; why each ended. A failing job raises."""
    ended: dict[Job, str] = {}
    for job in jobs:
        steps.admit(job)
    while running := [job for job in jobs if job not in ended]:
        key = steps.batch_key(running[0])
        batch = [job for job in running if steps.batch_key(job) == key][: steps.max_batch(key)]
        for job, out in zip(batch, steps.step(batch), strict=True):
            if out.error is not None:
                raise out.error
            job.frames.extend(out.frames)
            finish = out.finish or ("length" if len(job.frames) >= job.max_frames else None)
            if finish is not None:
                ended[job] = finish
                steps.release(job)
    return ended


def codes_of(job: Job, config: LMConfig) -> Tensor:
    """The job's frames as int64 [C, frame]."""
    return torch.stack(job.frames, dim=1) if job.frames else torch.zeros(config.num_codebooks, 0, dtype=torch.long)
