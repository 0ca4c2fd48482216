"""One step gives each job one frame: the frequency of its next letter, a little off by the job's own noise."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

from oscine.seeds import derive_seed
from oscine.types import Job, StepOut
from oscine_tone.model import ToneModel


@dataclass(frozen=True)
class ToneInputs:
    """Letters as numbers 0 to 25, and the pitch they are spoken at in Hz."""

    letters: tuple[int, ...]
    pitch: float


@dataclass
class _Slot:
    generator: torch.Generator
    at: int = 0


class ToneStepModel:
    """Where each job is; a job's frames do not depend on the others."""

    def __init__(self, model: ToneModel) -> None:
        self._model = model
        self._slots: dict[str, _Slot] = {}

    def admit(self, job: Job) -> None:
        self._slots[job.id] = _Slot(torch.Generator().manual_seed(derive_seed(job.seed, job.attempt)))

    def batch_key(self, job: Job) -> Hashable:
        return "tone"

    def max_batch(self, key: Hashable) -> int:
        return 32

    def step(self, jobs: Sequence[Job]) -> Sequence[StepOut]:
        return [self._step(job.inputs, self._slots[job.id]) for job in jobs]

    def _step(self, inputs: ToneInputs, slot: _Slot) -> StepOut:
        off = 1 + 0.01 * float(torch.randn(1, generator=slot.generator))
        frequency = inputs.pitch * float(self._model.tones[inputs.letters[slot.at]]) * off
        slot.at += 1
        return StepOut(frames=[frequency], finish="stop" if slot.at == len(inputs.letters) else None)

    def snapshot(self, job: Job) -> object:
        return self._slots[job.id].at

    def restore(self, job: Job, snapshot: object, seed: int) -> None:
        assert isinstance(snapshot, int)
        self._slots[job.id] = _Slot(torch.Generator().manual_seed(seed), snapshot)

    def release(self, job: Job) -> None:
        del self._slots[job.id]
