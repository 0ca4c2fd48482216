"""The transformer and the VAE's decoder through compiled code, and on CUDA through captured graphs of few shapes.

Lengths are rounded up to buckets where graphs are captured, and the padding is masked or given the edges of the clip's
true end, so a result equals the eager one within rounding (AUK spec, 3.3, 3.5 and 7).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.errors import InvalidRequest
from oscine.families.auk.backends.graphs import Capture, CapturedStep, Work, captured, shapes_of
from oscine.families.auk.codec.vae import AuKVAE, plan_tiles
from oscine.families.auk.codec.whole import WholeDecoder, activation
from oscine.families.auk.model.dit import AuKTransformer
from oscine.families.auk.model.layouts import AuKStepContext
from oscine.runtime.store import RecentStore

Granularity = Literal["off", "regional", "full"]
GRANULARITIES = ("off", "regional", "full")

TARGET_BUCKET, TEXT_BUCKET, REFERENCE_BUCKET = 32, 32, 50
"""What frames, tokens and reference frames are rounded up to where graphs are captured."""
VAE_BUCKETS = (160, 320, 640)
"""Frames of a captured decode; a longer clip is decoded in windows of these sizes."""
WARM_FRAMES, WARM_REF_FRAMES, WARM_TOKENS = (150, 300, 600), (0, 150), 96
"""Shapes that are run, and on CUDA captured, before the first request."""
MAX_GRAPHS = 16


class CompiledTransformer:
    """`prepare` and `step` of a transformer, compiled by block (`regional`) or as a whole (`full`).

    `capture` None compiles for any length; with it every length is rounded up and each shape captured, at most
    `max_graphs` of them, the least recently used dropped first. `regional` compiles the transformer's own blocks.
    """

    def __init__(
        self,
        dit: AuKTransformer,
        granularity: Granularity,
        *,
        capture: Capture | None = None,
        max_graphs: int = MAX_GRAPHS,
    ) -> None:
        self._dit, self._capture = dit, capture
        self.latent_dim, self.proj_out, self.modulation_table = dit.latent_dim, dit.proj_out, dit.modulation_table
        self._graphs: RecentStore[CapturedStep] = RecentStore(check_max_graphs(max_graphs))
        self._evaluate = dit.evaluate
        if granularity == "full":
            self._evaluate = torch.compile(dit.evaluate, dynamic=True)
        elif granularity == "regional":
            for block in (*dit.transformer_blocks, *dit.single_transformer_blocks):
                assert isinstance(block, nn.Module)
                block.compile(dynamic=True)

    @torch.inference_mode()
    def prepare(
        self,
        text: Tensor,
        *,
        target_len: int,
        mask: Tensor | None = None,
        c_mask: Tensor | None = None,
        ref: Tensor | None = None,
        ref_mask: Tensor | None = None,
        cfg_infer: bool = False,
        timesteps: Tensor | None = None,
    ) -> AuKStepContext:
        """As `AuKTransformer.prepare`, at rounded lengths where graphs are captured."""
        rows = text.shape[0]
        bare = mask is None and (ref is None or ref_mask is None)
        known = text.abs().sum(-1) > 0 if c_mask is None else c_mask.bool()
        # Without masks the original masks no attention, not even to padding of the text: then nothing may be padded.
        if self._capture is not None and self._dit.attn_mask_enabled and not (bare and not bool(known.all())):
            text, c_mask = _padded(text, TEXT_BUCKET), _padded_mask(known, TEXT_BUCKET)
            mask = _padded_mask(_or_ones(mask, rows, target_len, text), TARGET_BUCKET)
            if ref is not None and ref.shape[1]:
                ref_mask = _padded_mask(_or_ones(ref_mask, rows, ref.shape[1], text), REFERENCE_BUCKET)
                ref = _padded(ref, REFERENCE_BUCKET)
            target_len = mask.shape[1]
        return self._dit.prepare(
            text,
            target_len=target_len,
            mask=mask,
            c_mask=c_mask,
            ref=ref,
            ref_mask=ref_mask,
            cfg_infer=cfg_infer,
            timesteps=timesteps,
        )

    @torch.inference_mode()
    def step(
        self, x: Tensor, time: Tensor | float, ctx: AuKStepContext, step_index: int | Tensor | None = None
    ) -> Tensor:
        """As `AuKTransformer.step`; x may have fewer frames than the rounded context."""
        rows, frames = self._dit.step_rows(x, time, ctx, step_index), x.shape[1]
        x = F.pad(x, (0, 0, 0, ctx.target_len - frames))
        if self._capture is None:
            return self._evaluate(x, rows, ctx)
        capture, shapes = self._capture, (x.shape, rows.shape, *shapes_of(ctx))
        graph = self._graphs.get_or_make(shapes, lambda: CapturedStep(capture, self._evaluate, x, rows, ctx))
        return graph(x, rows, ctx)[:, :frames]

    def velocities(
        self, xs: Sequence[Tensor], contexts: Sequence[AuKStepContext], steps: Sequence[int]
    ) -> list[Tensor]:
        """As `AuKTransformer.velocities`, request by request, so that what one gets does not depend on the others."""
        return [self.step(x[None], 0.0, ctx, at) for x, ctx, at in zip(xs, contexts, steps, strict=True)]

    @torch.inference_mode()
    def warm_up(self, *, guidance: bool) -> None:
        """Runs the common shapes once, with or without a second branch, which compiles and captures them."""
        weight = self._dit.proj_out.weight
        text = torch.ones(1, WARM_TOKENS, self._dit.text_hidden_dim, dtype=weight.dtype, device=weight.device)
        times = torch.zeros(1, device=weight.device)
        for frames, ref_frames in itertools.product(WARM_FRAMES, WARM_REF_FRAMES):
            x = torch.zeros(1, frames, self.latent_dim, device=weight.device)
            ref = torch.zeros(1, ref_frames, self.latent_dim, device=weight.device, dtype=weight.dtype)
            context = self.prepare(text, target_len=frames, ref=ref, cfg_infer=guidance, timesteps=times)
            self.step(x, 0.0, context, 0)


def compiled_transformer(
    dit: AuKTransformer, granularity: Granularity, *, guidance: bool, max_graphs: int = MAX_GRAPHS
) -> CompiledTransformer:
    """The transformer compiled, on CUDA captured too, and run once on the common shapes: minutes of work."""
    capture = captured if dit.proj_out.weight.device.type == "cuda" else None
    steps = CompiledTransformer(dit, granularity, capture=capture, max_graphs=max_graphs)
    steps.warm_up(guidance=guidance)
    return steps


class CompiledDecoder:
    """`AuKVAE.decode` with its activations (`regional`) or the whole of it (`full`) compiled.

    With `capture` a clip is padded to the smallest of `buckets` that holds it, edges kept at its true end; a longer one
    is decoded in windows of these sizes. Without, a window has any length up to the largest.
    """

    def __init__(
        self,
        vae: AuKVAE,
        granularity: Granularity,
        *,
        capture: Capture | None = None,
        buckets: Sequence[int] = VAE_BUCKETS,
    ) -> None:
        self._vae, self._capture, self._buckets = vae, capture, tuple(sorted(buckets))
        filtered = torch.compile(activation, dynamic=True) if granularity == "regional" else activation
        self._work: Work = WholeDecoder(vae, filtered).decode
        if granularity == "full":
            self._work = torch.compile(self._work, dynamic=True)
        self._graphs: dict[tuple[int, int], Work] = {}

    @torch.inference_mode()
    def decode(self, latents: Tensor) -> Tensor:
        """Audio float32 [batch, frame * hop] of normalised latents [batch, frame, latent]. Raises InvalidRequest."""
        self._vae.check_latents(latents)
        hop, frames, largest = self._vae.config.hop_length, latents.shape[1], self._buckets[-1]
        if not frames:
            return self._vae.decode(latents)
        parts = []
        for start, size, first, end in plan_tiles(
            frames, largest, *self._vae.decode_context_frames(), self._buckets if self._capture else ()
        ):
            wav = self._window(latents[:, start : start + size])
            parts.append(wav[:, (first - start) * hop : (end - start) * hop])
        return torch.cat(parts, dim=1)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Decodes one clip of each bucket, which compiles and captures it."""
        where = self._vae.global_mean.device
        for bucket in self._buckets:
            self.decode(torch.zeros(1, bucket, self._vae.config.latent_dim, device=where))

    def _window(self, latents: Tensor) -> Tensor:
        count = torch.tensor(latents.shape[1], device=latents.device)
        if self._capture is None:
            return self._work(latents, count)
        bucket = next(size for size in self._buckets if size >= latents.shape[1])
        inputs = F.pad(latents, (0, 0, 0, bucket - latents.shape[1])), count
        key = latents.shape[0], bucket
        if key not in self._graphs:
            self._graphs[key] = self._capture(self._work, inputs)
        return self._graphs[key](*inputs)


def check_granularity(granularity: str) -> None:
    """Raises InvalidRequest for a granularity that is none."""
    if granularity not in GRANULARITIES:
        raise InvalidRequest(f"granularity must be {', '.join(GRANULARITIES)}, got {granularity!r}")


def check_max_graphs(count: int) -> int:
    """The count if it is a whole number from 1 on. Raises InvalidRequest."""
    if type(count) is not int or count < 1:
        raise InvalidRequest(f"the number of graphs must be a whole number, 1 or more, got {count!r}")
    return count


def _rest(length: int, multiple: int) -> int:
    return -length % multiple


def _padded(x: Tensor, multiple: int) -> Tensor:
    """x [row, time, width] with zeros up to a multiple."""
    return F.pad(x, (0, 0, 0, _rest(x.shape[1], multiple)))


def _padded_mask(mask: Tensor, multiple: int) -> Tensor:
    """A mask [row, time] that is false up to a multiple."""
    return F.pad(mask.bool(), (0, _rest(mask.shape[1], multiple)), value=False)


def _or_ones(mask: Tensor | None, rows: int, length: int, like: Tensor) -> Tensor:
    return torch.ones(rows, length, dtype=torch.bool, device=like.device) if mask is None else mask
