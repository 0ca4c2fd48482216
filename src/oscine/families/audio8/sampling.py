"""Drawing codes from logits (AUDIO8 spec, section 7): top-k and top-p on RAW logits, then temperature, then a race.

Two layers: the functions of the spec, which draw their own noise, and pure ones that take it as an argument and do a
whole batch in one pass (`draw`, `draw_semantic`). Where a scalar is accepted, a tensor [row] is too. Nothing here
waits for the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from oscine.layers.exact import in_rows

SAMPLING_EPS = 1e-05
"""A temperature below this means: take the best candidate."""

PerRow = float | int | Tensor
"""One number for all rows, or a tensor [row] (or [1])."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Logits [row, id] sorted once, for cuts with several parameters.

    `order` is the id at each rank (ties: lower id first), `cumulative` float32 the probability up to and with it.
    """

    logits: Tensor
    order: Tensor
    cumulative: Tensor


def rank(logits: Tensor) -> Ranking:
    """Sorts logits [row, id] in descending order."""
    ordered, order = logits.float().sort(dim=-1, descending=True, stable=True)
    return Ranking(logits=logits, order=order, cumulative=ordered.softmax(dim=-1).cumsum(dim=-1))


def cut(ranking: Ranking, top_k: PerRow, top_p: PerRow) -> Tensor:
    """The logits with everything that top-k or top-p removes set to -inf.

    Rank r goes when its inclusive cumulative probability exceeds top_p, or r >= top_k; rank 0 always stays.
    top_k <= 0 and top_p >= 1 cut nothing, even where rounding carries the sum above 1.
    """
    device = ranking.logits.device
    k, p = _column(top_k, device, torch.long), _column(top_p, device, torch.float32)
    ranks = torch.arange(ranking.order.shape[-1], device=device)
    removed = ((ranks >= k) & (k > 0)) | ((ranking.cumulative > p) & (p < 1))
    removed = removed & (ranks > 0)
    by_id = torch.zeros_like(removed).scatter(-1, ranking.order, removed)
    return ranking.logits.masked_fill(by_id, float("-inf"))


def race(scores: Tensor, uniform: Tensor) -> Tensor:
    """Gumbel-max with given noise: argmax of p / -log(u), p = softmax(scores) → int64 [row].

    A zero in `uniform` counts as the smallest normal number.
    """
    tiny = torch.finfo(scores.dtype).tiny
    return (scores.softmax(dim=-1) / -in_rows(torch.log, uniform.clamp_min(tiny))).argmax(dim=-1)


def draw(logits: Tensor, uniform: Tensor, *, temperature: PerRow, top_k: PerRow, top_p: PerRow) -> Tensor:
    """One id a row with given noise [row, id]; rows whose temperature is below SAMPLING_EPS get the best → [row]."""
    return _draw_ranked(rank(logits), uniform, temperature, top_k, top_p)


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
    ranking = rank(logits)
    normal = _draw_ranked(ranking, normal_uniform, temperature, top_k, top_p)
    high = _draw_ranked(ranking, high_uniform, ras_temperature, top_k, ras_top_p)
    return _replace_repeats(normal, high, recent, num_semantic_ids, ras)


def filter_top_k_top_p(logits: Tensor, top_k: PerRow, top_p: PerRow) -> Tensor:
    """Logits [row, id] with removed entries at -inf, the others unchanged; see `cut` for the rule.

    Raises ValueError if logits is not 2-D.
    """
    if logits.dim() != 2:
        raise ValueError(f"logits must be [row, id], got shape {list(logits.shape)}")
    if _cuts_nothing(top_k, top_p):
        return logits
    return cut(rank(logits), top_k, top_p)


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
    return _replace_repeats(normal, high, recent_ids.to(logits.device), num_semantic_ids, None)


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
            noise.append(_uniform(logits[row : row + 1], generators.get(row)) if taken else logits[:1] * 0 + 0.5)
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


def _draw_ranked(ranking: Ranking, uniform: Tensor, temperature: PerRow, top_k: PerRow, top_p: PerRow) -> Tensor:
    return _race_filtered(cut(ranking, top_k, top_p).float(), uniform, temperature)


def _race_filtered(filtered: Tensor, uniform: Tensor, temperature: PerRow) -> Tensor:
    """Race over filtered / temperature, or the best where the temperature is below SAMPLING_EPS → [row]."""
    column = _column(temperature, filtered.device, torch.float32)
    cold = column < SAMPLING_EPS
    drawn = race(filtered / torch.where(cold, 1.0, column), uniform)
    return torch.where(cold.squeeze(-1), filtered.argmax(dim=-1), drawn)


def _replace_repeats(
    normal: Tensor, high: Tensor, recent: Tensor, num_semantic_ids: int | None, ras: Tensor | None
) -> Tensor:
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
