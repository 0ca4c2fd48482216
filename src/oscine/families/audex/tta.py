"""Text to audio: the token space of the audio codec and the mask that keeps generation on its four-codebook grid.

The names are the published ones of the text-to-audio module (AUDEX spec, 7.1 to 7.3). A frame is four tokens, one of
each codebook; "phase" is a token's place in its frame.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from oscine.families.audex.batch_rows import ProcessorBase, extra_args_of, update_rows

__all__ = [
    "AUDEX_AUDIOCODEC_TOKEN_OFFSET",
    "AUDEX_AUDIOCODEC_VOCAB_SIZE",
    "AUDEX_AUDIOGEN_END_TOKEN_ID",
    "AUDEX_AUDIOGEN_START_TOKEN_ID",
    "NEG_INF",
    "XCODEC1_CODEBOOK_SIZE",
    "XCODEC1_NUM_CODEBOOKS",
    "PhaseTable",
    "TTARVQPhaseMaskLogitsProcessor",
    "build_tta_phase_token_ids",
    "logger",
    "validate_rvq_phase",
]

logger = logging.getLogger(__name__)

AUDEX_AUDIOCODEC_TOKEN_OFFSET = 196613
"""Id of `<audiocodec_0>` in the released tokenizer."""
AUDEX_AUDIOCODEC_VOCAB_SIZE = 8192
AUDEX_AUDIOGEN_START_TOKEN_ID = 131073
AUDEX_AUDIOGEN_END_TOKEN_ID = 131074
XCODEC1_NUM_CODEBOOKS = 4
XCODEC1_CODEBOOK_SIZE = 1024
NEG_INF = float("-inf")

EXAMPLES_SHOWN = 5
END_ONLY = 5
"""Row of the mask table that allows the end token alone; row 0 is phase 0 at the very start, 1 to 4 are the phases,
with the end token allowed in phase 0."""


class HasVocab(Protocol):
    """A tokenizer, as far as `build_tta_phase_token_ids` needs one."""

    def get_vocab(self) -> dict[str, int]:
        """Token → id."""


def build_tta_phase_token_ids(tokenizer: HasVocab) -> tuple[list[list[int]], int, int]:
    """(four lists of 1024 token ids, one a phase; start id; end id), read from the vocabulary.

    Raises ValueError when a marker or a codec token below 4096 is missing (AUDEX spec, 7.1).
    """
    vocab = tokenizer.get_vocab()
    start, end = vocab.get("<audiogen_start>"), vocab.get("<audiogen_end>")
    if start is None or end is None:
        raise ValueError(f"Missing marker token ids: audiogen_start={start}, audiogen_end={end}")
    phases = []
    for phase in range(XCODEC1_NUM_CODEBOOKS):
        codes = range(phase * XCODEC1_CODEBOOK_SIZE, (phase + 1) * XCODEC1_CODEBOOK_SIZE)
        missing = [code for code in codes if f"<audiocodec_{code}>" not in vocab]
        if missing:
            raise ValueError(
                f"Incomplete codec vocab for RVQ phase {phase}: missing {len(missing)} codec ids "
                f"(e.g. {missing[:EXAMPLES_SHOWN]})"
            )
        phases.append([int(vocab[f"<audiocodec_{code}>"]) for code in codes])
    return phases, int(start), int(end)


def validate_rvq_phase(
    codec_ids: Iterable[int],
    codebook_size: int = XCODEC1_CODEBOOK_SIZE,
    num_codebooks: int = XCODEC1_NUM_CODEBOOKS,
) -> dict[str, Any]:
    """Whether each codec id lies in the codebook of its place; `first_mismatch` is [place, id, its phase, expected].

    The number of ids need not be a multiple of `num_codebooks`; no ids are valid (AUDEX spec, 7.2).
    """
    ids = [int(code) for code in codec_ids]
    wrong = [
        [place, code, code // codebook_size, place % num_codebooks]
        for place, code in enumerate(ids)
        if code // codebook_size != place % num_codebooks
    ]
    return {
        "phase_valid": not wrong,
        "mismatch_count": len(wrong),
        "first_mismatch": wrong[0] if wrong else None,
        "codec_count": len(ids),
    }


class PhaseTable:
    """The shared masks: `forbidden` bool [6, vocab], one row for each state a text-to-audio sequence can be in."""

    def __init__(
        self, phase_token_ids: Sequence[Sequence[int]] | None, end_tid: int | None, width: int, device: Any
    ) -> None:
        """Raises RuntimeError unless there are four lists, none empty, with all ids in 0..width-1."""
        if phase_token_ids is None or end_tid is None or len(phase_token_ids) != XCODEC1_NUM_CODEBOOKS:
            found = None if phase_token_ids is None else len(phase_token_ids)
            raise RuntimeError(f"need {XCODEC1_NUM_CODEBOOKS} phase id lists and an end id, got {found} and {end_tid}")
        for phase, ids in enumerate(phase_token_ids):
            if not ids:
                raise RuntimeError(f"the id list of phase {phase} is empty")
            _check_range(f"phase {phase} token ids", ids, width)
        _check_range("end token id", [end_tid], width)
        forbidden = torch.ones(END_ONLY + 1, width, dtype=torch.bool)
        forbidden[0, list(phase_token_ids[0])] = False
        for phase, ids in enumerate(phase_token_ids):
            forbidden[1 + phase, list(ids)] = False
        forbidden[[1, END_ONLY], end_tid] = False
        self.forbidden = forbidden.to(device)

    @staticmethod
    def row(position: int, codec_cap: int | None) -> int:
        """The table row for a sequence that has `position` tokens after its start marker."""
        if codec_cap is not None and position >= codec_cap:
            return END_ONLY
        return 0 if position == 0 else 1 + position % XCODEC1_NUM_CODEBOOKS

    def mask(self, logits: Tensor, rows: Sequence[int], states: Sequence[int]) -> None:
        """Sets to -inf, in place, what `states` (table rows) forbid in `rows` of logits [row, vocab]; one fill."""
        if list(rows) == list(range(len(logits))):
            logits.masked_fill_(self.forbidden[_indices(states, logits.device)], NEG_INF)
            return
        chosen = _indices(rows, logits.device)
        masks = self.forbidden[_indices(states, logits.device)]
        logits.index_copy_(0, chosen, logits.index_select(0, chosen).masked_fill_(masks, NEG_INF))


@dataclass(kw_only=True)
class _TTARow:
    """One text-to-audio request: `output_ids` is the engine's live list, `start` the place of the start marker."""

    output_ids: Sequence[int]
    start_tid: int
    codec_cap: int | None
    start: int | None

    def position(self) -> int | None:
        """Tokens after the start marker; None while there is none."""
        if self.start is None:
            if self.start_tid not in self.output_ids:
                return None
            self.start = self.output_ids.index(self.start_tid)
        return len(self.output_ids) - self.start - 1


class TTARVQPhaseMaskLogitsProcessor(ProcessorBase):
    """A vLLM v1 logits processor that allows each text-to-audio row only what its phase allows (AUDEX spec, 7.3).

    A request opts in with `extra_args["tta_rvq"]`. The first one ever added fixes the id lists and the end id.
    """

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self.device = device
        self._rows: dict[int, _TTARow] = {}
        self._phase_token_ids: Sequence[Sequence[int]] | None = None
        self._end_tid: int | None = None
        self._table: PhaseTable | None = None

    def is_argmax_invariant(self) -> bool:
        """False: the mask changes which token is the likeliest."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follows the batch: which rows are text-to-audio requests, and in what order."""
        if batch_update is not None:
            update_rows(self._rows, batch_update, self._row_of)

    def apply(self, logits: Tensor) -> Tensor:
        """Masks logits [row, vocab] in place and returns them; rows beyond them are skipped.

        Raises RuntimeError if the id lists do not fit the vocabulary; a later call tries again.
        """
        rows, states = [], []
        for index, row in self._rows.items():
            position = row.position() if index < len(logits) else None
            if position is not None:
                rows.append(index)
                states.append(PhaseTable.row(position, row.codec_cap))
        if self._rows and (self._table is None or self._table.forbidden.shape[1] != logits.shape[-1]):
            self._table = PhaseTable(self._phase_token_ids, self._end_tid, logits.shape[-1], self.device)
            logger.debug("built text-to-audio masks for a vocabulary of %d", logits.shape[-1])
        if rows and self._table is not None:
            self._table.mask(logits, rows, states)
        return logits

    def _row_of(self, params: Any, output_ids: Sequence[int]) -> _TTARow | None:
        settings = extra_args_of(params).get("tta_rvq")
        if not settings:
            return None
        if self._phase_token_ids is None:
            self._phase_token_ids, self._end_tid = settings.get("phase_token_ids"), settings.get("end_tid")
        return _TTARow(
            output_ids=output_ids,
            start_tid=settings["start_tid"],
            codec_cap=settings.get("codec_cap"),
            start=-1 if settings.get("start_in_prompt") else None,
        )


def _indices(values: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int64).to(device, non_blocking=True)


def _check_range(what: str, ids: Sequence[int], width: int) -> None:
    if min(ids) < 0 or max(ids) >= width:
        raise RuntimeError(f"{what} out of range: {min(ids)}..{max(ids)} for logits {width} wide")
