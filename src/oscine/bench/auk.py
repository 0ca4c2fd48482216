"""The AuK workload: conditioner, one solver evaluation in three forms, and the VAE's decoder, at real dimensions.

The parts are built, measured and freed in turn, so that a machine needs room for the largest of them only.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.bench.measure import summary, synchronize
from oscine.families.auk import AuKTransformer, AuKVAE
from oscine.families.auk.conditioner import empty_thinker
from oscine.families.auk.config import AudioTowerConfig, DiTConfig, ThinkerConfig, ThinkerTextConfig, VAEConfig
from oscine.families.auk.family import CHUNK_SIZES, AuKDecoder
from oscine.families.auk.folder import open_folder
from oscine.families.auk.layouts import AuKStepContext
from oscine.families.auk.rows import measured_rule
from oscine.families.auk.sampler import FLASH_GRID, build_time_grid
from oscine.families.auk.thinker import Thinker
from oscine.families.auk.weights import load_dit, load_thinker

Module = TypeVar("Module", bound=nn.Module)

TEXT_TOKENS = 60
PLAIN, GUIDED = 1, 2

DIT = DiTConfig(
    dim=1536,
    heads=24,
    dim_head=64,
    ff_mult=2,
    latent_dim=64,
    text_hidden_dim=2048,
    num_layers=10,
    num_single_layers=20,
    attn_mask_enabled=True,
)
VAE = VAEConfig(
    upsample_rates=(5, 4, 3, 2, 2, 2),
    upsample_kernel_sizes=(10, 8, 6, 4, 4, 4),
    upsample_initial_channel=1536,
    resblock_kernel_sizes=(3, 7, 11),
    resblock_dilation_sizes=((1, 3, 5),) * 3,
    downsample_rates=(2, 2, 2, 3, 4, 5),
    downsample_channels=(12, 24, 48, 96, 192, 384, 768),
    latent_dim=64,
)
THINKER = ThinkerConfig(
    text=ThinkerTextConfig(
        vocab_size=151936,
        hidden_size=2048,
        intermediate_size=11008,
        num_hidden_layers=36,
        num_attention_heads=16,
        num_key_value_heads=2,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        head_dim=128,
    ),
    audio=AudioTowerConfig(
        d_model=1280,
        encoder_layers=32,
        encoder_attention_heads=20,
        encoder_ffn_dim=5120,
        num_mel_bins=128,
        n_window=100,
        output_dim=2048,
    ),
    audio_token_index=151646,
    audio_start_token_id=151647,
    audio_end_token_id=151648,
)
"""Dimensions of the releases (AUK spec, 2)."""
CONFIGS = ("auk", "auk-flash")


@dataclass(frozen=True, kw_only=True)
class AuKWorkload:
    """What to measure: `frames` latent frames for each of `batch` requests, `repeats` rounds of everything."""

    flash: bool
    dtype: torch.dtype
    device: torch.device
    thinker: Callable[[], Thinker]
    dit: Callable[[], AuKTransformer]
    vae: Callable[[], AuKVAE]
    batch: int
    frames: int
    repeats: int

    @torch.inference_mode()
    def run(self) -> dict[str, Any]:
        """Everything measured, by name; times in seconds, `rtf` for one request of the recipe, conditioner included."""
        report: dict[str, Any] = {"batch": self.batch, "frames": self.frames, "text_tokens": TEXT_TOKENS}
        for part in (self._conditioner, self._evaluations, self._decoder):
            report |= part()
            gc.collect()
        steps = len(FLASH_GRID) - 1 if self.flash else 32
        step = report["dit_step_s" if self.flash else "dit_guided_step_s"]["p50"] / self.batch
        once = report["conditioner_s"]["p50"] + report["prepare_s"]["p50"] + report["vae_decode_s"]["p50"]
        report["steps"] = steps
        report["rtf"] = (once + steps * step) / report["audio_s"]
        return report

    def _conditioner(self) -> dict[str, Any]:
        thinker = self.thinker()
        layers = len(thinker.model.layers)
        ids = torch.arange(TEXT_TOKENS, device=self.device)[None]
        weights, scale = torch.zeros(layers, device=self.device), torch.ones(1, device=self.device)
        return {"conditioner_s": summary(self._times(lambda: thinker.fused(ids, weights, scale)))}

    def _evaluations(self) -> dict[str, Any]:
        dit = self.dit()
        dit.row_rule = measured_rule(dit.packed_linears())
        generator = torch.Generator().manual_seed(0)
        text = torch.randn(1, TEXT_TOKENS, dit.text_hidden_dim, generator=generator).to(self.device, self.dtype)
        x = torch.randn(self.frames, dit.latent_dim, generator=generator).to(self.device)
        grid = build_time_grid(t_grid=FLASH_GRID) if self.flash else build_time_grid(32, -1.0)
        table = dit.modulation_table(grid[:-1].to(self.device))
        contexts = {
            branches: dit.prepare(text, target_len=self.frames, cfg_infer=branches == GUIDED)
            for branches in (PLAIN, GUIDED)
        }

        def evaluate(context: AuKStepContext) -> list[Tensor]:
            return dit.step_packed([x] * self.batch, [context] * self.batch, table[:1])

        plain = summary(self._times(lambda: evaluate(contexts[PLAIN])))
        work = self.batch * _operations(dit, self.frames, TEXT_TOKENS)
        rate = self._matrix_rate(dit)
        return {
            "prepare_s": summary(self._times(lambda: dit.prepare(text, target_len=self.frames, timesteps=grid[:-1]))),
            "dit_step_s": plain,
            "dit_guided_step_s": summary(self._times(lambda: evaluate(contexts[GUIDED]))),
            "dit_forward_without_prepare_s": summary(
                self._times(lambda: [dit(x[None], text, 0.5) for _ in range(self.batch)])
            ),
            "dit_operations": work,
            "matrix_rate": rate,
            "matrix_rate_share": work / plain["p50"] / rate,
            "most_rows_per_product": dit.row_rule.most,
        }

    def _matrix_rate(self, dit: AuKTransformer) -> float:
        """Operations a second of one large product of the feed-forward's size in this dtype."""
        layer = max(dit.packed_linears(), key=lambda layer: layer.weight.numel())
        rows = torch.randn(1024, layer.in_features).to(self.device, self.dtype)
        best = min(self._times(lambda: F.linear(rows, layer.weight)))
        return 2 * rows.shape[0] * layer.weight.numel() / best

    def _decoder(self) -> dict[str, Any]:
        vae = self.vae()
        z = torch.randn(self.frames, vae.config.latent_dim, generator=torch.Generator().manual_seed(0)).to(self.device)
        first = list(z[: CHUNK_SIZES[0]])
        return {
            "vae_decode_s": summary(self._times(lambda: vae.decode(z[None]))),
            "vae_first_chunk_s": summary(self._times(lambda: AuKDecoder(vae).push(first))),
            "audio_s": self.frames * vae.config.hop_length / 24000,
        }

    def _times(self, work: Callable[[], Any]) -> list[float]:
        """Wall times of `repeats` runs after one outside the clock."""
        times = []
        for _ in range(self.repeats + 1):
            synchronize(self.device)
            start = time.perf_counter()
            work()
            synchronize(self.device)
            times.append(time.perf_counter() - start)
        return times[1:]


def from_random(name: str, *, device: torch.device, dtype: torch.dtype, **size: int) -> AuKWorkload:
    """A release's dimensions with random weights: right for speed, meaningless to hear."""

    def vae() -> AuKVAE:
        built = _filled(lambda: AuKVAE(VAE), torch.float32, device)
        built.remove_weight_norm()
        return built

    return AuKWorkload(
        flash=name == "auk-flash",
        dtype=dtype,
        device=device,
        thinker=lambda: _filled(lambda: Thinker(THINKER), dtype, device),
        dit=lambda: _filled(lambda: AuKTransformer.from_config(DIT), dtype, device),
        vae=vae,
        **size,
    )


def from_folder(folder: Path, *, device: torch.device, dtype: torch.dtype, **size: int) -> AuKWorkload:
    """A checkpoint's own weights, loaded part by part."""
    parts = open_folder(folder)

    def thinker() -> Thinker:
        built = empty_thinker(parts)
        load_thinker(built, parts.encoder, device=device, dtype=dtype)
        return built

    def dit() -> AuKTransformer:
        with torch.device("meta"):
            built = AuKTransformer.from_config(parts.config.dit)
        load_dit(built, parts.dit, device=device, dtype=dtype)
        return built

    def vae() -> AuKVAE:
        with torch.device("meta"):
            built = AuKVAE.from_config(parts.config.vae)
        built.load_weights(parts.vae, device=device)
        return built

    flash = parts.config.variant == "flash"
    return AuKWorkload(flash=flash, dtype=dtype, device=device, thinker=thinker, dit=dit, vae=vae, **size)


def _operations(dit: AuKTransformer, audio: int, text: int) -> int:
    """Multiplications and additions of one unguided evaluation: products with weights, and attention."""
    total = 0
    for name, layer in dit.named_modules():
        if isinstance(layer, nn.Linear) and "blocks." in name and "norm" not in name:
            single = name.startswith("single")
            of_text = name.split(".attn.")[-1].endswith("_c") or ".ff_c." in name
            total += layer.weight.numel() * (audio + text if single else text if of_text else audio)
    blocks = len(dit.transformer_blocks) + len(dit.single_transformer_blocks)
    return 2 * (total + 2 * blocks * (audio + text) ** 2 * dit.proj_out.in_features)


def _filled(build: Callable[[], Module], dtype: torch.dtype, device: torch.device) -> Module:
    """A module with small normal weights, built on the meta device; buffers keep what the constructor gives."""
    with torch.device("meta"):
        module = build()
    buffers = dict(module.named_buffers())
    generator = torch.Generator(device).manual_seed(0)
    for name, value in list(module.named_parameters()):
        spread = 0.1 if value.dim() == 1 else value[0].numel() ** -0.5
        filled = torch.empty(value.shape, device=device, dtype=dtype).normal_(0, spread, generator=generator)
        owner, leaf = module.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
        owner._parameters[leaf] = nn.Parameter(filled, requires_grad=False)
    for name, buffer in buffers.items():
        owner, leaf = module.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
        owner._buffers[leaf] = torch.full(buffer.shape, 0.1, device=device)
    return module.eval()
