"""One frame for a batch of rows: from the slow model's state to codes, all on the device (AUDIO8 spec, section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model import DualAR
from oscine.families.audio8.sampling import draw, draw_semantic


def noise_size(config: LMConfig) -> int:
    """Uniforms a frame takes: two draws over the compact ids, then one over each further codebook."""
    return 2 * (config.codebook_size + 1) + (config.num_codebooks - 1) * config.codebook_size


@dataclass(frozen=True, kw_only=True)
class SamplingRows:
    """How each row is drawn: views of per-row tensors.

    temperature float32 (0: the best candidate), top_k int64, top_p float32, ras bool, all [row]; recent int64
    [row, window], -1 where empty; noise float32 [row, noise_size]; end_allowed bool [row], or None when it is for all.
    `greedy`: no row draws, so noise and cuts are left out (with the same outcome).
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    ras: Tensor
    recent: Tensor
    noise: Tensor
    end_allowed: Tensor | None
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
        finite = [logits.isfinite().all(dim=-1)]
        if rows.end_allowed is not None:
            logits[:, -1].masked_fill_(~rows.end_allowed, float("-inf"))
        semantic = self._semantic(logits, rows)

        def choose(index: int, logits: Tensor) -> Tensor:
            finite.append(logits.isfinite().all(dim=-1))
            return self._residual(index, logits, rows)

        codes = self.model.fast_frame(fast_hidden, semantic, choose, parts=parts)
        return torch.cat([torch.stack(finite).all(dim=0)[:, None], semantic[:, None], codes], dim=1)

    def _semantic(self, logits: Tensor, rows: SamplingRows) -> Tensor:
        if rows.greedy:
            return logits.argmax(dim=-1)
        size = logits.shape[-1]
        return draw_semantic(
            logits,
            rows.noise[:, :size],
            rows.noise[:, size : 2 * size],
            rows.recent,
            temperature=rows.temperature,
            top_k=rows.top_k,
            top_p=rows.top_p,
            ras_temperature=self._ras_temperature,
            ras_top_p=self._ras_top_p,
            num_semantic_ids=size - 1,
            ras=rows.ras,
        )

    def _residual(self, index: int, logits: Tensor, rows: SamplingRows) -> Tensor:
        if rows.greedy:
            return logits.argmax(dim=-1)
        size = logits.shape[-1]
        start = 2 * (size + 1) + (index - 1) * size
        noise = rows.noise[:, start : start + size]
        return draw(logits, noise, temperature=rows.temperature, top_k=rows.top_k, top_p=rows.top_p)
