"""What `oscine bench` measures of the family: steps of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from oscine.bench.measure import summary, times
from oscine.types import Job
from oscine_tone.model import ToneModel, read_model
from oscine_tone.steps import ToneInputs, ToneStepModel


@dataclass(frozen=True, kw_only=True)
class ToneWorkload:
    """`batch` jobs of `frames` letters, `repeats` times."""

    model: ToneModel
    batch: int
    frames: int
    repeats: int

    def run(self) -> dict[str, Any]:
        return {"frames": self.frames, "request_s": summary(times(self._requests, torch.device("cpu"), self.repeats))}

    def _requests(self) -> None:
        steps, inputs = ToneStepModel(self.model), ToneInputs(tuple(range(26)) * (1 + self.frames // 26), 220.0)
        jobs = [Job(id=str(n), inputs=inputs, seed=n, max_frames=self.frames, memory=0) for n in range(self.batch)]
        for job in jobs:
            steps.admit(job)
        for _ in range(self.frames):
            steps.step(jobs)


def from_random(name: str, *, device: torch.device, dtype: torch.dtype, **size: int) -> ToneWorkload:
    return ToneWorkload(model=ToneModel(), **size)


def from_folder(folder: Path, *, device: torch.device, dtype: torch.dtype, **size: int) -> ToneWorkload:
    return ToneWorkload(model=read_model(folder, device=device, dtype=dtype), **size)
