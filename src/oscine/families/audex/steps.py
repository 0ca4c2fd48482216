"""Steps Audex jobs: an audio clip or a prompt at a time, tokens of all jobs together.

A guided job is one job with two lanes: both get the same token, drawn from their blend. A job's tokens do not depend
on its neighbours: what is batched keeps to the measured shapes, the rest runs lane by lane.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor

from oscine.errors import NonFiniteOutput
from oscine.families.audex.jobs import DependentJob, LMJob, Output
from oscine.families.audex.model.heads import Head, head_of
from oscine.families.audex.phases import XCODEC1_NUM_CODEBOOKS, PhaseTable
from oscine.families.audex.sampling import blend, draw
from oscine.families.audex.weights.loading import AudexModel
from oscine.runtime.cache import Lane, LaneSnapshot
from oscine.runtime.exact import RowRule
from oscine.runtime.undo import own_outcome, undo_on_error
from oscine.seeds import derive_seed
from oscine.types import Job, StepOut

FIRST_ROOM = 256
"""New tokens there is room for before a lane first grows."""
MAX_JOBS = 64


@dataclass(kw_only=True)
class Slot:
    """What one job keeps: its lanes (the conditional one first), the tokens drawn, and audio heard so far."""

    job: LMJob
    lanes: list[Lane]
    generator: torch.Generator
    stops: frozenset[int]
    tokens: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    """Codec ids of a sound's frame that is not whole yet."""
    heard: list[Tensor] = field(default_factory=list)

    @property
    def clips_left(self) -> int:
        """Audio clips that have not been through the tower."""
        return (0 if self.job.mel is None else len(self.job.mel)) - len(self.heard)

    def snapshot(self) -> _Snapshot:
        """A point to come back to; keys stay in the lanes."""
        return _Snapshot(
            lanes=[lane.snapshot() for lane in self.lanes], num_tokens=len(self.tokens), codes=tuple(self.codes)
        )

    def restore(self, snapshot: _Snapshot) -> None:
        """Back to a snapshot; the random stream goes on."""
        for lane, point in zip(self.lanes, snapshot.lanes, strict=True):
            lane.restore(point)
        del self.tokens[snapshot.num_tokens :]
        self.codes = list(snapshot.codes)


@dataclass(frozen=True, kw_only=True)
class _Snapshot:
    lanes: Sequence[LaneSnapshot]
    num_tokens: int
    codes: Sequence[int]


class AudexStepModel:
    """The `StepModel` of the family; `rule` says in which shapes a row's result is its own.

    With `speech_only` a speech job's logits are computed for speech tokens and ends alone, a third of the vocabulary.
    That changes results only where the model would have left the block, which is not what it was measured with.
    """

    def __init__(self, model: AudexModel, rule: RowRule, *, speech_only: bool = False) -> None:
        self._model = model
        self._lm = model.lm
        self._rule = rule
        self._slots: dict[str, Slot] = {}
        self._device = model.speech_decoder.module.fc_post_a.weight.device
        self._heads = _heads(model, speech_only=speech_only)
        columns = {token: column for column, token in enumerate(self._heads["sound"].ids)}
        phases = [[columns[token] for token in ids] for ids in model.tokens.phases]
        self._phases = PhaseTable(phases, columns[model.tokens.audiogen_end], len(columns), self._device)

    @torch.inference_mode()
    def admit(self, job: Job) -> None:
        """Makes the job's lanes; a deferred job gets its prompt from the answer before it."""
        wanted = job.inputs
        if isinstance(wanted, DependentJob):
            wanted = wanted.make(cast(Job, job.after))
        room = len(wanted.prompt_ids) + min(FIRST_ROOM, wanted.max_new_tokens)
        self._slots[job.id] = Slot(
            job=wanted,
            lanes=[self._lm.new_lane(room, wanted.max_length) for _ in range(wanted.num_lanes)],
            generator=torch.Generator().manual_seed(derive_seed(job.seed, job.attempt)),
            stops=self._stops(wanted),
        )

    def batch_key(self, job: Job) -> Hashable:
        """`listen` for a clip of audio, `prefill` for a prompt, `decode` for a token."""
        slot = self._slots[job.id]
        if slot.tokens:
            return "decode"
        return "listen" if slot.clips_left else "prefill"

    def max_batch(self, key: Hashable) -> int:
        """Clips and prompts go one at a time."""
        return MAX_JOBS if key == "decode" else 1

    @torch.inference_mode()
    def step(self, jobs: Sequence[Job]) -> Sequence[StepOut]:
        """One clip, one prompt and its first token, or one token of each job."""
        key = self.batch_key(jobs[0])
        slots = [self._slots[job.id] for job in jobs]
        if key == "listen":
            return [self._listen(slots[0])]
        if key == "prefill":
            return [self._advance(slots[0], self._prefill(slots[0])[0])]
        with undo_on_error(slots):
            logits = self._decode(slots)
        return [own_outcome(partial(self._advance, slot, rows)) for slot, rows in zip(slots, logits, strict=True)]

    def snapshot(self, job: Job) -> object:
        """Lengths and states of the job's lanes, and how many tokens it has."""
        return self._slots[job.id].snapshot()

    def restore(self, job: Job, snapshot: object, seed: int) -> None:
        """Back to where the snapshot was taken, with a fresh random stream."""
        slot = self._slots[job.id]
        slot.restore(cast(_Snapshot, snapshot))
        slot.generator = torch.Generator().manual_seed(seed)

    def release(self, job: Job) -> None:
        """Drops the job's lanes."""
        self._slots.pop(job.id, None)

    def head_bytes(self, output: Output) -> int:
        """Weights that the head of an output reads each step."""
        return self._heads[output].num_bytes

    def _stops(self, job: LMJob) -> frozenset[int]:
        tokens = self._model.tokens
        ends = {"speech": (tokens.speechgen_end,), "sound": (tokens.audiogen_end,), "text": ()}
        return frozenset((*tokens.eos, *ends[job.output]))

    def _listen(self, slot: Slot) -> StepOut:
        mel, tower = cast(Tensor, slot.job.mel), self._model.tower
        assert tower is not None, "the family offers listening only with an audio tower"
        clip = mel[len(slot.heard)][None].to(self._device)
        slot.heard.append(tower(clip)[0])
        return StepOut()

    def _prefill(self, slot: Slot) -> list[Tensor]:
        """Takes in the job's prompts, each by itself → logits of its lanes for the first token, as `_decode`."""
        prompts = [slot.job.prompt_ids, *([slot.job.null_ids] if slot.job.null_ids is not None else [])]
        rows = []
        for lane, ids in zip(slot.lanes, prompts, strict=True):
            tensor = torch.tensor(list(ids), device=self._device)
            embeddings = self._lm.embed(tensor)
            if slot.heard:
                embeddings = embeddings.masked_scatter(
                    (tensor == self._model.tokens.sound)[:, None], torch.cat(slot.heard).to(embeddings.dtype)
                )
            rows.append(self._heads[slot.job.output](self._lm.prefill(embeddings, lane)[-1:]))
        slot.heard.clear()
        return [torch.cat(rows)]

    def _decode(self, slots: Sequence[Slot]) -> list[Tensor]:
        """Takes in every job's last token → each job's logits [lane, column of its head] for the next."""
        lanes = [lane for slot in slots for lane in slot.lanes]
        ids = [slot.tokens[-1] for slot in slots for _ in slot.lanes]
        outputs = [slot.job.output for slot in slots for _ in slot.lanes]
        rows: list[Tensor] = []
        start = 0
        for size in self._rule.sizes(len(lanes)):
            part = slice(start, start + size)
            taken = ids[part]
            tensor = torch.tensor(taken + taken[-1:] * (size - len(taken)), device=self._device)
            rows += self._logits(self._lm.decode(tensor, lanes[part]), outputs[part])
            start += size
        counts = [len(slot.lanes) for slot in slots]
        ends = list(accumulate(counts))
        return [torch.stack(rows[end - count : end]) for count, end in zip(counts, ends, strict=True)]

    def _logits(self, hidden: Tensor, outputs: Sequence[Output]) -> list[Tensor]:
        """Logits of each row by the head of its output; rows beyond `outputs` are padding.

        Each head works on as many rows as the call has, whatever the neighbours' tasks: the row count decides the bits.
        """
        rows: list[Tensor] = [hidden] * len(outputs)
        for output in dict.fromkeys(outputs):
            places = [place for place, other in enumerate(outputs) if other == output]
            taken = hidden
            if len(places) < len(outputs):
                taken = torch.cat([hidden[places], hidden.new_zeros(len(hidden) - len(places), hidden.shape[1])])
            for place, row in zip(places, self._heads[output](taken), strict=False):
                rows[place] = row
        return rows

    def _advance(self, slot: Slot, logits: Tensor) -> StepOut:
        """Draws the job's next token from logits [lane, column] and says what came of it."""
        chosen = blend(logits[0], logits[1], slot.job.cfg_scale) if len(logits) == 2 else logits[0]
        if slot.job.output == "sound":
            masked = chosen[None].clone()
            self._phases.mask(masked, [0], [PhaseTable.row(len(slot.tokens), slot.job.codec_cap)])
            chosen = masked[0]
        if not torch.isfinite(chosen.amax()):  # NaN wins every maximum; -inf means that nothing may be drawn
            return StepOut(error=NonFiniteOutput("the logits are NaN or infinite; try dtype='float32'"))
        token = self._heads[slot.job.output].ids[draw(chosen, slot.job.sampling, slot.generator)]
        slot.tokens.append(token)
        stopped = token in slot.stops
        frames = self._frames(slot, token, stopped)
        if stopped:
            return StepOut(frames=frames, finish="stop")
        return StepOut(frames=frames, finish="length" if len(slot.tokens) >= slot.job.max_new_tokens else None)

    def _frames(self, slot: Slot, token: int, stopped: bool) -> Sequence[Any]:
        """Frames that the token completes. A text's stop token is one, so that even an empty answer is an answer."""
        tokens = self._model.tokens
        if slot.job.output == "text":
            return [token]
        if slot.job.output == "speech":
            return tokens.speech.codes([token])
        slot.codes += tokens.audio.codes([token])
        if len(slot.codes) < XCODEC1_NUM_CODEBOOKS or stopped:
            return []
        frame, slot.codes = slot.codes, []
        return [frame]


def _heads(model: AudexModel, *, speech_only: bool) -> dict[Output, Head]:
    """The head of each output. A sound's mask forbids all but codec tokens and its end: the rest is not computed."""
    weight, tokens = model.lm.head_weight, model.tokens
    whole = head_of(weight, range(len(weight)))
    block = range(tokens.speech.offset, tokens.speech.offset + tokens.speech.size)
    speech = head_of(weight, (*block, tokens.speechgen_end, *tokens.eos)) if speech_only else whole
    sound = head_of(weight, (*(token for ids in tokens.phases for token in ids), tokens.audiogen_end))
    return {"speech": speech, "sound": sound, "text": whole}
