"""Linear layers held in half precision: the same product, a row by itself, and no rounding of weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from oscine.kernels import fp16
from oscine.kernels.fp16 import Fp16Linear, fp16_matrix, kernels_work, to_fp16_weights

needs_kernels = pytest.mark.skipif(not kernels_work(), reason="torch has no float16 products (FBGEMM) here")


def weights(num_in: int, num_out: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(num_in)
    return (torch.randn(num_out, num_in, generator=generator) * 0.02).to(dtype).float()


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("num_in", "num_out"), [(1, 1), (37, 11), (256, 512), (1024, 1100)])
def test_a_product_is_that_of_the_weights_and_a_row_is_the_same_in_any_company(
    num_in: int, num_out: int, dtype: torch.dtype
) -> None:
    weight = weights(num_in, num_out, dtype)
    bias = torch.randn(num_out, generator=torch.Generator().manual_seed(1))
    matrix = fp16_matrix(weight, bias)
    assert matrix is not None
    x = torch.randn(70, num_in, generator=torch.Generator().manual_seed(2))
    together = matrix(x)
    exact = x.double() @ weight.double().t() + bias.double()
    bound = 1e-6 * (x.double().abs() @ weight.double().abs().t() + bias.double().abs())
    assert ((together.double() - exact).abs() <= bound).all()
    for count in (1, 2, 3, 15, 16, 33):
        assert torch.equal(matrix(x[:count]), together[:count])
        assert torch.equal(matrix(x[-count:]), together[-count:])
    assert torch.equal(matrix(x.view(7, 10, num_in)), together.view(7, 10, num_out))
    x[3] = float("nan")
    assert torch.equal(matrix(x)[4:], together[4:])


@needs_kernels
def test_short_and_threaded_calls_agree() -> None:
    weight, x = weights(300, 500, torch.float16), torch.randn(5, 300)
    assert torch.equal(fp16._packed_short(weight)(x), fp16._packed_threaded(weight)(x))


def test_weights_that_need_rounding_stay_as_they_are() -> None:
    assert fp16_matrix(torch.randn(64, 64, generator=torch.Generator().manual_seed(0))) is None
    assert fp16_matrix(torch.tensor([[1.0, 2.0**-60]])) is None
    assert fp16_matrix(torch.tensor([[1.0, float("inf")]])) is None
    assert fp16_matrix(torch.tensor([[1.0, float("nan")]])) is None
    assert fp16_matrix(torch.ones(4, 4, dtype=torch.bfloat16)) is None


@needs_kernels
def test_small_and_large_bfloat16_weights_fit_by_a_power_of_two() -> None:
    weight = torch.tensor([[3.0 * 2**20, -1.0], [7.0, 2.0**-14]])
    matrix = fp16_matrix(weight)
    assert matrix is not None
    assert matrix.factor is not None
    assert torch.equal(matrix(torch.eye(2)), weight.t())


@needs_kernels
def test_only_layers_that_lose_nothing_are_replaced() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 6), nn.LayerNorm(6))
    model[0].weight.data, model[0].bias.data = torch.eye(8), torch.ones(8)
    before = model[1]
    assert to_fp16_weights(model) == 1
    assert isinstance(model[0], Fp16Linear)
    assert (model[0].in_features, model[0].out_features) == (8, 8)
    assert model[1] is before
    x = torch.randn(3, 8)
    assert torch.equal(model[0](x), x + 1)


def test_without_the_kernels_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp16, "kernels_work", lambda: False)
    assert fp16_matrix(torch.eye(4)) is None


def test_kernels_that_are_missing_or_wrong_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels_work.cache_clear()
    monkeypatch.setattr(fp16, "_packed_short", lambda weight: lambda x: x @ weight.t() + 1)
    assert not kernels_work()
    kernels_work.cache_clear()

    def missing(weight: Tensor) -> object:
        raise RuntimeError("not built with FBGEMM")

    monkeypatch.setattr(fp16, "_packed_short", missing)
    assert not kernels_work()
    monkeypatch.undo()
    kernels_work.cache_clear()
