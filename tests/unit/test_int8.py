"""Int8 linear layers: how near they are, and that a row's result is its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from oscine.errors import UnsupportedFeature
from oscine.kernels import int8
from oscine.kernels.int8 import Int8Linear, product, quantized, require_whole_products, to_int8_weights, widened_product


def matrix_and_rows(num_in: int, num_out: int, rows: int) -> tuple[Tensor, Tensor]:
    """A weight matrix with one large value a row, and input rows with one each: the hard case for one scale."""
    generator = torch.Generator().manual_seed(num_in + rows)
    weight, x = torch.randn(num_out, num_in, generator=generator), torch.randn(rows, num_in, generator=generator)
    weight[:, 3] *= 20
    x[:, 5] *= 50
    return weight, x


def test_weights_are_within_half_a_step() -> None:
    weight, _ = matrix_and_rows(70, 5000, 1)  # more rows than are widened at a time
    matrix = quantized(weight)
    assert matrix.weight.abs().max() == int8.LARGEST
    assert ((matrix.weight * matrix.scale[:, None] - weight).abs() <= 0.501 * matrix.scale[:, None]).all()
    halves = quantized(weight.bfloat16())
    assert torch.equal(halves.weight, quantized(weight.bfloat16().float()).weight)


@pytest.mark.parametrize(("num_in", "num_out", "rows"), [(32, 48, 1), (37, 11, 3), (512, 96, 40)])
def test_a_product_errs_by_the_last_step_of_its_rows_at_most(num_in: int, num_out: int, rows: int) -> None:
    weight, x = matrix_and_rows(num_in, num_out, rows)
    matrix = quantized(weight)
    held = matrix.weight.double() * matrix.scale.double()[:, None]
    exact = x.double() @ held.T
    step = x.abs().amax(-1, keepdim=True).double() / int8.LARGEST / int8.LOW_STEPS
    bound = 0.501 * step * held.abs().sum(-1) + 1e-6 * exact.abs()
    found = product(x, matrix)
    assert found.dtype == x.dtype
    assert ((found.double() - exact).abs() <= bound).all()
    assert torch.allclose(widened_product(x, matrix).double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_the_same_in_any_company(dtype: torch.dtype) -> None:
    weight, x = matrix_and_rows(300, 70, 67)
    matrix, x = quantized(weight), x.to(dtype)
    together = product(x, matrix)
    assert torch.equal(product(x.flip(0), matrix).flip(0), together)
    for count in (1, 2, 5, 16, 33):
        assert torch.equal(product(x[:count], matrix), together[:count])
    assert torch.equal(product(x.view(67, 1, 300), matrix)[:, 0], together)
    assert torch.equal(product(x, matrix[10:33]), together[:, 10:33])


def test_nothing_leaks_from_a_row_of_nan() -> None:
    weight, x = matrix_and_rows(64, 16, 4)
    matrix = quantized(weight)
    x[1, 7], x[2] = float("nan"), 0.0
    found = product(x, matrix)
    assert found[1].isnan().all()
    assert (found[2] == 0).all()
    assert torch.equal(found[[0, 3]], product(x[[0, 3]], matrix))


def test_layers_are_replaced_but_for_those_with_a_bias() -> None:
    module = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Sequential(nn.Linear(8, 4, bias=False)), nn.Linear(4, 4))
    to_int8_weights(module)
    kinds = [type(layer) for layer in module.modules() if not list(layer.children())]
    assert kinds == [Int8Linear, Int8Linear, nn.Linear]
    assert {name: tuple(value.shape) for name, value in module.state_dict().items() if "scale" in name} == {
        "0.scale": (8,),
        "1.0.scale": (4,),
    }


def test_a_sum_that_could_overflow_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="133144"):
        Int8Linear(int8.MOST_INPUTS + 1, 1)


def test_a_cpu_that_clips_its_sums_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    require_whole_products()
    monkeypatch.setattr(torch, "_int_mm", lambda a, b: (a.int() @ b.int()).clamp(-32768, 32767))
    with pytest.raises(UnsupportedFeature, match="not exact"):
        require_whole_products()
