"""The grid of an audio token stream: a frame is four tokens, one of each codebook; "phase" is a token's place in it.

Where the tokens lie in the vocabulary, whether a stream keeps to the grid, and the masks that make it (AUDEX spec, 7).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

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


def _indices(values: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int64).to(device, non_blocking=True)


def _check_range(what: str, ids: Sequence[int], width: int) -> None:
    if min(ids) < 0 or max(ids) >= width:
        raise RuntimeError(f"{what} out of range: {min(ids)}..{max(ids)} for logits {width} wide")
