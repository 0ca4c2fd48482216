"""The step model of Audio8: jobs in rows of one slow cache, one frame a step (AUDIO8 spec, section 6).

A job goes through up to three phases, which are its batch keys: `encode` (its reference audio becomes codes),
`prefill` (its prompt, and the first frame) and `decode` (one frame a step, batched). Every call keeps to an
`ExactRule`, so what a job gets does not depend on who else is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oscine.errors import (
    BadAudio,
    GenerationError,
    InputTooLong,
    InvalidRequest,
    NonFiniteOutput,
    UnsupportedFeature,
)
from oscine.families.audio8.backends.protocol import Backend, noise_size
from oscine.families.audio8.codec.codec import Codec
from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model.cache import cache_shape
from oscine.families.audio8.prompt import prefix_columns, suffix_columns
from oscine.families.audio8.slots import Audio8Inputs, Slot, SlotTable, Snapshot, Span
from oscine.runtime.cache import Exported
from oscine.runtime.exact import ExactRule
from oscine.runtime.store import RecentStore, content_key
from oscine.runtime.undo import own_outcome, undo_on_error
from oscine.seeds import derive_seed
from oscine.types import AudioInput, Job, StepOut

MAX_DECODE_BATCH = 256
PREFIX_STORE_BYTES = 128 * 2**20
CODES_STORE_BYTES = 8 * 2**20


def job_bytes(config: LMConfig, dtype: torch.dtype, rule: ExactRule, prompt_columns: int) -> int:
    """Bytes to reserve for a job: its row of the cache, its noise, and frames to the end of the context.

    All rows are as wide as the widest job needs, so a row counts in full, however short its own job is.
    """
    row = cache_shape(config, dtype).row_bytes(rule.width.round(config.max_seq_len))
    frames = max(0, config.max_seq_len - prompt_columns)
    return row + 4 * noise_size(config) + 8 * config.num_codebooks * frames


class Audio8StepModel:
    """Implements `oscine.types.StepModel` for one language model and the codec that encodes its references.

    `codec` None: codes of references can be given, audio cannot. `rule` None: the backend's own.
    """

    def __init__(
        self,
        backend: Backend,
        codec: Codec | None = None,
        *,
        rule: ExactRule | None = None,
        prefix_store_bytes: int = PREFIX_STORE_BYTES,
    ) -> None:
        self.backend = backend
        self.model = backend.model
        self.codec = codec
        self.rule = rule or backend.rule
        self._table = SlotTable(backend.model)
        self._slots: dict[Job, Slot] = {}
        self._prefixes: RecentStore[Exported] = RecentStore(prefix_store_bytes, _exported_bytes)
        self._codes: RecentStore[Tensor] = RecentStore(CODES_STORE_BYTES, _tensor_bytes)

    @torch.inference_mode()
    def encode_reference(self, audio: AudioInput) -> Tensor:
        """Codes int64 [C, frame] of mono audio at the codec's rate; those of audio heard before are kept.

        Raises UnsupportedFeature without a codec, BadAudio for audio that is empty, not finite or at another rate.
        """
        if self.codec is None:
            raise UnsupportedFeature("this model takes no reference audio", param="ref_audio")
        key = content_key(audio.samples, audio.sample_rate)
        codes = self._codes.get(key)
        if codes is None:
            _check_audio(audio, self.codec.config.sample_rate)
            weight = next(self.codec.parameters())
            samples = torch.from_numpy(np.ascontiguousarray(audio.samples)).to(weight.device, weight.dtype)
            codes = self.codec.encode(samples[None, None])[0][0].cpu()
            self._codes.put(key, codes)
        return codes

    @torch.inference_mode()
    def admit(self, job: Job) -> None:
        """Takes the job in. Raises InputTooLong, InvalidRequest or UnsupportedFeature if it cannot be served."""
        inputs = job.inputs
        if not isinstance(inputs, Audio8Inputs):
            raise GenerationError(f"job {job.id} was made for another family: {type(inputs).__name__}")
        generator = torch.Generator().manual_seed(derive_seed(job.seed, job.attempt))
        slot = Slot(job=job, inputs=inputs, phase="prefill", generator=generator)
        if job.after is None and isinstance(inputs.reference, AudioInput):
            if self.codec is None:
                raise UnsupportedFeature("this model takes no reference audio", param="ref_audio")
            slot.codes = self._codes.get(content_key(inputs.reference.samples, inputs.reference.sample_rate))
            slot.phase = "encode" if slot.codes is None else "prefill"
        elif job.after is None and inputs.reference is not None:
            slot.codes = self._checked_codes(inputs.reference)
        self._check_length(slot)
        self._slots[job] = slot

    def batch_key(self, job: Job) -> Hashable:
        """The job's phase."""
        return (self._slots[job].phase,)

    def max_batch(self, key: Hashable) -> int:
        """Many for decoding, one for what is done job by job."""
        return MAX_DECODE_BATCH if key == ("decode",) else 1

    @torch.inference_mode()
    def step(self, jobs: Sequence[Job]) -> Sequence[StepOut]:
        """One step of jobs of one phase."""
        slots = [self._slots[job] for job in jobs]
        if slots[0].phase == "decode":
            return self._decode(slots)
        alone = self._encode if slots[0].phase == "encode" else self._prefill
        return [own_outcome(partial(alone, slot)) for slot in slots]

    @torch.inference_mode()
    def snapshot(self, job: Job) -> object:
        """A restart point after the job's last step; None stands for the start of its prompt."""
        slot = self._slots[job]
        return None if slot.row is None else self._table.snapshot([slot])

    @torch.inference_mode()
    def restore(self, job: Job, snapshot: object, seed: int) -> None:
        """Puts the job back to a snapshot of its own, with a fresh random stream."""
        slot = self._slots[job]
        slot.generator.manual_seed(seed)
        slot.noise_at = None
        if isinstance(snapshot, Snapshot) and slot.row is not None:
            self._table.restore([slot], snapshot)
        else:
            self._table.remove(slot)
            slot.emitted = 0
            slot.phase = "encode" if slot.phase == "encode" else "prefill"

    @torch.inference_mode()
    def release(self, job: Job) -> None:
        """Frees the job's row; nothing happens for a job that was not admitted."""
        slot = self._slots.pop(job, None)
        if slot is not None:
            self._table.remove(slot)

    # One job

    def _encode(self, slot: Slot) -> StepOut:
        audio = slot.inputs.reference
        assert isinstance(audio, AudioInput)
        slot.codes = self.encode_reference(audio)
        slot.phase = "prefill"
        return StepOut()

    def _prefill(self, slot: Slot) -> StepOut:
        """Runs the prompt, always as prefix and suffix, so that a kept prefix gives the same bits as a fresh one."""
        config, row = self.model.config, len(self._table.active)
        if slot.job.after is not None:
            slot.codes = _frames_of(slot.job.after)
        self._check_length(slot)
        prefix = prefix_columns(slot.inputs.prompt, slot.codes, config)
        suffix = suffix_columns(slot.inputs.prompt, config)
        start, total = prefix.shape[1], prefix.shape[1] + suffix.shape[1]
        end, padded = min(total + slot.job.max_frames, config.max_seq_len), self.rule.rows.padded(1)
        self._table.ensure(row + padded, self.rule.width.round(end))
        self._load_prefix(prefix, row, keep=slot.job.after is None)
        final, fast_hidden = self._run_prompt(suffix, start, row)
        self._table.add(slot, total)
        return self._emit([slot], row, final.expand(padded, -1), fast_hidden.expand(padded, -1))[0]

    def _load_prefix(self, prefix: Tensor, row: int, *, keep: bool) -> None:
        """Brings a row to the state after the prefix: a kept one, or by running it."""
        cache = self._table.cache
        key = hashlib.sha256(prefix.numpy().tobytes()).digest()
        stored = self._prefixes.get(key)
        if stored is not None:
            cache.load(row, stored)
            return
        cache.begin(row)
        self._run_prompt(prefix, 0, row)
        if keep:
            self._prefixes.put(key, cache.export(row, prefix.shape[1]))

    def _run_prompt(self, columns: Tensor, start: int, row: int) -> tuple[Tensor, Tensor]:
        """Runs columns [C + 1, column] of one job from position `start`; as `Backend.advance`, for one row."""
        device, end = self.model.device, start + columns.shape[1]
        positions = torch.arange(start, end, device=device)[None]
        width = self.rule.width.round(end)
        return self.backend.advance(columns[None].to(device), positions, self._table.cache, slice(row, row + 1), width)

    # The batch

    def _decode(self, slots: Sequence[Slot]) -> list[StepOut]:
        """One frame for each slot, in calls of the sizes the rule allows; if one fails no slot has moved."""
        first = self._table.move_to_tail(slots)
        ordered = self._table.active[first:]
        outs: list[StepOut] = []
        with undo_on_error([Span(self._table, ordered)]):
            for size in self.rule.rows.sizes(len(slots)):
                part, start = ordered[len(outs) : len(outs) + size], first + len(outs)
                outs += self._emit(part, start, *self._advance(part, slice(start, start + size)))
        results = {id(slot): out for slot, out in zip(ordered, outs, strict=True)}
        return [results[id(slot)] for slot in slots]

    def _advance(self, slots: Sequence[Slot], rows: slice) -> tuple[Tensor, Tensor]:
        """Feeds the pending columns of the slots in the first of `rows`; the others are padding and come along."""
        table = self._table
        width = self.rule.width.round(1 + max(slot.position for slot in slots))
        table.ensure(rows.stop, width)
        columns, positions = table.rows["columns"][rows], table.rows["positions"][rows]
        hidden = self.backend.advance(columns[:, :, None], positions[:, None], table.cache, rows, width)
        positions[: len(slots)] += 1
        for slot in slots:
            slot.position += 1
        return hidden

    def _emit(self, slots: Sequence[Slot], first: int, final: Tensor, fast_hidden: Tensor) -> list[StepOut]:
        """Draws a frame for the slots in the rows from `first` on; final and fast_hidden hold padding behind them."""
        table, rows = self._table, slice(first, first + final.shape[0])
        drawing = [slot for slot in slots if slot.inputs.sampling.do_sample]
        table.draw_noise(drawing, rows)
        best = [slot.inputs.sampling.top_k for slot in drawing]
        sampling = table.rows.sampling(
            rows,
            end_allowed=self._end_allowed(slots, rows),
            best=max(best) if best and min(best) > 0 else None,
            greedy=not drawing,
        )
        drawn = self.backend.draw(final, fast_hidden, sampling, self.rule.rows.pair_sizes(final.shape[0]))
        host = drawn.cpu()
        table.push(slots, drawn[: len(slots), 2:])
        heads = host[:, :2].tolist()
        return [self._settle(slot, *heads[index], codes=host[index, 2:]) for index, slot in enumerate(slots)]

    def _end_allowed(self, slots: Sequence[Slot], rows: slice) -> Tensor | None:
        """Which rows may draw end of speech, bool [row]; None when all may."""
        allowed = [slot.emitted >= slot.inputs.min_new_frames for slot in slots]
        if all(allowed):
            return None
        padding = [True] * (rows.stop - rows.start - len(slots))
        return torch.tensor([*allowed, *padding], device=self.model.device)

    def _settle(self, slot: Slot, finite: int, semantic: int, *, codes: Tensor) -> StepOut:
        """One job's result from its line of `Backend.draw`."""
        config = self.model.config
        if not finite:
            slot.failed = True
            return StepOut(error=NonFiniteOutput(f"the model's logits are not finite at frame {slot.emitted}"))
        if semantic == config.codebook_size:
            return StepOut(finish="stop")
        slot.emitted += 1
        full = slot.position + 1 >= config.max_seq_len
        return StepOut(frames=(codes.clone(),), finish="length" if full else None)

    # Checks

    def _check_length(self, slot: Slot) -> None:
        columns = slot.inputs.prompt.num_columns(0 if slot.codes is None else slot.codes.shape[1])
        limit = self.model.config.max_length_of_prompt
        if columns > limit:
            raise InputTooLong(
                f"text and reference take {columns} positions, at most {limit} fit; shorten the text or the reference"
            )

    def _checked_codes(self, codes: npt.NDArray[np.int64] | AudioInput) -> Tensor:
        """Reference codes as int64 [C, frame]. Raises InvalidRequest."""
        config = self.model.config
        array = np.asarray(codes)
        shaped = array.ndim == 2 and array.shape[0] == config.num_codebooks and array.shape[1] > 0
        if not shaped or array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= config.codebook_size:
            raise InvalidRequest(
                f"reference codes must be integers [{config.num_codebooks}, frames >= 1] below {config.codebook_size},"
                f" got {array.dtype} {list(array.shape)}",
                param="ref_codes",
            )
        return torch.from_numpy(array.astype(np.int64))


def _check_audio(audio: AudioInput, sample_rate: int) -> None:
    """Raises BadAudio unless the codec can take this in."""
    if audio.sample_rate != sample_rate:
        raise BadAudio(f"reference audio must be at {sample_rate} Hz here, got {audio.sample_rate}", param="ref_audio")
    if audio.samples.ndim != 1 or audio.samples.size == 0:
        raise BadAudio(f"reference audio must be mono and not empty, got {audio.samples.shape}", param="ref_audio")
    if not np.isfinite(audio.samples).all():
        raise BadAudio("reference audio holds values that are not finite", param="ref_audio")


def _frames_of(job: Job) -> Tensor:
    """The frames of a job that has ended, int64 [C, frame]."""
    if not job.frames:
        raise GenerationError(f"job {job.id} gave no frames to continue from")
    return torch.stack([torch.as_tensor(frame) for frame in job.frames], dim=1).long()


def _tensor_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _exported_bytes(stored: Exported) -> int:
    return sum(map(_tensor_bytes, stored.values()))
