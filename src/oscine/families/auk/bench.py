"""The AuK workload: conditioner, one solver evaluation prepared and plain, and the VAE's decoder, at real dimensions.

The parts are built, measured and freed in turn, so that a machine needs room for the largest of them only. A plain
evaluation is what a step costs without `prepare`: text, reference, masks, rotary tables and modulation made anew.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.bench.measure import summary, times
from oscine.bench.weights import filled
from oscine.errors import InvalidRequest
from oscine.families.auk.codec.vae import AuKVAE
from oscine.families.auk.config import (
    BASE_RECIPE,
    RELEASED_VAE,
    AudioTowerConfig,
    DiTConfig,
    Recipe,
    ThinkerConfig,
    ThinkerTextConfig,
)
from oscine.families.auk.decoder import AuKDecoder
from oscine.families.auk.duration import gen_frames
from oscine.families.auk.family import CHUNK_SIZES
from oscine.families.auk.model.conditioner import empty_thinker
from oscine.families.auk.model.dit import AuKTransformer
from oscine.families.auk.model.layouts import AuKStepContext
from oscine.families.auk.model.thinker import Thinker
from oscine.families.auk.sampler import FLASH_GRID, GUIDANCE_FLOOR, build_time_grid
from oscine.families.auk.spec import PARTS
from oscine.families.auk.weights.folder import open_folder
from oscine.families.auk.weights.rules import load_dit, load_thinker
from oscine.runtime.exact import many_rows

TEXT_TOKENS = 60

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


@dataclass(frozen=True, kw_only=True)
class AuKWorkload:
    """What to measure: `frames` latent frames for each of `batch` requests, `repeats` rounds of everything.

    `steps` and `guided` None are the recipe of the checkpoint: 32 guided steps, or Flash's 4 without guidance. Of
    `parts` only those named are built.
    """

    flash: bool
    dtype: torch.dtype
    device: torch.device
    sample_rate: int
    thinker: Callable[[], Thinker]
    dit: Callable[[], AuKTransformer]
    vae: Callable[[], AuKVAE]
    batch: int
    frames: int
    repeats: int
    parts: Sequence[str] = PARTS
    steps: int | None = None
    guided: bool | None = None
    recipe: Recipe = BASE_RECIPE

    @torch.inference_mode()
    def run(self) -> dict[str, Any]:
        """Everything measured, by name; times in seconds, `rtf` for one request of the recipe, conditioner included.

        `seconds_per_step` and `rtf` need all parts. Raises InvalidRequest for steps or guidance on Flash, which keeps
        its own.
        """
        grid, guided = self._grid()
        steps = len(grid) - 1
        report: dict[str, Any] = {
            "batch": self.batch,
            "frames": self.frames,
            "text_tokens": TEXT_TOKENS,
            "steps": steps,
            "guided": guided,
            "parts": list(self.parts),
        }
        work = {
            "conditioner": self._conditioner,
            "dit": lambda: self._evaluations(grid, guided),
            "vae": self._decoder,
        }
        for part in self.parts:
            report |= work[part]()
            gc.collect()
        return report | self._per_step(report, steps)

    def _per_step(self, report: dict[str, Any], steps: int) -> dict[str, Any]:
        """What the parts that were measured cost for one step of one request; all of them together, if all were."""
        seconds = {
            "conditioner": lambda: report["conditioner_s"]["p50"] / steps,
            "dit": lambda: report["dit_step_s"]["p50"] / self.batch + report["prepare_s"]["p50"] / steps,
            "vae": lambda: report["vae_decode_s"]["p50"] / steps,
        }
        per_step = {f"{part}_per_step_s": seconds[part]() for part in self.parts}
        if set(self.parts) != set(PARTS):
            return per_step
        whole = sum(per_step.values())
        return per_step | {"seconds_per_step": whole, "rtf": steps * whole / report["audio_s"]}

    def _grid(self) -> tuple[Tensor, bool]:
        """(time grid, whether guided)."""
        if not self.flash:
            steps = self.recipe.nfe if self.steps is None else self.steps
            guided = self.recipe.cfg >= GUIDANCE_FLOOR if self.guided is None else self.guided
            return build_time_grid(steps, self.recipe.sway), guided
        if self.guided or self.steps not in (None, len(FLASH_GRID) - 1):
            raise InvalidRequest(f"AuK-Flash runs its own {len(FLASH_GRID) - 1} steps without guidance", param="steps")
        return build_time_grid(t_grid=FLASH_GRID), False

    def _conditioner(self) -> dict[str, Any]:
        thinker = self.thinker()
        layers = len(thinker.model.layers)
        ids = torch.arange(TEXT_TOKENS, device=self.device)[None]
        weights, scale = torch.zeros(layers, device=self.device), torch.ones(1, device=self.device)
        return {"conditioner_s": summary(self._times(lambda: thinker.fused(ids, weights, scale)))}

    def _evaluations(self, grid: Tensor, guided: bool) -> dict[str, Any]:
        dit = self.dit()
        dit.row_rule = many_rows(dit.packed_linears())
        generator = torch.Generator().manual_seed(0)
        text = torch.randn(1, TEXT_TOKENS, dit.text_hidden_dim, generator=generator).to(self.device, self.dtype)
        x = torch.randn(self.frames, dit.latent_dim, generator=generator).to(self.device)
        times = grid[:-1].to(self.device)

        def prepared() -> AuKStepContext:
            return dit.prepare(text, target_len=self.frames, cfg_infer=guided, timesteps=times)

        context, table = prepared(), dit.modulation_table(times)
        step = summary(self._times(lambda: dit.step_packed([x] * self.batch, [context] * self.batch, table[:1])))
        plain = summary(self._times(lambda: [dit(x[None], text, 0.5, cfg_infer=guided) for _ in range(self.batch)]))
        work = self.batch * context.branches * _operations(dit, self.frames, TEXT_TOKENS)
        rate = self._matrix_rate(dit)
        return {
            "prepare_s": summary(self._times(prepared)),
            "dit_step_s": step,
            "dit_step_without_prepare_s": plain,
            "plain_over_prepared": plain["p50"] / step["p50"],
            "dit_operations": work,
            "matrix_rate": rate,
            "matrix_rate_share": work / step["p50"] / rate,
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
            "audio_s": self.frames * vae.config.hop_length / self.sample_rate,
        }

    def _times(self, work: Callable[[], Any]) -> list[float]:
        return times(work, self.device, self.repeats)


def from_random(
    name: str, *, device: torch.device, dtype: torch.dtype, duration_s: float | None = None, **size: Any
) -> AuKWorkload:
    """A release's dimensions with random weights: right for speed, meaningless to hear.

    `duration_s` replaces `frames`; `steps` and `guided` replace the recipe's; `parts` are those of `PARTS` to measure.
    """
    size |= _frames(duration_s, 24000, RELEASED_VAE.hop_length)

    def vae() -> AuKVAE:
        built = filled(lambda: AuKVAE(RELEASED_VAE), torch.float32, device)
        built.remove_weight_norm()
        return built

    return AuKWorkload(
        flash=name == "auk-flash",
        dtype=dtype,
        device=device,
        sample_rate=24000,
        thinker=lambda: filled(lambda: Thinker(THINKER), dtype, device),
        dit=lambda: filled(lambda: AuKTransformer.from_config(DIT), dtype, device),
        vae=vae,
        **size,
    )


def from_folder(
    folder: Path, *, device: torch.device, dtype: torch.dtype, duration_s: float | None = None, **size: Any
) -> AuKWorkload:
    """A checkpoint's own weights, loaded part by part; see `from_random`."""
    parts = open_folder(folder)
    size |= _frames(duration_s, parts.config.sample_rate, parts.config.vae.hop_length)

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

    return AuKWorkload(
        flash=parts.config.variant == "flash",
        recipe=parts.config.recipe,
        dtype=dtype,
        device=device,
        sample_rate=parts.config.sample_rate,
        thinker=thinker,
        dit=dit,
        vae=vae,
        **size,
    )


def _frames(duration_s: float | None, sample_rate: int, hop_length: int) -> dict[str, int]:
    if duration_s is None:
        return {}
    return {"frames": gen_frames(duration_s, 0, sample_rate=sample_rate, hop_length=hop_length)}


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
