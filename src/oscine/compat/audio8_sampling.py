"""The documented sampling functions (AUDIO8 spec, section 7): they draw their own noise and work id by id.

Top-k and top-p on RAW logits, then temperature, then the Gumbel maximum. What the engine draws with is
`oscine.runtime.sampling`. Where a scalar is accepted, a tensor [row] is too.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Generator, Tensor

from oscine.runtime.sampling import (
    SAMPLING_EPS,
    PerRow,
    as_column,
    gumbel_argmax,
    pick,
    rank,
    replace_repeats,
    truncation,
)


def draw(logits: Tensor, uniform: Tensor, *, temperature: PerRow, top_k: PerRow, top_p: PerRow) -> Tensor:
    """One id a row with given noise [row, id]; rows whose temperature is below SAMPLING_EPS get the best → [row]."""
    kept = truncation(logits.shape[-1], logits.device, top_k=top_k, top_p=top_p, temperature=temperature)
    return pick(rank(logits), uniform, kept)


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
    normal = truncation(size, logits.device, top_k=top_k, top_p=top_p, temperature=temperature)
    high = truncation(size, logits.device, top_k=top_k, top_p=ras_top_p, temperature=ras_temperature)
    drawn, again = pick(ranking, normal_uniform, normal), pick(ranking, high_uniform, high)
    return replace_repeats(drawn, again, recent, num_semantic_ids, ras)


def filter_top_k_top_p(logits: Tensor, top_k: PerRow, top_p: PerRow) -> Tensor:
    """Logits [row, id] with removed entries at -inf, the others unchanged; see `truncation` for the rule.

    Raises ValueError if logits is not 2-D.
    """
    if logits.dim() != 2:
        raise ValueError(f"logits must be [row, id], got shape {list(logits.shape)}")
    if _cuts_nothing(top_k, top_p):
        return logits
    ranking = rank(logits)
    removed = ranking.cumulative > truncation(logits.shape[-1], logits.device, top_k=top_k, top_p=top_p).limit
    by_id = torch.zeros_like(removed).scatter(-1, ranking.order, removed)
    return logits.masked_fill(by_id, float("-inf"))


def gumbel_argmax_sample(scores: Tensor, generator: Generator | None = None) -> Tensor:
    """One id a row drawn from softmax(scores) [row, id] → int64 [row]; takes row * id uniforms."""
    wide = scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
    return gumbel_argmax(wide, _uniform(wide, generator))


def sample_scores(
    logits: Tensor,
    *,
    temperature: PerRow,
    top_k: PerRow,
    top_p: PerRow,
    do_sample: bool = True,
    generator: Generator | None = None,
) -> Tensor:
    """One id a row → int64 [row]: filter, divide by the temperature, draw.

    `do_sample` False, or one temperature for all below SAMPLING_EPS: the best candidate, no noise taken. A tensor of
    temperatures takes noise for all rows, and gives the best where one is below SAMPLING_EPS.
    """
    filtered = filter_top_k_top_p(logits.float(), top_k, top_p)
    if not do_sample or (not isinstance(temperature, Tensor) and temperature < SAMPLING_EPS):
        return filtered.argmax(dim=-1)
    return _draw_filtered(filtered, _uniform(filtered, generator), temperature)


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


def _draw_filtered(filtered: Tensor, uniform: Tensor, temperature: PerRow) -> Tensor:
    """Gumbel maximum of filtered / temperature, or the best where the temperature is below SAMPLING_EPS → [row]."""
    column = as_column(temperature, filtered.device, torch.float32)
    cold = column < SAMPLING_EPS
    drawn = gumbel_argmax(filtered / torch.where(cold, 1.0, column), uniform)
    return torch.where(cold.squeeze(-1), filtered.argmax(dim=-1), drawn)


def _uniform(like: Tensor, generator: Generator | None) -> Tensor:
    """Uniform noise in the shape and dtype of `like`, drawn where the generator lives."""
    device = like.device if generator is None else generator.device
    return torch.rand(like.shape, dtype=like.dtype, device=device, generator=generator).to(like.device)


def _first_rows(value: PerRow, rows: int) -> PerRow:
    return value[:rows] if isinstance(value, Tensor) and value.dim() == 1 and value.shape[0] > 1 else value


def _takes_noise(temperature: PerRow) -> bool:
    return isinstance(temperature, Tensor) or temperature >= SAMPLING_EPS


def _cuts_nothing(top_k: PerRow, top_p: PerRow) -> bool:
    return not isinstance(top_k, Tensor) and not isinstance(top_p, Tensor) and top_k <= 0 and top_p >= 1
