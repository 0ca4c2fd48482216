"""The dense language model with int8 weights: its distance from float32, and where int8 is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import oscine
from oscine.errors import UnsupportedFeature, WeightMismatch
from oscine.families.audex.family import load
from oscine.families.audex.model.dense import DenseLM
from oscine.families.audex.weights.loading import load_lm
from oscine.families.audex.weights.rules import INT8_SUFFIXES, as_int8
from oscine.kernels.int8 import Int8Linear
from oscine.registry import FamilySpec, families
from tests.unit.audex_models import CPU, random_hybrid, tiny_folder

WEIGHT_BOUND, ARITHMETIC_BOUND = 0.06, 5e-4
"""Largest distance of a row of logits as a share of its size: 0.044 and 1.5e-4 were measured on the miniature."""


def languages(golden_root: Path) -> tuple[DenseLM, DenseLM]:
    """The miniature's language model with int8 weights and with float32 ones."""
    folder = tiny_folder(golden_root)
    models = [load(folder, name="t", device=CPU, dtype=dtype)._model.lm for dtype in (torch.int8, torch.float32)]
    return models[0], models[1]  # type: ignore[return-value]


@torch.inference_mode()
def logits_of(lm: DenseLM, ids: Tensor) -> Tensor:
    """Logits [time, vocab] of a prompt and, token by token, of what follows it."""
    lane, prompt = lm.new_lane(8), 7
    rows = [lm.logits(lm.prefill(lm.embed(ids[:prompt]), lane))]
    rows += [lm.logits(lm.decode(token[None], [lane])) for token in ids[prompt:]]
    return torch.cat(rows)


def distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm(dim=-1).div(expected.norm(dim=-1)).max())


def test_distance_from_float32(golden_root: Path) -> None:
    narrow, wide = languages(golden_root)
    ids = torch.randint(0, wide.config.vocab_size, (40,), generator=torch.Generator().manual_seed(3))
    found, expected = logits_of(narrow, ids), logits_of(wide, ids)
    assert 0 < distance(found, expected) < WEIGHT_BOUND
    assert (found.argmax(-1) == expected.argmax(-1)).float().mean() > 0.9  # 0.95 was measured
    for name, layer in wide.named_modules():
        twin = narrow.get_submodule(name)
        if isinstance(twin, Int8Linear):  # the same weights in float32: what is left is the arithmetic
            layer.weight = torch.nn.Parameter(twin.weight * twin.scale[:, None], requires_grad=False)
    assert distance(found, logits_of(wide, ids)) < ARITHMETIC_BOUND


def test_every_matrix_but_the_embeddings_is_int8(golden_root: Path) -> None:
    narrow, wide = languages(golden_root)
    held = {name for name, value in narrow.state_dict().items() if value.dtype == torch.int8}
    assert held == {name for name, value in wide.state_dict().items() if value.dim() == 2 and "embed" not in name}
    assert all(name.endswith(INT8_SUFFIXES) for name in held)


def test_requests_of_every_task(golden_root: Path) -> None:
    tone = (np.sin(np.arange(8000, dtype=np.float32) / 9), 16000)
    with oscine.load(tiny_folder(golden_root), device="cpu", dtype="int8") as model:
        whole = model.generate("Hello there.", seed=3, temperature=1.0, cfg_scale=2.0, max_new_tokens=40)
        assert len(whole.audio)
        again = np.concatenate(
            [c.samples for c in model.stream("Hello there.", seed=3, temperature=1.0, cfg_scale=2.0, max_new_tokens=40)]
        )
        assert np.array_equal(again, whole.audio)
        assert len(model.sound("rain", duration_s=0.1, seed=1).audio)
        assert model.ask(tone, "How many?", max_new_tokens=4).usage["output_tokens"] <= 4


def test_the_hybrid_model_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="30B") as refused:
        load_lm(random_hybrid(64).config, {}, device=CPU, dtype=torch.int8)
    assert refused.value.param == "dtype"


@pytest.mark.parametrize("spec", [spec for spec in families() if "int8" not in spec.dtypes], ids=lambda spec: spec.name)
def test_other_families_refuse(spec: FamilySpec) -> None:
    spec.check_dtype("float32")
    with pytest.raises(UnsupportedFeature, match="int8"):
        spec.check_dtype("int8")


def test_the_refusal_reaches_load() -> None:
    with pytest.raises(UnsupportedFeature, match="int8"):
        oscine.load(device="cpu", dtype="int8")  # the bundled voice


def test_weights_that_are_no_numbers() -> None:
    bad = torch.ones(3, 4)
    bad[1, 2] = float("inf")
    with pytest.raises(WeightMismatch, match="down_proj.weight holds NaN or infinite"):
        list(as_int8([("model.layers.0.mlp.down_proj.weight", bad)]))
