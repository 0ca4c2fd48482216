"""Drawing codes from logits (AUDIO8 spec, section 7): top-k and top-p on RAW logits, then temperature, then a race.

Two layers: the functions of the spec, which draw their own noise and work id by id, and pure ones that take the noise
as an argument, do a whole batch in one pass, and work on the best ids only (`draw`, `draw_semantic`, or `rank` and
`pick` for many draws with the same `Cuts`). Where a scalar is accepted, a tensor [row] is too. Nothing here waits for
the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from oscine.layers.exact import in_rows

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
class Cuts:
    """What top-k, top-p and temperature do to ranks, the same for all draws of a frame.

    `limit` [row or 1, rank]: a rank goes when its inclusive cumulative probability exceeds this; `temperature`
    [row or 1, 1], which is 1 for a cold row: there all ranks but the first are cut.
    """

    limit: Tensor
    temperature: Tensor

    @property
    def count(self) -> int:
        """Ranks there are."""
        return self.limit.shape[-1]


def cuts(count: int, device: torch.device, *, top_k: PerRow, top_p: PerRow, temperature: PerRow = 1.0) -> Cuts:
    """The cuts for the first `count` ranks.

    Rank r goes when its inclusive cumulative probability exceeds top_p, or r >= top_k; rank 0 always stays.
    top_k <= 0 and top_p >= 1 cut nothing, even where rounding carries the sum above 1.
    """
    k, p = _column(top_k, device, torch.long), _column(top_p, device, torch.float32)
    heat = _column(temperature, device, torch.float32)
    cold = heat < SAMPLING_EPS
    ranks = torch.arange(count, device=device)
    limit = torch.where(p < 1, p, float("inf"))
    limit = torch.where(((ranks >= k) & (k > 0)) | cold, -1.0, limit)
    limit[:, 0] = float("inf")
    return Cuts(limit=limit, temperature=torch.where(cold, 1.0, heat))


def race(scores: Tensor, uniform: Tensor) -> Tensor:
    """Gumbel-max with given noise: argmax of p / -log(u), p = softmax(scores) → int64 [row].

    A zero in `uniform` counts as the smallest normal number. The sign of log(u) is left as it is, so the least wins.
    """
    logs = in_rows(torch.log, uniform.clamp_min(torch.finfo(scores.dtype).tiny))
    return (scores.softmax(dim=-1) / logs).argmin(dim=-1)


def draw(logits: Tensor, uniform: Tensor, *, temperature: PerRow, top_k: PerRow, top_p: PerRow) -> Tensor:
    """One id a row with given noise [row, id]; rows whose temperature is below SAMPLING_EPS get the best → [row]."""
    cut = cuts(logits.shape[-1], logits.device, top_k=top_k, top_p=top_p, temperature=temperature)
    return pick(rank(logits), uniform, cut)


def pick(ranking: Ranking, uniform: Tensor, cut: Cuts) -> Tensor:
    """One id a row with given noise [row, id] for all ids: a race between the ranks that are not cut → [row].

    The cuts may go on behind the last rank of the ranking.
    """
    count = ranking.order.shape[-1]
    removed = ranking.cumulative > (cut.limit if cut.count == count else cut.limit.narrow(-1, 0, count))
    left = ranking.scores.masked_fill(removed, float("-inf")) / cut.temperature
    return ranking.order.gather(-1, race(left, uniform.gather(-1, ranking.order)).unsqueeze(1)).squeeze(1)


def draw_semantic(
    logits: Tensor,
    normal_uniform: Tensor,
    high_uniform: Tensor,
    recent: Tensor,
    *,
    temperature: PerRow,
    top_k: PerRow,
    top_p: PerRow,
    ras_temperature: PerRow,
    ras_top_p: PerRow,
    num_semantic_ids: int | None,
    ras: Tensor | None = None,
) -> Tensor:
    """Repetition-aware draw with given noise: an id found in `recent` [row, window] gives way to a second draw → [row].

    Ids from `num_semantic_ids` on (end of speech) never give way. `ras` bool [row] switches the rule off where False.
    """
    ranking, size = rank(logits), logits.shape[-1]
    normal = cuts(size, logits.device, top_k=top_k, top_p=top_p, temperature=temperature)
    high = cuts(size, logits.device, top_k=top_k, top_p=ras_top_p, temperature=ras_temperature)
    drawn, again = pick(ranking, normal_uniform, normal), pick(ranking, high_uniform, high)
    return replace_repeats(drawn, again, recent, num_semantic_ids, ras)


def filter_top_k_top_p(logits: Tensor, top_k: PerRow, top_p: PerRow) -> Tensor:
    """Logits [row, id] with removed entries at -inf, the others unchanged; see `cuts` for the rule.

    Raises ValueError if logits is not 2-D.
    """
    if logits.dim() != 2:
        raise ValueError(f"logits must be [row, id], got shape {list(logits.shape)}")
    if _cuts_nothing(top_k, top_p):
        return logits
    ranking = rank(logits)
    removed = ranking.cumulative > cuts(logits.shape[-1], logits.device, top_k=top_k, top_p=top_p).limit
    by_id = torch.zeros_like(removed).scatter(-1, ranking.order, removed)
    return logits.masked_fill(by_id, float("-inf"))


def gumbel_argmax_sample(scores: Tensor, generator: Generator | None = None) -> Tensor:
    """One id a row drawn from softmax(scores) [row, id] → int64 [row]; takes row * id uniforms."""
    wide = scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
    return race(wide, _uniform(wide, generator))


def sample_scores(
    logits: Tensor,
    *,
    temperature: PerRow,
    top_k: PerRow,
    top_p: PerRow,
    do_sample: bool = True,
    generator: Generator | None = None,
) -> Tensor:
    """One id a row → int64 [row]: filter, divide by the temperature, race.

    `do_sample` False, or one temperature for all below SAMPLING_EPS: the best candidate, no noise taken. A tensor of
    temperatures takes noise for all rows, and gives the best where one is below SAMPLING_EPS.
    """
    filtered = filter_top_k_top_p(logits.float(), top_k, top_p)
    if not do_sample or (not isinstance(temperature, Tensor) and temperature < SAMPLING_EPS):
        return filtered.argmax(dim=-1)
    return _race_filtered(filtered, _uniform(filtered, generator), temperature)


def ras_sample_semantic(
    logits: Tensor,
    recent_ids: Tensor | None,
    *,
    temperature: PerRow,
    top_k: PerRow,
    top_p: PerRow,
    ras_temperature: PerRow,
    ras_top_p: PerRow,
    do_sample: bool = True,
    num_semantic_ids: int | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Repetition-aware draw → int64 [row]; `recent_ids` [row, window] is padded with -1.

    Without history, or greedy, it is one plain draw. Otherwise a second draw is always taken from the generator and
    replaces an id found in the row's history, unless that is `num_semantic_ids` or beyond. It may be the same id.
    """
    normal = sample_scores(
        logits, temperature=temperature, top_k=top_k, top_p=top_p, do_sample=do_sample, generator=generator
    )
    if not do_sample or recent_ids is None or recent_ids.numel() == 0:
        return normal
    high = sample_scores(logits, temperature=ras_temperature, top_k=top_k, top_p=ras_top_p, generator=generator)
    return replace_repeats(normal, high, recent_ids.to(logits.device), num_semantic_ids, None)


def ras_sample_batch(
    logits: Tensor,
    recent_ids: Tensor | None,
    *,
    temperature: PerRow,
    top_k: PerRow,
    top_p: PerRow,
    ras_temperature: PerRow,
    ras_top_p: PerRow,
    num_semantic_ids: int | None,
    generators: Mapping[int, Generator],
    num_reqs: int,
) -> Tensor:
    """`ras_sample_semantic` of every row with its own generator → int64 [num_reqs]; None or absent: the global one.

    Noise is drawn row by row, in the order and number of the row-by-row definition; the rest is one pass over the
    batch, with equal results.
    """
    history = recent_ids is not None and recent_ids.numel() > 0
    logits = logits[:num_reqs].float()
    noisy = _takes_noise(temperature), history and _takes_noise(ras_temperature)
    rows: tuple[list[Tensor], list[Tensor]] = ([], [])
    for row in range(num_reqs):
        for noise, taken in zip(rows, noisy, strict=True):
            noise.append(
                _uniform(logits[row : row + 1], generators.get(row)) if taken else torch.full_like(logits[:1], 0.5)
            )
    normal_uniform, high_uniform = (torch.cat(noise) for noise in rows)
    temperature, top_k, top_p, ras_temperature, ras_top_p = (
        _first_rows(value, num_reqs) for value in (temperature, top_k, top_p, ras_temperature, ras_top_p)
    )
    if not history or recent_ids is None:
        return draw(logits, normal_uniform, temperature=temperature, top_k=top_k, top_p=top_p)
    return draw_semantic(
        logits,
        normal_uniform,
        high_uniform,
        recent_ids[:num_reqs].to(logits.device),
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        ras_temperature=ras_temperature,
        ras_top_p=ras_top_p,
        num_semantic_ids=num_semantic_ids,
    )


def _race_filtered(filtered: Tensor, uniform: Tensor, temperature: PerRow) -> Tensor:
    """Race over filtered / temperature, or the best where the temperature is below SAMPLING_EPS → [row]."""
    column = _column(temperature, filtered.device, torch.float32)
    cold = column < SAMPLING_EPS
    drawn = race(filtered / torch.where(cold, 1.0, column), uniform)
    return torch.where(cold.squeeze(-1), filtered.argmax(dim=-1), drawn)


def replace_repeats(
    normal: Tensor, high: Tensor, recent: Tensor, num_semantic_ids: int | None, ras: Tensor | None
) -> Tensor:
    """The ids `normal` [row], with those found in `recent` replaced by `high`; see `draw_semantic` → [row]."""
    repeated = (recent == normal[:, None]).any(dim=-1)
    if num_semantic_ids is not None:
        repeated = repeated & (normal < num_semantic_ids)
    if ras is not None:
        repeated = repeated & ras
    return torch.where(repeated, high, normal)


def _uniform(like: Tensor, generator: Generator | None) -> Tensor:
    """Uniform noise in the shape and dtype of `like`, drawn where the generator lives."""
    device = like.device if generator is None else generator.device
    return torch.rand(like.shape, dtype=like.dtype, device=device, generator=generator).to(like.device)


def _column(value: PerRow, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The value as a tensor that stands beside [row, id]: [1, 1] or [row, 1]."""
    return torch.as_tensor(value).to(device, dtype).reshape(-1, 1)


def _first_rows(value: PerRow, rows: int) -> PerRow:
    return value[:rows] if isinstance(value, Tensor) and value.dim() == 1 and value.shape[0] > 1 else value


def _takes_noise(temperature: PerRow) -> bool:
    return isinstance(temperature, Tensor) or temperature >= SAMPLING_EPS


def _cuts_nothing(top_k: PerRow, top_p: PerRow) -> bool:
    return not isinstance(top_k, Tensor) and not isinstance(top_p, Tensor) and top_k <= 0 and top_p >= 1
