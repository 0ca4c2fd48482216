"""AuK on a CUDA device: captured graphs replay compiled kernels, and results are the eager ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import oscine
from oscine.families.auk import AuKPipeline, AuKRequest
from oscine.families.auk.backends.compiled import VAE_BUCKETS, WARM_FRAMES, WARM_REF_FRAMES, Granularity
from oscine.families.auk.backends.graphs import captured
from tests.gpu import NEEDS_CUDA
from tests.unit.auk_factory import TINY_ARCH, write_released

pytestmark = [
    *NEEDS_CUDA,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning"),  # inductor's own import
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_released(tmp_path_factory.mktemp("auk"))


def request(seconds: float, *, clip: bool = False, tokens: int = 9) -> AuKRequest:
    condition = torch.randn(tokens, TINY_ARCH["text_hidden_dim"], generator=torch.Generator().manual_seed(tokens))
    audio = np.random.default_rng(0).standard_normal(12000).astype(np.float32) * np.float32(0.1) if clip else None
    return AuKRequest(condition=condition, gen_seconds=seconds, num_steps=3, seed=1, audio=audio)


def audio(pipeline: AuKPipeline, asked: AuKRequest) -> Tensor:
    result = pipeline.forward(asked)[0].audio
    assert result is not None
    return result


@torch.inference_mode()
def test_a_captured_call_replays_with_new_inputs() -> None:
    def work(a: Tensor, b: Tensor) -> Tensor:
        return a @ b + 1

    shapes = [(3, 4), (4, 5)]
    replay = captured(work, [torch.zeros(shape, device="cuda") for shape in shapes])
    first, second = ([torch.randn(shape, device="cuda") for shape in shapes] for _ in range(2))
    results = [replay(*first), replay(*second)]  # the second replay must not overwrite the first result
    for got, inputs in zip(results, (first, second), strict=True):
        torch.testing.assert_close(got, work(*inputs))


@pytest.mark.parametrize("granularity", ["regional", "full"])
def test_graphs_are_captured_before_the_first_request(folder: Path, granularity: Granularity) -> None:
    """Every warm shape and every bucket; then requests equal the eager ones and the kernels are the compiler's."""
    plain, compiled = (
        AuKPipeline.from_folder(folder, device="cuda", granularity=kind) for kind in ("off", granularity)
    )
    compiled.setup_compile()
    assert compiled._compiled is not None
    steps, decoder = compiled._compiled
    assert sorted(bucket for _, bucket in decoder._graphs) == list(VAE_BUCKETS)
    assert len(steps._graphs) == len(WARM_FRAMES) * len(WARM_REF_FRAMES)
    for asked in (request(0.5), request(0.5, clip=True), request(3.0, tokens=80), request(13.0)):
        torch.testing.assert_close(audio(compiled, asked), audio(plain, asked), rtol=1e-3, atol=1e-4)
    assert sorted(bucket for _, bucket in decoder._graphs) == list(VAE_BUCKETS)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        audio(compiled, request(0.5))
        torch.cuda.synchronize()
    assert any("triton" in event.key for event in profile.key_averages())


def test_the_engine_gives_what_the_cpu_gives(folder: Path) -> None:
    """Float32 on both; noise is drawn on the CPU, so a seed means the same."""
    results = []
    for device in ("cpu", "cuda"):
        with oscine.load(folder, device=device, dtype="float32") as model:
            results.append(model.generate("Hello there.", duration_s=0.6, num_steps=3, seed=5).audio)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-3, atol=1e-3)


def test_bfloat16_runs_and_stays_close(folder: Path) -> None:
    wide, narrow = (
        audio(AuKPipeline.from_folder(folder, device="cuda", dtype=dtype), request(0.5, clip=True))
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert float((narrow - wide).norm() / wide.norm()) < 0.1
