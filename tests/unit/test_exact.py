"""The measured rule, and the one that needs no facts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from oscine.kernels.vector import pad_to_vector_width
from oscine.runtime import exact
from oscine.runtime.exact import (
    MIN_MANY,
    ExactRule,
    RowRule,
    WidthRule,
    check_exact,
    few_rows,
    fixed_rows,
    fixed_width,
    key_widths,
    last_equal,
)


@given(width=st.integers(1, 3000))
def test_widths_hold_and_keep_to_the_pattern(width: int) -> None:
    rounded = WidthRule().round(width)
    assert width <= rounded < width + 256
    assert rounded % 64 == 0
    assert rounded % 512 <= 256
    assert WidthRule().round(rounded) == rounded


@given(rows=st.integers(1, 200), least=st.integers(1, 12), factor=st.integers(2, 6))
def test_calls_cover_all_rows_and_only_the_last_has_padding(rows: int, least: int, factor: int) -> None:
    rule = RowRule(least=least, most=least * factor)
    sizes = rule.sizes(rows)
    assert sum(sizes) == rule.padded(rows) == max(rows, least)
    assert all(least <= size <= least * factor for size in sizes)
    assert max(sizes) - min(sizes) <= 1
    for size in sizes:
        parts = rule.pair_sizes(size)
        assert sum(parts) == size
        assert all(least <= 2 * part <= least * factor for part in parts)


@pytest.mark.parametrize("rows", [1, 16, 17, 191, 192, 193, 1000, 4097])
@pytest.mark.parametrize(
    "rule",
    [RowRule(least=MIN_MANY), RowRule(least=MIN_MANY, most=192), RowRule(least=64, most=64, multiple=64), RowRule()],
)
def test_many_rows_are_cut_into_allowed_calls(rule: RowRule, rows: int) -> None:
    sizes = rule.sizes(rows)
    assert sum(sizes) == rule.padded(rows) >= rows
    assert sum(sizes) - rows < max(sizes[-1], 2)
    assert all(rule.least <= size <= (rule.most or 10**6) and size % rule.multiple == 0 for size in sizes)
    x, layer = torch.randn(1, rule.padded(rows), 8), torch.nn.Linear(8, 4)
    torch.testing.assert_close(rule.apply(layer, x), layer(x))
    assert rule.pair_sizes(sizes[0])


def test_the_fixed_rule_has_one_shape() -> None:
    rows, width = fixed_rows(4, "why"), fixed_width(1000, "this")
    assert rows.sizes(10) == [4, 4, 4]
    assert rows.pair_sizes(4) == [4]
    assert {width.round(n) for n in (1, 500, 999, 1000)} == {1000}
    assert ExactRule(rows=rows, width=width).reason == "why; this"
    assert ExactRule(rows=rows, width=fixed_width(9, "why")).reason == "why"


def test_the_measure_stops_at_the_first_difference() -> None:
    same, other = torch.ones(2, 3), torch.zeros(2, 3)
    assert last_equal((16, 32, 64), [same, same, other]) == 32
    assert last_equal((16, 32), [torch.cat([same, other]), same]) == 0


@pytest.mark.parametrize("sizes", [[(384, 128)], [(256, 512), (64, 256)], [(48, 80), (32, 64)]])
def test_the_measured_rule_holds_for_other_data(sizes: list[tuple[int, int]]) -> None:
    """Rows of one call equal those of any other call the rule allows."""
    rule = check_exact("cpu", torch.float32, linears=sizes, attention=(1, 2, 32))
    assert not rule.reason
    assert rule.rows.most is not None
    generator = torch.Generator().manual_seed(5)
    for num_in, num_out in sizes:
        x, weight = (torch.randn(n, num_in, generator=generator) for n in (rule.rows.most, num_out))
        bias = torch.randn(num_out, generator=generator)
        whole = F.linear(x, weight, bias)
        for rows in range(rule.rows.least, rule.rows.most + 1):
            assert torch.equal(F.linear(x[:rows], weight, bias), whole[:rows])
            assert torch.equal(F.linear(x[-rows:], weight, bias), whole[-rows:])


def test_products_that_differ_give_way_to_the_fixed_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_count(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x @ weight.T + x.shape[0]

    monkeypatch.setattr(exact.F, "linear", by_count)
    rule = few_rows("cpu", torch.float32, [(32, 32)])
    assert rule == fixed_rows(exact.SLOTS, rule.reason)
    assert "products" in rule.reason


def test_attention_that_differs_gives_way_to_the_full_width(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_width(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor) -> torch.Tensor:
        return q + k.shape[2]

    monkeypatch.setattr(exact.F, "scaled_dot_product_attention", by_width)
    rule = key_widths("cpu", torch.float32, (1, 1, 16), capacity=700)
    assert {rule.round(width) for width in (1, 300, 700)} == {700}
    assert "masked tail" in rule.reason


def test_an_accelerator_is_promised_nothing() -> None:
    rule = check_exact("meta", torch.float32)
    assert rule.rows.sizes(1000) == [1000]
    assert rule.reason == "no promise on meta"


@given(width=st.integers(1, 200), rows=st.integers(1, 9), seed=st.integers(0, 1000))
def test_elementwise_functions_do_not_see_the_place_of_a_row(width: int, rows: int, seed: int) -> None:
    x = torch.randn(1, width, generator=torch.Generator().manual_seed(seed))
    for function in (torch.exp, F.silu, F.softplus):
        batch = pad_to_vector_width(function, x.repeat(rows, 1))
        assert torch.equal(batch, pad_to_vector_width(function, x).expand(rows, -1))
        assert torch.allclose(batch, function(x).expand(rows, -1), rtol=1e-6, atol=1e-7)
