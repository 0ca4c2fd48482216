"""The documented sampling functions (AUDIO8 spec, section 7): top-k and top-p on RAW logits, then temperature, then the
Gumbel maximum. They draw their own noise and work id by id; what the engine draws with is `oscine.runtime.sampling`.

Where a scalar is accepted, a tensor [row] is too. Arithmetic is float32, or float64 for logits that are.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Generator, Tensor

from oscine.runtime.sampling import SAMPLING_EPS, PerRow, as_column, gumbel_argmax, replace_repeats

__all__ = [
    "SAMPLING_EPS",
    "filter_top_k_top_p",
    "gumbel_argmax_sample",
    "ras_sample_batch",
    "ras_sample_semantic",
    "sample_scores",
]


def filter_top_k_top_p(logits: Tensor, top_k: PerRow, top_p: PerRow) -> Tensor:
    """Logits [row, id] with removed entries at -inf, the others unchanged.

    Rank r of the descending order goes when the probability up to and with it exceeds top_p, or r >= top_k; rank 0
    always stays. top_k <= 0 and top_p >= 1 remove nothing, even where rounding carries the sum above 1. Raises
    ValueError if logits is not 2-D.
    """
    if logits.dim() != 2:
        raise ValueError(f"logits must be [row, id], got shape {list(logits.shape)}")
    if not isinstance(top_k, Tensor) and not isinstance(top_p, Tensor) and top_k <= 0 and top_p >= 1:
        return logits
    scores, order = torch.sort(_wide(logits), dim=-1, descending=True, stable=True)
    cumulative = scores.softmax(dim=-1).cumsum(dim=-1)
    k, p = as_column(top_k, logits.device, torch.long), as_column(top_p, logits.device, cumulative.dtype)
    ranks = torch.arange(logits.shape[-1], device=logits.device)
    removed = ((p < 1) & (cumulative > p)) | ((k > 0) & (ranks >= k))  # apart, since sums may be NaN
    removed[:, 0] = False
    return logits.masked_fill(torch.zeros_like(removed).scatter(-1, order, removed), float("-inf"))


def gumbel_argmax_sample(scores: Tensor, generator: Generator | None = None) -> Tensor:
    """One id a row drawn from softmax(scores) [row, id] → int64 [row]; takes row * id uniforms."""
    return gumbel_argmax(_wide(scores), _uniform(scores, generator))


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
    noise = _uniform(logits, generator) if do_sample and _takes_noise(temperature) else None
    return _drawn(logits, noise, temperature, top_k, top_p)


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
    logits = logits[:num_reqs]
    history = None if recent_ids is None or recent_ids.numel() == 0 else recent_ids[:num_reqs].to(logits.device)
    temperatures = (temperature,) if history is None else (temperature, ras_temperature)
    noises: list[list[Tensor]] = [[] for _ in temperatures]
    for row in range(num_reqs):
        for noise, heat in zip(noises, temperatures, strict=True):
            if _takes_noise(heat):
                noise.append(_uniform(logits[row : row + 1], generators.get(row)))
    drawn = [
        _drawn(
            logits, torch.cat(noise) if noise else None, *(_first_rows(value, num_reqs) for value in (heat, top_k, p))
        )
        for noise, heat, p in zip(noises, temperatures, (top_p, ras_top_p), strict=False)
    ]
    return drawn[0] if history is None else replace_repeats(drawn[0], drawn[1], history, num_semantic_ids, None)


def _drawn(logits: Tensor, noise: Tensor | None, temperature: PerRow, top_k: PerRow, top_p: PerRow) -> Tensor:
    """One id a row → [row]: the best that the filter leaves where it is cold or there is no noise, else the draw."""
    filtered = filter_top_k_top_p(_wide(logits), top_k, top_p)
    best = filtered.argmax(dim=-1)
    if noise is None:
        return best
    heat = as_column(temperature, filtered.device, filtered.dtype)
    cold = heat < SAMPLING_EPS
    return torch.where(cold.squeeze(-1), best, gumbel_argmax(filtered / torch.where(cold, 1.0, heat), noise))


def _wide(values: Tensor) -> Tensor:
    """The values in the dtype of the arithmetic."""
    return values if values.dtype == torch.float64 else values.float()


def _uniform(like: Tensor, generator: Generator | None) -> Tensor:
    """Uniform noise in the shape of `like` and the dtype of the arithmetic, drawn where the generator lives."""
    device, dtype = like.device if generator is None else generator.device, _wide(like[:0]).dtype
    return torch.rand(like.shape, dtype=dtype, device=device, generator=generator).to(like.device)


def _first_rows(value: PerRow, rows: int) -> PerRow:
    return value[:rows] if isinstance(value, Tensor) and value.dim() == 1 and value.shape[0] > 1 else value


def _takes_noise(temperature: PerRow) -> bool:
    return isinstance(temperature, Tensor) or temperature >= SAMPLING_EPS
