"""The jobs in flight: what each is told, where it stands, and its row once it decodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oscine.families.audio8.model.cache import cache_shape
from oscine.families.audio8.model.dual_ar import DualAR
from oscine.families.audio8.prompt import PromptIds
from oscine.families.audio8.rows import STEPPED, DecodeRows, Sampling
from oscine.runtime.batch import RowBatch, rows_of
from oscine.runtime.cache import Exported, SequenceCache
from oscine.types import AudioInput, Job

Reference = npt.NDArray[np.int64] | AudioInput
"""What stands in for a voice: codes int64 [C, frame], or audio still to be encoded."""

Phase = Literal["encode", "prefill", "decode"]


@dataclass(frozen=True, kw_only=True)
class Audio8Inputs:
    """What the step model is told of one job.

    `reference` stands between `prompt.before` and `prompt.after` (None: nothing does). A job that continues another
    (`Job.after`) takes that one's frames instead, and its `prompt` was made with that one's text. End of speech is
    not drawn before `min_new_frames` frames (the reference implementation allows it at once: 0).
    """

    prompt: PromptIds
    reference: Reference | None = None
    sampling: Sampling = field(default_factory=Sampling)
    min_new_frames: int = 1


@dataclass(eq=False, kw_only=True)
class Slot:
    """A job in flight. `row` is None until it decodes; `position` is where its next column goes.

    `noise_at` is the position whose frame the noise in its row is for. `failed`: its row may hold what is not finite.
    """

    job: Job
    inputs: Audio8Inputs
    phase: Phase
    generator: torch.Generator
    codes: Tensor | None = None
    row: int | None = None
    position: int = 0
    emitted: int = 0
    failed: bool = False
    noise_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Where decoding slots in neighbouring rows stood. Keys are not in it: those beyond `positions` are never seen."""

    positions: Sequence[int]
    emitted: Sequence[int]
    rows: Mapping[str, Tensor]
    recurrent: Exported


class SlotTable(RowBatch[Slot]):
    """The decoding slots, with the part of the cache and the tensors that have their rows."""

    def __init__(self, model: DualAR) -> None:
        self.cache = SequenceCache(cache_shape(model.config, model.dtype), model.device)
        self.rows = DecodeRows(model.config, model.device)
        super().__init__(self.cache, self.rows)

    def ensure(self, rows: int, width: int) -> None:
        """Makes room for `rows` rows of `width` positions."""
        self.cache.ensure(rows, width)
        self.rows.ensure(rows)

    def add(self, slot: Slot, position: int) -> None:
        """Gives the slot the first free row, whose part of the cache its prompt has filled up to `position`."""
        slot.position, slot.emitted, slot.phase = position, 0, "decode"
        self.rows.start(self.append(slot), slot.inputs.sampling, position)

    def remove(self, slot: Slot) -> None:
        """Frees the slot's row, if it has one."""
        row = slot.row
        freed = self.pop(slot)
        if freed is None:
            return
        if slot.failed and freed == row:  # what is not finite would reach others through the padding
            self.cache.clear(freed)
        self.rows.clear(freed)

    def _swap(self, one: Slot, other: Slot) -> None:
        super()._swap(one, other)
        self.rows.clear(len(self.active))  # they changed places through it

    def draw_noise(self, slots: Sequence[Slot], rows: slice) -> None:
        """Fills in one frame's noise for slots among `rows` that do not have it yet."""
        drawing = [slot for slot in slots if slot.noise_at != slot.position]
        self.rows.draw_noise([(slot.row, slot.generator) for slot in drawing if slot.row is not None], rows)
        for slot in drawing:
            slot.noise_at = slot.position

    def push(self, slots: Sequence[Slot], codes: Tensor) -> None:
        """Makes frames of codes [slot, C] what slots in neighbouring rows feed next: their step is over."""
        self.rows.push(rows_of(slots), codes)

    def snapshot(self, slots: Sequence[Slot]) -> Snapshot:
        """What brings decoding slots in neighbouring rows back to this moment."""
        rows = rows_of(slots)
        return Snapshot(
            positions=[slot.position for slot in slots],
            emitted=[slot.emitted for slot in slots],
            rows=self.rows.snapshot(rows, STEPPED),
            recurrent=self.cache.states.snapshot(rows),
        )

    def restore(self, slots: Sequence[Slot], snapshot: Snapshot) -> None:
        """Brings slots, in neighbouring rows again, back to a snapshot; noise that was drawn since is kept."""
        rows = rows_of(slots)
        for slot, position, emitted in zip(slots, snapshot.positions, snapshot.emitted, strict=True):
            slot.position, slot.emitted = position, emitted
        self.rows.restore(rows, snapshot.rows)
        self.cache.states.restore(rows, snapshot.recurrent)


@dataclass(frozen=True)
class Span:
    """Slots in neighbouring rows that take part in one step."""

    table: SlotTable
    slots: Sequence[Slot]

    def snapshot(self) -> Snapshot | None:
        """Where they stand; a lone slot keeps nothing, since a job whose own step breaks is at its end."""
        return self.table.snapshot(self.slots) if len(self.slots) > 1 else None

    def restore(self, snapshot: Snapshot | None) -> None:
        """Back to where they stood."""
        for slot in self.slots:
            slot.failed = True
        if snapshot is not None:
            self.table.restore(self.slots, snapshot)
