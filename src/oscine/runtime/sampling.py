"""Drawing ids from logits with given noise: top-k and top-p on raw logits, then temperature, then the Gumbel maximum.

Pure functions that do a whole batch in one pass and work on the best ids only; nothing here waits for the device.
Where a scalar is accepted, a tensor [row] is too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oscine.kernels.vector import pad_to_vector_width

SAMPLING_EPS = 1e-05
"""A temperature below this means: take the best candidate."""

SORTED_WHOLE = 1024
"""Up to so many ids it takes less time to sort them all than to find the best."""

PerRow = float | int | Tensor
"""One number for all rows, or a tensor [row] (or [1])."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The best ids of logits [row, id], in descending order; made once, for draws with several parameters.

    All [row, rank]: `order` the id at each rank (ties: lower id first), `scores` float32 its logit, `cumulative` the
    probability, among all ids, up to and with it.
    """

    order: Tensor
    scores: Tensor
    cumulative: Tensor


def rank(logits: Tensor, count: int | None = None) -> Ranking:
    """The best `count` ids of logits [row, id] (None: all)."""
    if logits.dtype != torch.float32:
        logits = logits.float()
    size = logits.shape[-1]
    kept = size if count is None else min(count, size)
    if kept == size or size <= SORTED_WHOLE:
        scores, order = torch.sort(logits, dim=-1, descending=True, stable=True)
        scores, order = scores.narrow(-1, 0, kept), order.narrow(-1, 0, kept)
    else:
        order = _best(logits, kept)
        scores = logits.gather(-1, order)
    cumulative = logits.softmax(dim=-1).gather(-1, order).cumsum(dim=-1)
    return Ranking(order=order, scores=scores, cumulative=cumulative)


def _best(logits: Tensor, count: int) -> Tensor:
    """The first `count` ids of a stable descending sort of float32 logits [row, id] → int64 [row, count].

    Whole numbers that stand for (logit, id) have no ties, about which `topk` makes no promise: the bits of a positive
    float are ordered as the number is, those of a negative one the other way round.
    """
    bits = (logits + 0.0).view(torch.int32)  # the sum makes -0 the 0 it is equal to
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    before = torch.arange(logits.shape[-1] - 1, -1, -1, device=logits.device)
    return torch.add(before, ordered, alpha=2**32).topk(count, dim=-1)[1]


@dataclass(frozen=True, kw_only=True)
class Truncation:
    """What top-k, top-p and temperature do to ranks; made once, for draws with the same parameters.

    `limit` [row or 1, rank]: a rank goes when its inclusive cumulative probability exceeds this; `temperature`
    [row or 1, 1], which is 1 for a cold row: there all ranks but the first go.
    """

    limit: Tensor
    temperature: Tensor

    @property
    def count(self) -> int:
        """Ranks there are."""
        return self.limit.shape[-1]


def truncation(
    count: int, device: torch.device, *, top_k: PerRow, top_p: PerRow, temperature: PerRow = 1.0
) -> Truncation:
    """The truncation of the first `count` ranks.

    Rank r goes when its inclusive cumulative probability exceeds top_p, or r >= top_k; rank 0 always stays.
    top_k <= 0 and top_p >= 1 remove nothing, even where rounding carries the sum above 1.
    """
    k, p = as_column(top_k, device, torch.long), as_column(top_p, device, torch.float32)
    heat = as_column(temperature, device, torch.float32)
    cold = heat < SAMPLING_EPS
    ranks = torch.arange(count, device=device)
    limit = torch.where(p < 1, p, float("inf"))
    limit = torch.where(((ranks >= k) & (k > 0)) | cold, -1.0, limit)
    limit[:, 0] = float("inf")
    return Truncation(limit=limit, temperature=torch.where(cold, 1.0, heat))


def gumbel_argmax(scores: Tensor, uniform: Tensor) -> Tensor:
    """Gumbel-max with given noise: argmax of p / -log(u), p = softmax(scores) → int64 [row].

    A zero in `uniform` counts as the smallest normal number. The sign of log(u) is left as it is, so the least wins.
    """
    logs = pad_to_vector_width(torch.log, uniform.clamp_min(torch.finfo(scores.dtype).tiny))
    return (scores.softmax(dim=-1) / logs).argmin(dim=-1)


def pick(ranking: Ranking, uniform: Tensor, kept: Truncation) -> Tensor:
    """One id a row with given noise [row, id] for all ids: the Gumbel maximum of the ranks that stay → [row].

    The truncation may have more ranks than the ranking.
    """
    count = ranking.order.shape[-1]
    removed = ranking.cumulative > (kept.limit if kept.count == count else kept.limit.narrow(-1, 0, count))
    left = ranking.scores.masked_fill(removed, float("-inf")) / kept.temperature
    return ranking.order.gather(-1, gumbel_argmax(left, uniform.gather(-1, ranking.order)).unsqueeze(1)).squeeze(1)


def replace_repeats(
    normal: Tensor, high: Tensor, recent: Tensor, num_semantic_ids: int | None, ras: Tensor | None
) -> Tensor:
    """The ids `normal` [row], with those found in `recent` [row, window] replaced by `high` → [row].

    Ids from `num_semantic_ids` on (end of speech) stay. `ras` bool [row] switches the rule off where False.
    """
    repeated = (recent == normal[:, None]).any(dim=-1)
    if num_semantic_ids is not None:
        repeated = repeated & (normal < num_semantic_ids)
    if ras is not None:
        repeated = repeated & ras
    return torch.where(repeated, high, normal)


def as_column(value: PerRow, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The value as a tensor that stands beside [row, id]: [1, 1] or [row, 1]."""
    return torch.as_tensor(value).to(device, dtype).reshape(-1, 1)
