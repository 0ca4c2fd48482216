"""AuK under the engine's scheduler: one step conditions a request, every other is one Euler evaluation.

Requests of any length, text, reference, guidance and time grid share an evaluation, packed end to end; what a request
gets does not depend on the others (`layouts.Packed`). Compiled, each is evaluated by itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from oscine.errors import GenerationError
from oscine.families.auk.codec.vae import AuKVAE
from oscine.families.auk.model.conditioner import Conditioner
from oscine.families.auk.model.layouts import AuKStepContext
from oscine.families.auk.sampler import GUIDANCE_FLOOR, Transformer, check_finite, draw_noise, guided
from oscine.families.auk.weights.offload import TransformerHolder
from oscine.runtime.store import RecentStore, content_key
from oscine.runtime.undo import own_outcome
from oscine.seeds import derive_seed
from oscine.types import Job, Samples, StepOut

CONDITION, FLOW = ("auk", "condition"), ("auk", "flow")
MAX_BATCH = 8
REFERENCE_CACHE, TABLE_CACHE = 16, 2


@dataclass(frozen=True, kw_only=True)
class AuKInputs:
    """What one generation needs. `clip` is mono at the VAE's rate, whole frames; `clip_16k` the same at 16 kHz.

    `grid` holds the times from 0 to 1; `guidance` 0 evaluates the conditioned branch alone.
    """

    instruction: str
    clip: Samples | None
    clip_16k: Samples | None
    frames: int
    grid: tuple[float, ...]
    guidance: float

    @property
    def branches(self) -> int:
        """Lanes of the request in a batch."""
        return 2 if self.guidance >= GUIDANCE_FLOOR else 1


@dataclass(kw_only=True)
class _Slot:
    """A conditioned request on its way; `context`, with its modulation table, comes with its first evaluation."""

    condition: Tensor
    reference: Tensor | None
    x: Tensor
    index: int = 0
    context: AuKStepContext | None = None


class AuKStepModel:
    """Holds the requests in flight; called from the engine's thread only."""

    def __init__(
        self,
        holder: TransformerHolder,
        vae: AuKVAE,
        conditioner: Conditioner,
        *,
        reference_cache: int = REFERENCE_CACHE,
    ) -> None:
        self._holder, self._vae, self._conditioner = holder, vae, conditioner
        self._device = vae.global_mean.device
        self._slots: dict[str, _Slot | None] = {}
        self._references: RecentStore[Tensor] = RecentStore(reference_cache)
        self._tables: RecentStore[Tensor] = RecentStore(TABLE_CACHE)

    def admit(self, job: Job) -> None:
        """Takes the job in; its device work begins with its first step."""
        if job.id in self._slots:
            raise GenerationError(f"job {job.id} is in flight already")
        self._slots[job.id] = None

    def batch_key(self, job: Job) -> Hashable:
        """Conditioning, or the flow: every conditioned request may share an evaluation with every other."""
        return CONDITION if self._slots[job.id] is None else FLOW

    def max_batch(self, key: Hashable) -> int:
        """One request is conditioned at a time."""
        return 1 if key == CONDITION else MAX_BATCH

    @torch.inference_mode()
    def step(self, jobs: Sequence[Job]) -> Sequence[StepOut]:
        """Conditions one job, or advances every job by one evaluation; the last one gives all its frames."""
        slots = [slot for job in jobs if (slot := self._slots[job.id]) is not None]
        if not slots:
            for job in jobs:
                self._slots[job.id] = self._begin(job)
            return [StepOut()] * len(jobs)
        dit = self._holder.get()
        contexts = [self._prepared(dit, job.inputs, slot) for job, slot in zip(jobs, slots, strict=True)]
        velocities = dit.velocities([slot.x for slot in slots], contexts, [slot.index for slot in slots])
        return [own_outcome(partial(self._advance, *item)) for item in zip(jobs, slots, velocities, strict=True)]

    def snapshot(self, job: Job) -> object:
        """The job's latents and how far they are; None before it is conditioned."""
        slot = self._slots[job.id]
        return None if slot is None else (slot.x.clone(), slot.index)

    def restore(self, job: Job, snapshot: object, seed: int) -> None:
        """Starts the job again from fresh noise: a flow has no point in between from which it could go differently."""
        slot = self._slots[job.id]
        if slot is not None:
            slot.x, slot.index = self._noise(job, seed), 0

    def release(self, job: Job) -> None:
        """Frees the job's state."""
        del self._slots[job.id]

    def _begin(self, job: Job) -> _Slot:
        inputs: AuKInputs = job.inputs
        condition = self._conditioner.condition(inputs.instruction, inputs.clip_16k)
        reference = self._reference(inputs.clip)
        check_finite(condition, "conditions")  # here, where it fails this job alone
        if reference is not None:
            check_finite(reference, "latents of the clip")
        noise = self._noise(job, derive_seed(job.seed, job.attempt))
        return _Slot(condition=condition, reference=reference, x=noise)

    def _prepared(self, dit: Transformer, inputs: AuKInputs, slot: _Slot) -> AuKStepContext:
        """The request's context, made once; requests of one grid share its modulation table."""
        if slot.context is None:
            context = dit.prepare(
                slot.condition.to(self._device, dit.proj_out.weight.dtype),
                target_len=inputs.frames,
                ref=slot.reference,
                cfg_infer=inputs.branches == 2,
            )
            times = torch.tensor(inputs.grid[:-1], device=self._device)
            table = self._tables.get_or_make(inputs.grid, lambda: dit.modulation_table(times))
            slot.context = replace(context, modulation=table)
        return slot.context

    def _reference(self, clip: Samples | None) -> Tensor | None:
        if clip is None:
            return None
        wav = torch.from_numpy(clip)[None].to(self._device)
        return self._references.get_or_make(content_key(clip), lambda: self._vae.encode(wav))

    def _noise(self, job: Job, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)  # on the CPU, so that a seed means the same on every device
        return draw_noise(job.inputs.frames, self._vae.config.latent_dim, generator).to(self._device)

    def _advance(self, job: Job, slot: _Slot, velocity: Tensor) -> StepOut:
        inputs: AuKInputs = job.inputs
        v = velocity.float()
        moved = guided(v[0], v[1], inputs.guidance) if inputs.branches == 2 else v[0]
        slot.x = slot.x + (inputs.grid[slot.index + 1] - inputs.grid[slot.index]) * moved
        slot.index += 1
        if slot.index < len(inputs.grid) - 1:
            return StepOut(progress=slot.index / (len(inputs.grid) - 1))
        check_finite(slot.x, "latents")
        return StepOut(frames=list(slot.x.unbind(0)), finish="stop")
