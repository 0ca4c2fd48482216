"""What a backend does, whichever it is (AUDIO8 spec, section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model.dual_ar import DualAR
from oscine.runtime.cache import SequenceCache
from oscine.runtime.exact import ExactRule
from oscine.runtime.sampling import Truncation


def noise_size(config: LMConfig) -> int:
    """Uniforms a frame takes: two draws over the compact ids, then one over each further codebook."""
    return 2 * (config.codebook_size + 1) + (config.num_codebooks - 1) * config.codebook_size


@dataclass(frozen=True, kw_only=True)
class SamplingRows:
    """How each row is drawn.

    `normal` and `high` truncate ordinary draws and the second ones after a repetition (None: no row draws, all take
    the best candidate; noise is left out, with the same outcome). ras bool [row] says where repetitions count; recent
    int64 [row, window], -1 where empty; noise float32 [row, noise_size]; end_allowed bool [row], or None when it is
    for all.
    """

    normal: Truncation | None
    high: Truncation | None
    ras: Tensor
    recent: Tensor
    noise: Tensor
    end_allowed: Tensor | None = None


class Backend(Protocol):
    """Runs steps of one model, whose parameters are not to change afterwards."""

    model: DualAR

    @property
    def rule(self) -> ExactRule:
        """The shapes of calls in which a row's result is its own."""

    def advance(
        self, columns: Tensor, positions: Tensor, cache: SequenceCache, rows: slice, width: int
    ) -> tuple[Tensor, Tensor]:
        """Runs columns int64 [row, C + 1, time] at `positions` [row, time] on `rows` of the cache.

        Several rows of one column, or one row of several. Keys up to `width` are looked at (above every position; see
        `WidthRule.round`). Returns, for the last column only, (final hidden state, hidden state for the fast
        model), both [row, dim], which `draw` takes.
        """

    def draw(
        self, final: Tensor, fast_hidden: Tensor, rows: SamplingRows, parts: Sequence[int] | None = None
    ) -> Tensor:
        """One frame for each row of what `advance` returned → int64 [row, 2 + C].

        Column 0 is 1 when all logits are finite, column 1 the compact id drawn (N: end of speech, the codes are then
        to be thrown away), the rest the codes. The fast model's first pass is cut into `parts` of the rows (see
        `RowRule.pair_sizes`; None: one).
        """
