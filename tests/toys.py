"""Two toy families for engine tests: an autoregressive one and a flow one, both small enough to check by eye."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from oscine.errors import OscineError
from oscine.seeds import derive_seed
from oscine.types import AudioInput, Capabilities, Decoder, Job, Plan, Request, Samples, StepOut, Voice

HOP = 4


class HoldDecoder(Decoder):
    """Each frame's first value becomes HOP samples, one frame late (it looks ahead by one frame)."""

    warm_up = 0

    def __init__(self) -> None:
        self._late: list[float] = []

    def push(self, frames: Sequence[Any]) -> Samples:
        self._late += [float(np.asarray(frame).flat[0]) / 100 for frame in frames]
        ready, self._late = self._late[:-1], self._late[-1:]
        return np.repeat(np.asarray(ready, np.float32), HOP)

    def flush(self) -> Samples:
        ready, self._late = self._late, []
        return np.repeat(np.asarray(ready, np.float32), HOP)


class ToyFamily:
    """What the engine needs of a family; subclasses bring the step model."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.capabilities = Capabilities(
            family="toy",
            model="toy",
            tasks=("speech",),
            languages=(),
            sample_rate=100,
            frame_rate=25.0,
            voice_cloning=False,
            streaming=True,
            licence="none",
            options={},
        )

    def prepare(self, request: Request, request_id: str) -> Plan:
        job = Job(id=request_id, inputs=None, seed=request.seed or 0, max_frames=8, memory=1)
        return Plan(jobs=(job,), seed=job.seed)

    def step_model(self) -> Any:
        return self._model

    def open_decoder(self, job: Job) -> HoldDecoder:
        return HoldDecoder()

    def text_of(self, job: Job) -> str:
        return ""

    def chunk_sizes(self) -> tuple[int, ...]:
        return (1, 3)

    def voices(self) -> Sequence[Voice]:
        return ()

    def encode_voice(self, name: str, audio: AudioInput, transcript: str) -> Voice:
        raise NotImplementedError(name)


@dataclass
class _ARState:
    generator: torch.Generator
    state: int
    prefilled: bool = False


class ToyAR:
    """A language model of one integer: the next code mixes the state with the job's own noise.

    `stop_code` ends it; `script` (codes by job id) replaces the model so that tests can stage loops and silence.
    """

    def __init__(self, stop_code: int = 7, script: dict[str, list[list[int]]] | None = None) -> None:
        self.stop_code = stop_code
        self.script = script or {}
        self.batches: list[tuple[Hashable, int]] = []
        self.slots: dict[str, _ARState] = {}
        self.fail_ids: set[str] = set()

    def admit(self, job: Job) -> None:
        assert job.id not in self.slots, "admitted twice"
        generator = torch.Generator().manual_seed(derive_seed(job.seed, job.attempt))
        self.slots[job.id] = _ARState(generator, job.seed % 97)

    def batch_key(self, job: Job) -> Hashable:
        return ("decode",) if self.slots[job.id].prefilled else ("prefill",)

    def max_batch(self, key: Hashable) -> int:
        return 1 if key == ("prefill",) else 15

    def step(self, jobs: Sequence[Job]) -> Sequence[StepOut]:
        self.batches.append((self.batch_key(jobs[0]), len(jobs)))
        if any(job.id in self.fail_ids for job in jobs):
            raise RuntimeError("the device is on fire")
        return [self._step(job) for job in jobs]

    def _step(self, job: Job) -> StepOut:
        slot = self.slots[job.id]
        if not slot.prefilled:
            slot.prefilled = True
            return StepOut()
        if job.id in self.script:
            attempts = self.script[job.id]
            codes = attempts[min(job.attempt, len(attempts) - 1)]
            code = codes[slot.state] if slot.state < len(codes) else self.stop_code
            slot.state += 1
        else:
            noise = int(torch.randint(0, 50, (1,), generator=slot.generator))
            slot.state = code = (slot.state * 31 + noise) % 50
        return StepOut(finish="stop") if code == self.stop_code else StepOut(frames=[np.array([code])])

    def snapshot(self, job: Job) -> object:
        return self.slots[job.id].state

    def restore(self, job: Job, snapshot: object, seed: int) -> None:
        self.slots[job.id] = _ARState(torch.Generator().manual_seed(seed), int(snapshot), True)  # type: ignore[call-overload]

    def release(self, job: Job) -> None:
        del self.slots[job.id]


@dataclass
class _FlowState:
    latents: torch.Tensor
    grid: list[float]
    index: int = 0


class ToyFlow:
    """Euler steps of dx/dt = target - x over the job's own time grid; jobs of one length share a batch."""

    def __init__(self) -> None:
        self.batches: list[tuple[Hashable, int]] = []
        self.slots: dict[str, _FlowState] = {}

    def admit(self, job: Job) -> None:
        if job.inputs["steps"] < 1:
            raise OscineError(f"steps must be at least 1, got {job.inputs['steps']}")
        generator = torch.Generator().manual_seed(derive_seed(job.seed, job.attempt))
        steps = job.inputs["steps"]
        grid = [i / steps for i in range(steps + 1)]
        self.slots[job.id] = _FlowState(torch.randn(job.max_frames, 2, generator=generator), grid)

    def batch_key(self, job: Job) -> Hashable:
        return ("flow", job.max_frames)

    def max_batch(self, key: Hashable) -> int:
        return 8

    def step(self, jobs: Sequence[Job]) -> Sequence[StepOut]:
        slots = [self.slots[job.id] for job in jobs]
        self.batches.append((self.batch_key(jobs[0]), len(jobs)))
        x = torch.stack([slot.latents for slot in slots])
        dt = torch.tensor([slot.grid[slot.index + 1] - slot.grid[slot.index] for slot in slots])
        target = torch.tensor([float(job.inputs["target"]) for job in jobs])
        x = x + dt[:, None, None] * (target[:, None, None] - x)
        outs = []
        for slot, latents in zip(slots, x.unbind(0), strict=True):
            slot.latents, slot.index = latents, slot.index + 1
            last = slot.index == len(slot.grid) - 1
            share = slot.index / (len(slot.grid) - 1)
            outs.append(StepOut(frames=list(latents.numpy()), finish="stop") if last else StepOut(progress=share))
        return outs

    def snapshot(self, job: Job) -> object:
        return None

    def restore(self, job: Job, snapshot: object, seed: int) -> None:
        raise AssertionError("a flow job is never rewound")

    def release(self, job: Job) -> None:
        del self.slots[job.id]
