"""Audex on a CUDA device: logits, int8 weights and joint decoding keep near to the CPU's numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import oscine
from oscine.families.audex.codec.speech_decoder import Chunk
from oscine.families.audex.family import AudexFamily, load
from oscine.families.audex.model.dense import DenseLM
from tests.gpu import NEEDS_CUDA
from tests.unit.audex_models import tiny_folder

pytestmark = [
    *NEEDS_CUDA,
    pytest.mark.timeout(300),
]
DEVICE = "cuda"


def family_on(device: str, dtype: torch.dtype, golden_root: Path) -> AudexFamily:
    return load(tiny_folder(golden_root), name="tiny", device=torch.device(device), dtype=dtype)


@torch.inference_mode()
def logits_of(family: AudexFamily) -> Tensor:
    """Logits [time, vocab] on the CPU of a prompt and, token by token, of what follows it."""
    lm = family._model.lm
    assert isinstance(lm, DenseLM)
    ids = torch.randint(0, lm.config.vocab_size, (30,), generator=torch.Generator().manual_seed(3))
    ids = ids.to(lm.model.embed_tokens.weight.device)
    lane = lm.new_lane(8)
    rows = [lm.logits(lm.prefill(lm.embed(ids[:7]), lane))]
    rows += [lm.logits(lm.decode(token[None], [lane])) for token in ids[7:]]
    return torch.cat(rows).cpu()


@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 1e-4), (torch.int8, 0.05), (torch.bfloat16, 0.05)], ids=["f32", "int8", "bf16"]
)
def test_logits_are_those_of_the_cpu(golden_root: Path, dtype: torch.dtype, bound: float) -> None:
    """int8 is compared with int8: on CUDA its activations are bfloat16, which is what the bound is for."""
    reference = torch.float32 if dtype == torch.bfloat16 else dtype
    expected = logits_of(family_on("cpu", reference, golden_root))
    found = logits_of(family_on(DEVICE, dtype, golden_root))
    assert float((found - expected).norm() / expected.norm()) < bound


@torch.inference_mode()
def test_streams_decoded_together_are_those_alone(golden_root: Path) -> None:
    decoder = family_on(DEVICE, torch.float32, golden_root)._model.speech_decoder
    counts = (1, 25, 16, 15, 4)

    def chunk(number: int) -> Chunk:
        ids = [(31 * i + number) % 64 for i in range(counts[number] + decoder.config.lookahead_steps)]
        return Chunk(ids=ids, frames=counts[number], lane=decoder.new_lane())

    together = decoder.decode([chunk(number) for number in range(len(counts))])
    for number, samples in enumerate(together):
        (alone,) = decoder.decode([chunk(number)])
        assert torch.allclose(samples, alone, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_requests_through_the_api(golden_root: Path, dtype: str) -> None:
    with oscine.load(tiny_folder(golden_root), device=DEVICE, dtype=dtype) as model:  # type: ignore[arg-type]
        first, second = (
            model.generate("Hello there.", seed=3, temperature=1.0, cfg_scale=2.0, max_new_tokens=60) for _ in range(2)
        )
        assert len(first.audio) == len(second.audio) > 0
        assert len(model.sound("rain on a tin roof", duration_s=0.2, seed=1).audio) > 0
