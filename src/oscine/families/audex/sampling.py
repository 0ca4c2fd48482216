"""From logits to a token: guidance, temperature, top-k, top-p, softmax, draw, in this order (AUDEX spec, 6.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

GREEDY_BELOW = 1e-5


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a job draws its tokens; `top_k` 0 and `top_p` 1 switch the filters off."""

    temperature: float
    top_k: int = 0
    top_p: float = 1.0


def blend(cond: Tensor, uncond: Tensor, scale: Tensor | float) -> Tensor:
    """`uncond + scale * (cond - uncond)` on raw logits, in their dtype; `scale` a number or float32 [row, 1]."""
    difference = cond - uncond
    return uncond + (difference.float() * scale).to(cond.dtype)


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """Probabilities float32 [..., vocab] of the filtered logits [..., vocab]; the temperature must not be 0.

    Top-k keeps every logit that is at least the k-th largest, ties too. Top-p sorts ascending and drops while the
    cumulative probability is at most 1 - top_p; the largest always stays.
    """
    scaled = logits.float() / sampling.temperature
    if 0 < sampling.top_k < scaled.shape[-1]:
        least = scaled.topk(sampling.top_k, dim=-1).values[..., -1:]
        scaled = scaled.masked_fill(scaled < least, float("-inf"))
    if sampling.top_p < 1.0:
        ascending, order = scaled.sort(dim=-1)
        drop = ascending.softmax(-1).cumsum(-1) <= 1.0 - sampling.top_p
        drop[..., -1] = False
        scaled = scaled.masked_fill(drop.scatter(-1, order, drop), float("-inf"))
    return scaled.softmax(-1)


def draw(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """One token from logits [vocab] of one job, with that job's own generator (on the CPU)."""
    if sampling.temperature < GREEDY_BELOW:
        return int(logits.argmax())
    return int(torch.multinomial(probabilities(logits, sampling).cpu(), 1, generator=generator))
