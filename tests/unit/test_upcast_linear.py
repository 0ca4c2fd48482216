"""Half-precision weights widened as they are used: exact as float32 sums, the same parameters, few rows left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from oscine.families.audex.weights.loading import load_model
from oscine.families.auk import AuKPipeline, AuKRequest
from oscine.kernels.upcast_linear import BLOCK_VALUES, FEWEST_ROWS, UpcastLinear, is_slow, to_upcast_linear
from tests.unit.audex_models import CPU, tiny_folder
from tests.unit.auk_factory import write_released


def no_units(monkeypatch: pytest.MonkeyPatch, **units: bool) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"architecture": "x86_64", **units})


def model(dtype: torch.dtype, *, bias: bool = True) -> nn.Sequential:
    """Two layers, the first of several blocks of weights and a rest."""
    torch.manual_seed(0)
    width = BLOCK_VALUES // 2**10
    layers = nn.Sequential(nn.Linear(width, 2**11 + 7, bias=bias), nn.ModuleDict({"out": nn.Linear(8, 3, bias=bias)}))
    return layers.to(dtype).requires_grad_(False)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_many_rows_are_the_float32_product_rounded_once(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, bias: bool
) -> None:
    no_units(monkeypatch)
    layers = model(dtype, bias=bias)
    assert to_upcast_linear(layers) == 2
    wide = layers[0]
    assert isinstance(wide, UpcastLinear)
    x = torch.randn(2, FEWEST_ROWS, wide.in_features).to(dtype)
    exact = x.double() @ wide.weight.double().T + (wide.bias.double() if bias else 0.0)
    out = wide(x)
    assert out.dtype == dtype
    step = torch.finfo(dtype).eps
    assert bool(((out.double() - exact).abs() <= 0.51 * step * exact.abs() + 1e-5).all())


def test_parameters_and_names_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    no_units(monkeypatch)
    layers = model(torch.bfloat16)
    before = dict(layers.named_parameters())
    to_upcast_linear(layers)
    after = dict(layers.named_parameters())
    assert list(before) == list(after)
    assert all(before[name] is after[name] for name in before)
    assert to_upcast_linear(layers) == 0


def test_few_rows_are_the_plain_product(monkeypatch: pytest.MonkeyPatch) -> None:
    no_units(monkeypatch)
    layers = model(torch.bfloat16)
    x = torch.randn(FEWEST_ROWS - 1, layers[0].in_features).bfloat16()
    plain = layers[0](x)
    to_upcast_linear(layers)
    assert torch.equal(layers[0](x), plain)


def test_what_is_not_slow_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    no_units(monkeypatch)
    assert to_upcast_linear(model(torch.float32)) == 0
    assert not is_slow(torch.zeros(1, dtype=torch.bfloat16, device="meta"))
    no_units(monkeypatch, amx_bf16=True)
    assert to_upcast_linear(model(torch.bfloat16)) == 0
    assert to_upcast_linear(model(torch.float16)) == 2
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"architecture": "aarch64"})
    assert to_upcast_linear(model(torch.bfloat16)) == 0


def test_auk_in_bfloat16_is_held_so_and_close_to_float32(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_units(monkeypatch)
    folder = write_released(tmp_path)
    wide, exact = (AuKPipeline.from_folder(folder, dtype=dtype) for dtype in (torch.bfloat16, torch.float32))
    assert all(isinstance(layer, UpcastLinear) for layer in wide.dit.packed_linears())
    assert not any(isinstance(layer, UpcastLinear) for layer in exact.dit.packed_linears())
    condition = torch.randn(20, exact.dit.text_hidden_dim, generator=torch.Generator().manual_seed(0))
    request = AuKRequest(condition=condition, gen_seconds=0.5, num_steps=1, seed=0, output_type="latent")
    got, expected = (pipeline.forward(request)[0].latents for pipeline in (wide, exact))
    assert got is not None
    assert expected is not None
    assert float((got - expected).norm() / expected.norm()) < 0.02


def test_audex_in_bfloat16_is_held_so_and_close_to_float32(monkeypatch: pytest.MonkeyPatch, golden_root: Path) -> None:
    no_units(monkeypatch)
    folder = tiny_folder(golden_root)
    wide, exact = (load_model(folder, device=CPU, dtype=dtype).lm for dtype in (torch.bfloat16, torch.float32))
    assert sum(isinstance(layer, UpcastLinear) for layer in wide.modules()) > 6
    ids = torch.arange(30, 70)
    with torch.inference_mode():
        got, expected = (lm.logits(lm.prefill(lm.embed(ids), lm.new_lane(8))) for lm in (wide, exact))
    assert float((got - expected).norm() / expected.norm()) < 0.02
