"""The measured rule, and the one that needs no facts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from oscine.kernels.vector import pad_to_vector_width
from oscine.runtime import exact
from oscine.runtime.exact import ExactRule, check_exact, fixed_rule


@given(width=st.integers(1, 3000))
def test_widths_hold_and_keep_to_the_pattern(width: int) -> None:
    rounded = ExactRule().round_width(width)
    assert width <= rounded < width + 256
    assert rounded % 64 == 0
    assert rounded % 512 <= 256
    assert ExactRule().round_width(rounded) == rounded


@given(rows=st.integers(1, 200), low=st.integers(1, 12), factor=st.integers(2, 6))
def test_calls_cover_all_rows_and_only_the_last_needs_padding(rows: int, low: int, factor: int) -> None:
    rule = ExactRule(min_rows=low, max_rows=low * factor)
    sizes = rule.call_sizes(rows)
    assert sum(sizes) == rows
    assert all(low <= size <= low * factor for size in sizes[:-1])
    assert sizes[-1] <= low * factor
    assert len(sizes) == 1 or sizes[-1] >= low
    for size in sizes:
        parts = rule.pair_sizes(max(size, low))
        assert sum(parts) == max(size, low)
        assert all(low <= 2 * part <= low * factor for part in parts)


def test_the_fixed_rule_has_one_shape() -> None:
    rule = fixed_rule(slots=4, capacity=1000, reason="why")
    assert rule.call_sizes(10) == [4, 4, 2]
    assert rule.pair_sizes(4) == [4]
    assert {rule.round_width(width) for width in (1, 500, 999, 1000)} == {1000}
    assert (rule.holds, rule.reason) == (False, "why")


@pytest.mark.parametrize("sizes", [[(384, 128)], [(256, 512), (64, 256)], [(48, 80), (32, 64)]])
def test_the_measured_rule_holds_for_other_data(sizes: list[tuple[int, int]]) -> None:
    """Rows of one call equal those of any other call the rule allows."""
    rule = check_exact("cpu", torch.float32, linears=sizes, attention=(1, 2, 32))
    assert rule.holds
    generator = torch.Generator().manual_seed(5)
    for num_in, num_out in sizes:
        x, weight = (torch.randn(n, num_in, generator=generator) for n in (rule.max_rows, num_out))
        bias = torch.randn(num_out, generator=generator)
        whole = F.linear(x, weight, bias)
        for rows in range(rule.min_rows, rule.max_rows + 1):
            assert torch.equal(F.linear(x[:rows], weight, bias), whole[:rows])
            assert torch.equal(F.linear(x[-rows:], weight, bias), whole[-rows:])


def test_products_that_differ_give_way_to_the_fixed_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_count(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x @ weight.T + x.shape[0]

    monkeypatch.setattr(exact.F, "linear", by_count)
    rule = check_exact("cpu", torch.float32, slots=6, linears=[(32, 32)], attention=(1, 1, 16))
    assert (rule.min_rows, rule.max_rows, rule.holds) == (6, 6, False)
    assert "products" in rule.reason
    assert rule.width_multiple == 64


def test_attention_that_differs_gives_way_to_the_full_width(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_width(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: torch.Tensor) -> torch.Tensor:
        return q + k.shape[2]

    monkeypatch.setattr(exact.F, "scaled_dot_product_attention", by_width)
    rule = check_exact("cpu", torch.float32, capacity=700, linears=[(32, 32)], attention=(1, 1, 16))
    assert {rule.round_width(width) for width in (1, 300, 700)} == {700}
    assert not rule.holds
    assert "masked tail" in rule.reason


def test_an_accelerator_is_promised_nothing() -> None:
    rule = check_exact("meta", torch.float32)
    assert (rule.min_rows, rule.holds) == (1, False)
    assert "meta" in rule.reason


@given(width=st.integers(1, 200), rows=st.integers(1, 9), seed=st.integers(0, 1000))
def test_elementwise_functions_do_not_see_the_place_of_a_row(width: int, rows: int, seed: int) -> None:
    x = torch.randn(1, width, generator=torch.Generator().manual_seed(seed))
    for function in (torch.exp, F.silu, F.softplus):
        batch = pad_to_vector_width(function, x.repeat(rows, 1))
        assert torch.equal(batch, pad_to_vector_width(function, x).expand(rows, -1))
        assert torch.allclose(batch, function(x).expand(rows, -1), rtol=1e-6, atol=1e-7)
