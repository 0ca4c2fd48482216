"""One frame for a batch of rows: from the slow model's state to codes, all on the device (AUDIO8 spec, section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model import DualAR
from oscine.families.audio8.sampling import Cuts, cuts, pick, rank, replace_repeats
from oscine.layers.exact import VECTOR_LOOP


def noise_size(config: LMConfig) -> int:
    """Uniforms a frame takes: two draws over the compact ids, then one over each further codebook."""
    return 2 * (config.codebook_size + 1) + (config.num_codebooks - 1) * config.codebook_size


@dataclass(frozen=True, kw_only=True)
class SamplingRows:
    """How each row is drawn: views of per-row tensors.

    temperature float32 (0: the best candidate), top_k int64, top_p float32, ras bool, all [row]; recent int64
    [row, window], -1 where empty; noise float32 [row, noise_size]; end_allowed bool [row], or None when it is for all.
    `best`: no more than so many of the best ids can be drawn, in any row (None: all). `greedy`: no row draws, so noise
    and cuts are left out (with the same outcome).
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    ras: Tensor
    recent: Tensor
    noise: Tensor
    end_allowed: Tensor | None
    best: int | None
    greedy: bool


class FrameDrawer:
    """Draws frames with one model; holds what is the same for all rows."""

    def __init__(self, model: DualAR) -> None:
        config = model.config
        self.model = model
        self._ras_temperature = torch.tensor([config.ras_temperature], device=model.device)
        self._ras_top_p = torch.tensor([config.ras_top_p], device=model.device)

    def __call__(
        self, final: Tensor, fast_hidden: Tensor, rows: SamplingRows, parts: Sequence[int] | None = None
    ) -> Tensor:
        """final and fast_hidden [row, dim] of the slow model → int64 [row, 2 + C].

        Column 0 is 1 when all logits are finite, column 1 the compact id drawn (N: end of speech, the codes are then
        to be thrown away), the rest the codes. `parts` as in `DualAR.fast_frame`.
        """
        logits = self.model.compact_logits(final)
        size = logits.shape[-1] - 1  # of a codebook; the semantic logits also hold the end of speech
        zeros = [_zero_if_finite(logits)]
        if rows.end_allowed is not None:
            logits[:, -1].masked_fill_(~rows.end_allowed, float("-inf"))
        cut = None if rows.greedy else _cuts(rows, size + 1)
        semantic = logits.argmax(dim=-1) if cut is None else self._semantic(logits, rows, cut)

        def choose(index: int, logits: Tensor) -> Tensor:
            zeros.append(_zero_if_finite(logits))
            if cut is None:
                return logits.argmax(dim=-1)
            noise = rows.noise.narrow(1, 2 * (size + 1) + (index - 1) * size, size)
            return pick(rank(logits, cut.count), noise, cut)

        codes = self.model.fast_frame(fast_hidden, semantic, choose, parts=parts)
        finite = torch.stack(zeros).sum(dim=0) == 0
        return torch.cat([finite[:, None], semantic[:, None], codes], dim=1)

    def _semantic(self, logits: Tensor, rows: SamplingRows, cut: Cuts) -> Tensor:
        size, ranking = logits.shape[-1], rank(logits, cut.count)
        drawn = pick(ranking, rows.noise.narrow(1, 0, size), cut)
        if rows.recent.shape[-1] == 0:
            return drawn
        again = pick(ranking, rows.noise.narrow(1, size, size), self._high_cuts(rows, cut.count))
        return replace_repeats(drawn, again, rows.recent, size - 1, rows.ras)

    def _high_cuts(self, rows: SamplingRows, count: int) -> Cuts:
        return cuts(
            count, rows.top_k.device, top_k=rows.top_k, top_p=self._ras_top_p, temperature=self._ras_temperature
        )


def _cuts(rows: SamplingRows, size: int) -> Cuts:
    """The rows' cuts, for whole rounds of a vectorised loop over ranks, `size` of them at most."""
    count = size if rows.best is None else min(size, -(-rows.best // VECTOR_LOOP) * VECTOR_LOOP)
    return cuts(count, rows.top_k.device, top_k=rows.top_k, top_p=rows.top_p, temperature=rows.temperature)


def _zero_if_finite(logits: Tensor) -> Tensor:
    """0 for a row of logits [row, id] without NaN and infinities, else NaN → [row]."""
    return (logits * 0).sum(dim=-1)
