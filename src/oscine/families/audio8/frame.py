"""One frame for a batch of rows: from the slow model's state to codes, all on the device (AUDIO8 spec, section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model import DualAR
from oscine.runtime.sampling import Truncation, pick, rank, replace_repeats


def noise_size(config: LMConfig) -> int:
    """Uniforms a frame takes: two draws over the compact ids, then one over each further codebook."""
    return 2 * (config.codebook_size + 1) + (config.num_codebooks - 1) * config.codebook_size


@dataclass(frozen=True, kw_only=True)
class SamplingRows:
    """How each row is drawn.

    `cut` and `high` are the cuts of ordinary draws and of the second ones after a repetition (None: no row draws, all
    take the best candidate; noise is left out, with the same outcome). ras bool [row] says where repetitions count;
    recent int64 [row, window], -1 where empty; noise float32 [row, noise_size]; end_allowed bool [row], or None when
    it is for all.
    """

    cut: Truncation | None
    high: Truncation | None
    ras: Tensor
    recent: Tensor
    noise: Tensor
    end_allowed: Tensor | None = None


class FrameDrawer:
    """Draws frames with one model."""

    def __init__(self, model: DualAR) -> None:
        self.model = model

    def __call__(
        self, final: Tensor, fast_hidden: Tensor, rows: SamplingRows, parts: Sequence[int] | None = None
    ) -> Tensor:
        """final and fast_hidden [row, dim] of the slow model → int64 [row, 2 + C].

        Column 0 is 1 when all logits are finite, column 1 the compact id drawn (N: end of speech, the codes are then
        to be thrown away), the rest the codes. `parts` as in `DualAR.fast_frame`.
        """
        logits = self.model.compact_logits(final)
        size = logits.shape[-1] - 1  # of a codebook; the semantic logits also hold the end of speech
        seen = [logits]
        if rows.end_allowed is not None:
            logits = logits.clone()
            logits[:, -1].masked_fill_(~rows.end_allowed, float("-inf"))
        semantic = _semantic(logits, rows)

        def choose(index: int, logits: Tensor) -> Tensor:
            seen.append(logits)
            if rows.cut is None:
                return logits.argmax(dim=-1)
            noise = rows.noise.narrow(1, 2 * (size + 1) + (index - 1) * size, size)
            return pick(rank(logits, rows.cut.count), noise, rows.cut)

        codes = self.model.fast_frame(fast_hidden, semantic, choose, parts=parts)
        finite = (torch.cat(seen, dim=1) * 0).sum(dim=-1) == 0  # NaN where one is not
        return torch.cat([finite[:, None], semantic[:, None], codes], dim=1)


def _semantic(logits: Tensor, rows: SamplingRows) -> Tensor:
    """The compact id of each row of compact logits → int64 [row]."""
    if rows.cut is None:
        return logits.argmax(dim=-1)
    size, ranking = logits.shape[-1], rank(logits, rows.cut.count)
    drawn = pick(ranking, rows.noise.narrow(1, 0, size), rows.cut)
    if rows.high is None or rows.recent.shape[-1] == 0:
        return drawn
    again = pick(ranking, rows.noise.narrow(1, size, size), rows.high)
    return replace_repeats(drawn, again, rows.recent, size - 1, rows.ras)
