"""Text to audio under vLLM: the processor that keeps generation on the codec's four-codebook grid.

The names are the published ones of the text-to-audio module (AUDEX spec, 7.1 to 7.3).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from oscine.compat.vllm_rows import ProcessorBase, extra_args_of, update_rows
from oscine.families.audex.phases import (
    AUDEX_AUDIOCODEC_TOKEN_OFFSET,
    AUDEX_AUDIOCODEC_VOCAB_SIZE,
    AUDEX_AUDIOGEN_END_TOKEN_ID,
    AUDEX_AUDIOGEN_START_TOKEN_ID,
    NEG_INF,
    XCODEC1_CODEBOOK_SIZE,
    XCODEC1_NUM_CODEBOOKS,
    PhaseTable,
    build_tta_phase_token_ids,
    validate_rvq_phase,
)

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
            if position is not None and position >= 0:  # else the list is shorter than it was, for the engine's reasons
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
