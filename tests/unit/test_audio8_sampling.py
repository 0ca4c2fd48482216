"""Properties of the sampling functions beyond the fixture's cases."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oscine.compat.audio8_sampling import (
    SAMPLING_EPS,
    filter_top_k_top_p,
    gumbel_argmax_sample,
    ras_sample_batch,
    ras_sample_semantic,
    sample_scores,
)
from oscine.runtime import sampling as engine

seeds = st.integers(0, 2**31)


def logits_of(seed: int, rows: int, ids: int, scale: float = 3.0) -> Tensor:
    """Random logits with ties and, now and then, -inf."""
    generator = torch.Generator().manual_seed(seed)
    values = (torch.randn(rows, ids, generator=generator) * scale).round(decimals=1)
    removed = torch.rand(rows, ids, generator=generator) < 0.2
    removed[:, 0] = False
    return values.masked_fill(removed, float("-inf"))


def filter_by_definition(row: Tensor, top_k: int, top_p: float) -> list[bool]:
    """Which entries of one row stay, in plain Python over the sorted row."""
    ordered, order = row.sort(descending=True, stable=True)
    cumulative = ordered.softmax(0).cumsum(0)
    kept = [False] * len(row)
    for rank, index in enumerate(order.tolist()):
        cut_by_k = top_k > 0 and rank >= top_k
        cut_by_p = top_p < 1 and bool(cumulative[rank] > top_p)
        kept[index] = rank == 0 or not (cut_by_k or cut_by_p)
    return kept


@settings(max_examples=60, deadline=None)
@given(seed=seeds, ids=st.integers(1, 70), top_k=st.integers(-1, 80), top_p=st.floats(0.01, 1.2))
def test_filter_is_its_definition(seed: int, ids: int, top_k: int, top_p: float) -> None:
    logits = logits_of(seed, 3, ids)
    p32 = float(torch.tensor(top_p))
    result = filter_top_k_top_p(logits, top_k, top_p)
    for row, filtered in zip(logits, result, strict=True):
        kept = torch.tensor(filter_by_definition(row, top_k, p32))
        assert torch.equal(filtered, row.masked_fill(~kept, float("-inf")))
    per_row = filter_top_k_top_p(logits, torch.full((3,), top_k), torch.full((3,), top_p))
    assert torch.equal(per_row, result)


def test_top_p_of_one_cuts_nothing_even_when_the_sum_exceeds_one() -> None:
    """The published implementation cut tail entries of such rows when the parameters came as tensors."""
    exceeding = 0
    for seed in range(40):
        logits = torch.randn(2, 4097, generator=torch.Generator().manual_seed(seed)) * 2
        exceeding += int((logits.sort(descending=True).values.softmax(-1).cumsum(-1) > 1).any())
        assert torch.equal(filter_top_k_top_p(logits, torch.zeros(2), torch.ones(2)), logits)
    assert exceeding > 0


def test_filter_refuses_other_shapes_and_returns_the_input_when_off() -> None:
    with pytest.raises(ValueError, match="logits must be"):
        filter_top_k_top_p(torch.zeros(3), 1, 0.5)
    logits = torch.randn(2, 5)
    assert filter_top_k_top_p(logits, 0, 1.0) is logits
    assert filter_top_k_top_p(logits.bfloat16(), 2, 1.0).dtype == torch.bfloat16


@settings(max_examples=60, deadline=None)
@given(
    seed=seeds,
    rows=st.integers(1, 9),
    ids=st.integers(2, 140),
    with_tensors=st.booleans(),
    shared=st.booleans(),
    window=st.integers(0, 4),
    cold=st.booleans(),
)
def test_batch_is_the_row_by_row_definition(
    seed: int, rows: int, ids: int, with_tensors: bool, shared: bool, window: int, cold: bool
) -> None:
    """Same ids, and the generators end in the same state, for scalars and per-row tensors, missing generators too."""
    logits = logits_of(seed, rows, ids)
    generator = torch.Generator().manual_seed(seed + 1)
    recent = torch.randint(-1, ids, (rows, window), generator=generator)
    options: dict[str, object] = {"top_k": 20, "top_p": 0.9, "ras_temperature": 1.1, "ras_top_p": 0.95}
    options["temperature"] = 0.5 * SAMPLING_EPS if cold else 0.8
    if with_tensors:
        temperatures = torch.rand(rows, generator=generator) + 0.3
        temperatures[::3] = 0.0
        options |= {"temperature": temperatures, "top_p": torch.rand(rows, generator=generator) + 0.2}
    options["num_semantic_ids"] = ids - 1

    def generators() -> dict[int, torch.Generator]:
        if shared:
            one = torch.Generator().manual_seed(seed)
            return dict.fromkeys(range(rows), one)
        return {i: torch.Generator().manual_seed(seed + i) for i in range(rows) if i % 4 != 3}

    torch.manual_seed(seed)
    mine, theirs = generators(), generators()
    batched = ras_sample_batch(logits, recent, **options, generators=mine, num_reqs=rows)  # type: ignore[arg-type]
    after = torch.rand(1)
    torch.manual_seed(seed)
    expected = []
    for row in range(rows):
        own = {k: v[row : row + 1] if isinstance(v, Tensor) else v for k, v in options.items()}
        expected.append(
            ras_sample_semantic(
                logits[row : row + 1],
                recent[row : row + 1],
                **own,  # type: ignore[arg-type]
                generator=theirs.get(row),
            )
        )
    assert torch.equal(batched, torch.cat(expected))
    assert torch.equal(after, torch.rand(1))
    for row, left in mine.items():
        assert torch.equal(left.get_state(), theirs[row].get_state())


@settings(max_examples=40, deadline=None)
@given(seed=seeds, rows=st.integers(1, 9), ids=st.sampled_from([33, 64, 257, 4097]))
def test_drawing_with_given_noise_does_not_depend_on_the_batch(seed: int, rows: int, ids: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, ids, generator=generator) * 2
    noise = torch.rand(rows, ids, generator=generator)
    per_row = {name: torch.rand(rows, generator=generator) for name in ("temperature", "top_p")}
    per_row["top_k"] = torch.randint(0, ids, (rows,), generator=generator)
    whole = engine.pick(engine.rank(logits), noise, engine.truncation(ids, logits.device, **per_row))
    for row in range(rows):
        at = slice(row, row + 1)
        kept = engine.truncation(ids, logits.device, **{name: value[at] for name, value in per_row.items()})
        assert torch.equal(whole[at], engine.pick(engine.rank(logits[at]), noise[at], kept))


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_top_k_is_kept_in_a_row_with_infinities_or_nan(value: float) -> None:
    """The sums of such a row are NaN, which is above nothing: only the ranks say what goes."""
    logits = torch.tensor([[0.0, value, 1.0, 2.0, -1.0], [0.0, 3.0, 1.0, 2.0, -1.0]])
    for top_k, top_p in ((2, 0.9), (torch.tensor([2, 2]), torch.tensor([0.999, 1.0]))):
        kept = ~filter_top_k_top_p(logits, top_k, top_p).isneginf()
        assert not kept[:, [0, 2, 4]].any()
        assert kept[:, 1].all()
        assert kept[1].sum() <= 2


def test_rows_of_nan_are_drawn_in_a_batch_as_alone() -> None:
    logits = torch.full((3, 9), float("nan"))
    logits[1] = torch.randn(9, generator=torch.Generator().manual_seed(0))
    recent = torch.full((3, 2), -1)
    options = {"temperature": 0.8, "top_k": 4, "top_p": 0.9, "ras_temperature": 1.0, "ras_top_p": 0.9}
    batch = ras_sample_batch(
        logits,
        recent,
        **options,
        num_semantic_ids=8,
        generators={row: torch.Generator().manual_seed(row) for row in range(3)},
        num_reqs=3,
    )
    alone = [
        ras_sample_semantic(
            logits[row : row + 1],
            recent[row : row + 1],
            **options,
            num_semantic_ids=8,
            generator=torch.Generator().manual_seed(row),
        )
        for row in range(3)
    ]
    assert torch.equal(batch, torch.cat(alone))


def test_float64_stays_float64_in_values_and_in_the_generator() -> None:
    """Ids that float32 cannot tell apart are; the noise is float64, which takes more of the generator."""
    logits = torch.tensor([[1.0, 1.0 + 1e-12, 0.0]], dtype=torch.float64)
    assert filter_top_k_top_p(logits, 1, 1.0).argmax().item() == 1
    assert sample_scores(logits, temperature=0.0, top_k=0, top_p=1.0).tolist() == [1]
    scores = torch.randn(4, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    taken, expected = torch.Generator().manual_seed(2), torch.Generator().manual_seed(2)
    drawn = gumbel_argmax_sample(scores, taken)
    noise = torch.rand(4, 7, dtype=torch.float64, generator=expected)
    assert torch.equal(drawn, (scores.softmax(-1) / -noise.log()).argmax(-1))
    assert torch.equal(taken.get_state(), expected.get_state())
    options = {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "ras_temperature": 1.0, "ras_top_p": 0.9}
    one, two = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    recent = torch.zeros(4, 3, dtype=torch.long)
    batch = ras_sample_batch(
        scores, recent, **options, num_semantic_ids=6, generators=dict.fromkeys(range(4), one), num_reqs=4
    )
    alone = [
        ras_sample_semantic(scores[i : i + 1], recent[i : i + 1], **options, num_semantic_ids=6, generator=two)
        for i in range(4)
    ]
    assert torch.equal(batch, torch.cat(alone))
    assert torch.equal(one.get_state(), two.get_state())


def test_the_softmax_is_that_of_the_sorted_logits() -> None:
    """Documented so: where a threshold meets a sum to the last bit, the order of its terms decides."""
    for seed in range(50):
        logits = torch.randn(1, 300, generator=torch.Generator().manual_seed(seed))
        scores, order = logits.sort(descending=True, stable=True)
        sums = scores.softmax(-1).cumsum(-1)
        for rank in (1, 5, 60):
            kept = ~filter_top_k_top_p(logits, 0, sums[:, rank].clone()).isneginf()
            assert kept.sum() == rank + 1
            assert kept[0, order[0, : rank + 1]].all()


def test_cold_rows_and_scalars() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0], [3.0, 0.0, 1.0]])
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    cold = sample_scores(logits, temperature=0.0, top_k=0, top_p=1.0, generator=generator)
    assert cold.tolist() == [1, 0]
    assert torch.equal(before, generator.get_state())
    warm = sample_scores(logits, temperature=torch.zeros(2), top_k=0, top_p=1.0, generator=generator)
    assert warm.tolist() == [1, 0]
    assert not torch.equal(before, generator.get_state())


def test_the_race_follows_the_distribution() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    drawn = gumbel_argmax_sample(probabilities.log().expand(20_000, -1), torch.Generator().manual_seed(1))
    shares = torch.bincount(drawn, minlength=4) / len(drawn)
    assert torch.allclose(shares, probabilities, atol=0.012)


def test_a_repeat_is_drawn_again_and_never_masked() -> None:
    """With one candidate left, the second draw gives the same id; end of speech is not drawn again at all."""
    logits = torch.full((1, 5), float("-inf"))
    logits[0, 2] = 0.0
    options = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "ras_temperature": 1.0, "ras_top_p": 1.0}
    recent = torch.tensor([[2, -1]])
    assert ras_sample_semantic(logits, recent, **options, num_semantic_ids=4).tolist() == [2]
    end = torch.tensor([[0.0, 0, 0, 0, 60.0]])
    generator = torch.Generator().manual_seed(0)
    kept = ras_sample_semantic(
        end, torch.tensor([[4]]), **{**options, "ras_temperature": 1000.0}, num_semantic_ids=4, generator=generator
    )
    assert kept.tolist() == [4]
