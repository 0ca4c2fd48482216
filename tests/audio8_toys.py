"""Small Audio8 models with random weights, and jobs for them."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from oscine.families.audio8.backends.eager import EagerBackend
from oscine.families.audio8.backends.native import load_library, native_backend
from oscine.families.audio8.backends.protocol import Backend
from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model.dual_ar import DualAR
from oscine.families.audio8.prompt import PromptIds
from oscine.families.audio8.rows import Sampling
from oscine.families.audio8.slots import Audio8Inputs
from oscine.families.audio8.weights import build_lm
from oscine.kernels.fp16 import to_fp16_weights
from oscine.types import Job

TINY = {
    "vocab_size": 120, "dim": 32, "n_layer": 2, "n_head": 4, "n_local_heads": 2, "head_dim": 8,
    "intermediate_size": 48, "max_seq_len": 96, "codebook_size": 32, "num_codebooks": 4, "semantic_begin_id": 80,
    "semantic_end_id": 111, "eos_token_id": 3, "n_fast_layer": 2, "fast_dim": 24, "fast_n_head": 2,
    "fast_n_local_heads": 1, "fast_head_dim": 12, "fast_intermediate_size": 40,
}  # fmt: skip

MIDDLE = {
    "vocab_size": 700, "dim": 256, "n_layer": 4, "n_head": 4, "n_local_heads": 2, "head_dim": 64,
    "intermediate_size": 640, "max_seq_len": 1024, "codebook_size": 256, "num_codebooks": 6, "semantic_begin_id": 400,
    "semantic_end_id": 655, "eos_token_id": 3, "n_fast_layer": 2, "fast_dim": 192, "fast_n_head": 3,
    "fast_n_local_heads": 1, "fast_head_dim": 64, "fast_intermediate_size": 384,
}  # fmt: skip

needs_native = pytest.mark.skipif(load_library() is None, reason="no C compiler when oscine was installed")

HYBRID = {"slow_backbone": "falcon_h1", "mamba_n_heads": 4, "mamba_d_state": 16, "mamba_chunk_size": 16}


def lm_config(values: dict[str, int], *, hybrid: bool = False) -> LMConfig:
    """A configuration of these sizes, dense or hybrid."""
    inner = {"mamba_d_ssm": 2 * values["dim"], "mamba_d_head": values["dim"] // 2, **HYBRID} if hybrid else {}
    return LMConfig.from_dict({**values, **inner})


@functools.lru_cache(maxsize=8)
def random_lm(
    config: LMConfig, *, seed: int = 0, dtype: torch.dtype = torch.float32, half: bool = False, packed: bool = True
) -> DualAR:
    """A model with random weights of a plausible scale, filled through the real loader.

    `half`: float16 numbers, held as such if `packed`.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.device("meta"):
        names = DualAR(config).state_dict()
    tensors = []
    for name, like in names.items():
        value = torch.randn(like.shape, generator=generator)
        if "norm" in name:
            value = 1 + 0.1 * value
        elif "embed" not in name and value.dim() == 2:
            value = value * (1.5 / like.shape[1] ** 0.5)
        elif name.endswith("A_log"):
            value = 0.5 * value
        tensors.append((name, value.half().float() if half else value))
    model = build_lm(config, tensors, device="cpu", dtype=dtype)
    if half and packed:
        to_fp16_weights(model)
    return model


@functools.lru_cache(maxsize=8)
def random_backend(
    config: LMConfig, kind: str = "eager", *, seed: int = 0, dtype: torch.dtype = torch.float32, half: bool = False
) -> Backend:
    """What runs the model that `random_lm` makes: torch ("eager") or compiled steps ("native"), which must be there."""
    if kind == "eager":
        return EagerBackend(random_lm(config, seed=seed, dtype=dtype, half=half))
    made = native_backend(random_lm(config, seed=seed, half=half, packed=False))
    assert made is not None
    return made


def random_job(
    config: LMConfig,
    seed: int,
    *,
    max_frames: int = 24,
    sampling: Sampling | None = None,
    num_text: int | None = None,
    num_reference: int | None = None,
    min_new_frames: int = 1,
) -> Job:
    """A job whose prompt, reference and stream of noise follow from `seed`."""
    rng = np.random.default_rng(seed)
    num_text = int(rng.integers(2, 30)) if num_text is None else num_text
    num_reference = int(rng.integers(0, 12)) if num_reference is None else num_reference
    before, after = (tuple(map(int, rng.integers(4, config.semantic_begin_id, n))) for n in (5, num_text))
    codes = rng.integers(0, config.codebook_size, (config.num_codebooks, num_reference)) if num_reference else None
    inputs = Audio8Inputs(
        prompt=PromptIds(before=before, after=after),
        reference=codes,
        sampling=sampling or Sampling(temperature=0.9, top_k=0, top_p=0.95),
        min_new_frames=min_new_frames,
    )
    return Job(id=f"job {seed}", inputs=inputs, seed=seed, max_frames=max_frames, memory=0)
