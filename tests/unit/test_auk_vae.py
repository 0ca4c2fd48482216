"""Properties of the VAE for causal and non-causal configurations: any cutting gives the whole, and nothing sees further
than the stated context."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from oscine.families.auk import AuKVAE
from oscine.families.auk.codec.filters import kaiser_sinc_taps
from tests.unit.auk_factory import TINY_VAE, random_state

VARIANTS: dict[str, dict[str, Any]] = {
    "released": {},
    "plain filters": {"act_causal": False},
    "linear snake": {"snake_logscale": False},
    "not causal": {"causal": False, "act_causal": False},
    "long kernels": {"causal": False, "upsample_kernel_sizes": [8, 6]},
}
SMALL = {
    **TINY_VAE, "upsample_rates": [2, 2], "upsample_kernel_sizes": [4, 4], "downsample_rates": [2, 2],
    "resblock_kernel_sizes": [3, 5], "resblock_dilation_sizes": [[1, 2], [1]],
}  # fmt: skip


def build(variant: str) -> AuKVAE:
    vae = AuKVAE.from_config({**SMALL, **VARIANTS[variant]})
    state = random_state(vae, 3)
    state["global_log_std"] = state["global_log_std"].abs() + 0.5
    vae.load_state_dict(state)
    vae.remove_weight_norm()
    return vae


def latents(frames: int, seed: int = 0) -> Tensor:
    return torch.randn(1, frames, SMALL["latent_dim"], generator=torch.Generator().manual_seed(seed))


def streamed(vae: AuKVAE, z: Tensor, sizes: list[int]) -> Tensor:
    stream, start, parts = vae.open_decoder(), 0, []
    for size in sizes:
        parts.append(stream.push(z[:, start : start + size]))
        start += size
    return torch.cat([*parts, stream.push(z[:, start:], final=True)], dim=1)


@pytest.mark.parametrize("variant", sorted(VARIANTS))
@pytest.mark.parametrize("sizes", [[1] * 50, [3, 0, 17], [49, 1], []])
def test_any_cutting_equals_the_whole(variant: str, sizes: list[int]) -> None:
    """An empty last push, as the engine's decoder makes it, included."""
    vae, z = build(variant), latents(50)
    torch.testing.assert_close(streamed(vae, z, sizes), vae.decode(z), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_windows_equal_the_whole(variant: str) -> None:
    vae, z = build(variant), latents(150)
    tile = sum(vae.decode_context_frames()) + 7
    for sizes in ((), (tile - 3, tile)):
        torch.testing.assert_close(vae.decode_windows(z, tile, sizes), vae.decode(z), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_no_sample_sees_beyond_the_context(variant: str) -> None:
    vae, z, at = build(variant), latents(120), 60
    left, right = vae.decode_context_frames()
    changed = z.clone()
    changed[:, at] += 3
    hop = vae.config.hop_length
    moved = (vae.decode(changed) != vae.decode(z))[0].nonzero()[:, 0] // hop
    assert at - right <= int(moved.min()) <= at <= int(moved.max()) <= at + left


def test_one_frame_is_enough() -> None:
    vae = build("released")
    assert vae.decode(latents(1)).shape == (1, vae.config.hop_length)
    assert vae.encode(torch.randn(1, vae.config.hop_length)).shape == (1, 1, SMALL["latent_dim"])


@pytest.mark.parametrize(("half_width", "cutoff"), [(0.3, 0.25), (0.1, 0.25), (0.01, 0.2)])
def test_taps_are_symmetric_and_pass_a_constant(half_width: float, cutoff: float) -> None:
    """Every branch of the window's rule: strong, medium and no attenuation."""
    taps = kaiser_sinc_taps(12, cutoff, half_width)
    torch.testing.assert_close(taps, taps.flip(0))
    assert float(taps.sum()) == pytest.approx(1.0, abs=1e-6)
