"""The AuK transformer: noised latents, text condition and time → velocity (AUK spec, 3.2, 3.3 and 7)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from oscine.errors import InvalidRequest
from oscine.families.auk.config import DiTConfig
from oscine.families.auk.model.blocks import (
    RMS_EPS,
    AdaNorm,
    AudioEmbedding,
    DoubleBlock,
    SingleBlock,
    TimeEmbedding,
    compressed_positions,
    layer_norm,
    rope_table,
)
from oscine.families.auk.model.layouts import AuKStepContext, Layout, Packed, Padded, Rope
from oscine.layers.norm import RMSNorm
from oscine.runtime.exact import MIN_MANY, RowRule


class RotaryFrequencies(nn.Module):
    """`inv_freq` as the checkpoint stores it, rounded to bfloat16 values: recomputing it moves the output."""

    def __init__(self, dim_head: int) -> None:
        super().__init__()
        exponent = torch.arange(0, dim_head, 2, dtype=torch.float32) / dim_head
        self.register_buffer("inv_freq", (1.0 / 10000**exponent).bfloat16().float())


class AuKTransformer(nn.Module):
    """Double-stream blocks over text and audio, then single-stream blocks over both.

    `prepare` does what depends neither on the latents nor on the time, `step` one evaluation, `step_packed` one
    evaluation of several requests; `forward` is `step` after `prepare`.
    """

    def __init__(
        self,
        *,
        dim: int,
        heads: int,
        dim_head: int,
        ff_mult: float,
        latent_dim: int,
        text_hidden_dim: int,
        num_layers: int,
        num_single_layers: int,
        attn_mask_enabled: bool = True,
    ) -> None:
        super().__init__()
        inner = int(dim * ff_mult)
        self.latent_dim, self.text_hidden_dim = latent_dim, text_hidden_dim
        self.attn_mask_enabled = attn_mask_enabled
        self.time_embed = TimeEmbedding(dim)
        self.txt_proj = nn.Linear(text_hidden_dim, dim)
        self.txt_norm = RMSNorm(dim, RMS_EPS)
        self.audio_embed = AudioEmbedding(latent_dim, dim)
        self.rotary_embed = RotaryFrequencies(dim_head)
        self.transformer_blocks = nn.ModuleList(DoubleBlock(dim, heads, dim_head, inner) for _ in range(num_layers))
        self.single_transformer_blocks = nn.ModuleList(
            SingleBlock(dim, heads, dim_head, inner) for _ in range(num_single_layers)
        )
        self.norm_out = AdaNorm(dim, 2)
        self.proj_out = nn.Linear(dim, latent_dim)
        self.row_rule = RowRule(least=MIN_MANY)  # what `step_packed` keeps to; see `many_rows`
        self._text_cache: Tensor | None = None
        self.eval().requires_grad_(False)

    @classmethod
    def from_config(cls, config: DiTConfig) -> AuKTransformer:
        """A module with unset weights; build it under `torch.device("meta")` to own no memory."""
        return cls(
            dim=config.dim,
            heads=config.heads,
            dim_head=config.dim_head,
            ff_mult=config.ff_mult,
            latent_dim=config.latent_dim,
            text_hidden_dim=config.text_hidden_dim,
            num_layers=config.num_layers,
            num_single_layers=config.num_single_layers,
            attn_mask_enabled=config.attn_mask_enabled,
        )

    def forward(
        self,
        x: Tensor,
        text: Tensor,
        time: Tensor | float,
        *,
        mask: Tensor | None = None,
        c_mask: Tensor | None = None,
        ref: Tensor | None = None,
        ref_mask: Tensor | None = None,
        drop_audio_cond: bool = False,
        drop_text: bool = False,
        cfg_infer: bool = False,
        cache: bool = False,
    ) -> Tensor:
        """Velocity [batch, frame, latent] of x, or [2 batch, ...] conditioned rows first under `cfg_infer`.

        x [batch, frame, latent], text [batch, token, text_hidden_dim], time a number or [batch] in 0..1, ref
        [batch, frame, latent] (length 0 counts as none). Masks are true where valid; see `prepare`.
        """
        try:
            context = self.prepare(
                text,
                target_len=x.shape[1],
                mask=mask,
                c_mask=c_mask,
                ref=ref,
                ref_mask=ref_mask,
                drop_audio_cond=drop_audio_cond,
                drop_text=drop_text,
                cfg_infer=cfg_infer,
                cache=cache,
            )
            return self.step(x, time, context)
        except BaseException:
            self.clear_cache()  # the next request must not get this one's text
            raise

    @torch.no_grad()
    def prepare(
        self,
        text: Tensor,
        *,
        target_len: int,
        mask: Tensor | None = None,
        c_mask: Tensor | None = None,
        ref: Tensor | None = None,
        ref_mask: Tensor | None = None,
        drop_audio_cond: bool = False,
        drop_text: bool = False,
        cfg_infer: bool = False,
        cache: bool = False,
        timesteps: Tensor | None = None,
    ) -> AuKStepContext:
        """What `step` needs besides the latents and the time; with `timesteps` [step] also the modulation table.

        `c_mask` omitted is inferred: a token is valid unless all its values are zero. With a reference, `mask` and
        `ref_mask` omitted are all true once the other is given; with neither there is no attention mask at all, text
        padding included. `cfg_infer` makes a second branch without text and reference, and ignores the drop flags;
        `cache` then keeps the projected text for later calls until `clear_cache`. Raises InvalidRequest for a shape
        that does not fit and for a text without a valid token.
        """
        ref = None if ref is None or ref.shape[1] == 0 else ref
        self._check(text, target_len, mask, c_mask, ref, ref_mask)
        c_mask = text.abs().sum(-1) > 0 if c_mask is None else c_mask.bool()
        if not bool(c_mask.any(-1).all()):
            raise InvalidRequest("the text condition has no valid token (all zero, or all masked)")
        mask, audio_mask = _audio_masks(mask, ref, ref_mask, target_len)
        c = self._branched_text(text, drop_text, cfg_infer, cache)
        prompt = None if ref is None else self._branched_prompt(ref, ref_mask, mask, drop_audio_cond, cfg_infer)
        branches = 2 if cfg_infer else 1
        c_mask = c_mask.repeat(branches, 1)
        audio_mask = None if audio_mask is None else audio_mask.repeat(branches, 1)
        single_mask = None if audio_mask is None else torch.cat([c_mask, audio_mask], dim=1)
        audio_len = target_len + (0 if ref is None else ref.shape[1])
        masked = self.attn_mask_enabled and audio_mask is not None
        return AuKStepContext(
            c=c,
            c_mask=c_mask,
            prompt=prompt,
            target_mask=mask,
            audio_mask=audio_mask,
            single_mask=single_mask,
            joint_bias=_key_bias(torch.cat([audio_mask, c_mask], dim=1)) if masked and audio_mask is not None else None,
            single_bias=_key_bias(single_mask) if masked and single_mask is not None else None,
            rope_text=self._rope(c_mask if audio_mask is not None else None, c.shape[1], c.device),
            rope_audio=self._rope(audio_mask, audio_len, c.device),
            rope_single=self._rope(single_mask, c.shape[1] + audio_len, c.device),
            branches=branches,
            target_len=target_len,
            modulation=None if timesteps is None else self.modulation_table(timesteps),
        )

    @torch.no_grad()
    def step(
        self, x: Tensor, time: Tensor | float, ctx: AuKStepContext, step_index: int | Tensor | None = None
    ) -> Tensor:
        """One velocity. With a modulation table and `step_index` its row serves every row of x and `time` is unused.

        Raises InvalidRequest for latents, a time or an index that do not fit the context.
        """
        if x.dim() != 3 or x.shape[1:] != (ctx.target_len, self.latent_dim):
            raise InvalidRequest(
                f"latents must be [batch, {ctx.target_len}, {self.latent_dim}] here, got {list(x.shape)}"
            )
        if x.shape[0] * ctx.branches != ctx.c.shape[0]:
            raise InvalidRequest(f"{x.shape[0]} rows of latents for a context of {ctx.c.shape[0] // ctx.branches}")
        return self.evaluate(x, self.step_rows(x, time, ctx, step_index), ctx)

    @torch.no_grad()
    def step_rows(
        self, x: Tensor, time: Tensor | float, ctx: AuKStepContext, step_index: int | Tensor | None
    ) -> Tensor:
        """Modulation rows [1 or branch * batch, width] of a step: from the context's table, or computed from `time`."""
        if ctx.modulation is not None and step_index is not None:
            if isinstance(step_index, int) and not 0 <= step_index < len(ctx.modulation):
                raise InvalidRequest(f"step {step_index} of a table of {len(ctx.modulation)} steps")
            index = torch.as_tensor(step_index, device=ctx.modulation.device).reshape(1)
            return ctx.modulation.index_select(0, index)
        moment = torch.as_tensor(time, dtype=torch.float32, device=x.device).reshape(-1)
        if moment.shape[0] not in (1, x.shape[0]):
            raise InvalidRequest(f"time must be a number or [{x.shape[0]}], got {list(moment.shape)}")
        return self.modulation_table(moment.expand(x.shape[0])).repeat(ctx.branches, 1)

    @torch.no_grad()
    def evaluate(self, x: Tensor, rows: Tensor, ctx: AuKStepContext) -> Tensor:
        """The arithmetic of `step`, and all that a compiler or a captured graph need see of it."""
        target = self.audio_embed(x, ctx.target_mask).repeat(ctx.branches, 1, 1)
        audio = target if ctx.prompt is None else torch.cat([ctx.prompt, target], dim=1)
        return self._velocity(ctx.c, audio, rows, Padded(ctx))

    @torch.no_grad()
    def velocities(
        self, xs: Sequence[Tensor], contexts: Sequence[AuKStepContext], steps: Sequence[int]
    ) -> list[Tensor]:
        """One velocity [branch, frame, latent] for each request, at its own step of its context's modulation table.

        xs [frame, latent] each, contexts of one request each; requests whose tables are one share a row of it.
        """
        tables = [context.modulation for context in contexts]
        shared = all(table is tables[0] for table in tables) and len(set(steps)) == 1
        rows = [table[step] for table, step in zip(tables, steps, strict=True) if table is not None]
        return self.step_packed(xs, contexts, torch.stack(rows[:1] if shared else rows))

    @torch.no_grad()
    def step_packed(self, xs: Sequence[Tensor], contexts: Sequence[AuKStepContext], rows: Tensor) -> list[Tensor]:
        """One velocity [branch, frame, latent] for each request, all of them in one pass without padding.

        xs [frame, latent] each, contexts of one request each, rows [request, width] of their modulation tables. On
        the CPU in float32 a result has the same bits whatever else is in the batch (see `layouts.Packed`).
        """
        layout = Packed(contexts, self.row_rule)
        audio = []
        for x, context in zip(xs, contexts, strict=True):
            target = self.audio_embed(x[None]).expand(context.branches, -1, -1)
            both = target if context.prompt is None else torch.cat([context.prompt, target], dim=1)
            audio.append(both)
        text = layout.pack([context.c for context in contexts])
        return layout.split_targets(self._velocity(text, layout.pack(audio), rows, layout))

    @torch.no_grad()
    def modulation_table(self, timesteps: Tensor) -> Tensor:
        """[step, width]: every AdaNorm linear of SiLU(time embedding), in the order of use, for timesteps [step].

        Per double block text then audio, then each single block, then the head (scale, shift).
        """
        activated = nn.functional.silu(self.time_embed(timesteps))
        return torch.cat([layer.linear(activated) for layer in self._ada_norms()], dim=-1)

    @torch.no_grad()
    def project_text(self, text: Tensor) -> Tensor:
        """text [batch, token, text_hidden_dim] → [batch, token, dim]."""
        projected: Tensor = self.txt_norm(self.txt_proj(text.to(self.txt_proj.weight.dtype)))
        return projected

    def clear_cache(self) -> None:
        """Drops the projected text kept by `cache=True`; call it when a request ends, on failure too."""
        self._text_cache = None

    def _velocity(self, text: Tensor, audio: Tensor, rows: Tensor, layout: Layout) -> Tensor:
        parts = list(torch.split(rows, [layer.linear.out_features for layer in self._ada_norms()], dim=-1))
        for block in self.transformer_blocks:
            text, audio = block(text, audio, parts.pop(0), parts.pop(0), layout)
        x = layout.merge(text, audio)
        for block in self.single_transformer_blocks:
            x = block(x, parts.pop(0), layout)
        # The head's modulation is (scale, shift), unlike the blocks'.
        scale, shift = layout.spread(parts.pop(0), "target").chunk(2, dim=-1)
        return layout.apply(self.proj_out, layer_norm(layout.targets(x)) * (1 + scale) + shift)

    def packed_linears(self) -> list[nn.Linear]:
        """The layers that `step_packed` applies to the tokens of several requests at once."""
        adaptive = {id(norm.linear) for norm in self._ada_norms()}
        blocks = (*self.transformer_blocks, *self.single_transformer_blocks)
        inside = [layer for block in blocks for layer in block.modules() if isinstance(layer, nn.Linear)]
        return [layer for layer in (*inside, self.proj_out) if id(layer) not in adaptive]

    def _ada_norms(self) -> list[AdaNorm]:
        return [module for module in self.modules() if isinstance(module, AdaNorm)]

    def _branched_text(self, text: Tensor, drop: bool, cfg_infer: bool, cache: bool) -> Tensor:
        if not cfg_infer:
            projected = self.project_text(text)
            return torch.zeros_like(projected) if drop else projected
        cached = self._text_cache if cache else None
        if cached is not None and cached.shape[:2] != text.shape[:2]:
            shapes = f"{list(cached.shape[:2])}, not {list(text.shape[:2])}"
            raise InvalidRequest(f"the cached text has shape {shapes}; call clear_cache between requests")
        c = self.project_text(text) if cached is None else cached
        self._text_cache = c if cache else self._text_cache
        return torch.cat([c, torch.zeros_like(c)])

    def _branched_prompt(
        self, ref: Tensor, ref_mask: Tensor | None, mask: Tensor | None, drop: bool, cfg_infer: bool
    ) -> Tensor:
        if ref_mask is None and mask is not None:
            ref_mask = torch.ones(ref.shape[:2], dtype=torch.bool, device=ref.device)
        if not cfg_infer:
            return self.audio_embed(torch.zeros_like(ref) if drop else ref, ref_mask)  # type: ignore[no-any-return]
        return torch.cat([self.audio_embed(ref, ref_mask), self.audio_embed(torch.zeros_like(ref), ref_mask)])

    def _rope(self, mask: Tensor | None, length: int, device: torch.device) -> Rope:
        positions = torch.arange(length, device=device)[None] if mask is None else compressed_positions(mask)
        return rope_table(self.rotary_embed.get_buffer("inv_freq"), positions)

    def _check(
        self,
        text: Tensor,
        target_len: int,
        mask: Tensor | None,
        c_mask: Tensor | None,
        ref: Tensor | None,
        ref_mask: Tensor | None,
    ) -> None:
        if text.dim() != 3 or text.shape[2] != self.text_hidden_dim or not text.shape[1]:
            raise InvalidRequest(
                f"text condition must be [batch, tokens, {self.text_hidden_dim}], got {list(text.shape)}"
            )
        if target_len < 1:
            raise InvalidRequest(f"the target must have at least one frame, got {target_len}")
        rows = text.shape[0]
        if ref is not None and (ref.dim() != 3 or ref.shape[0] != rows or ref.shape[2] != self.latent_dim):
            raise InvalidRequest(f"ref must be [{rows}, frames, {self.latent_dim}], got {list(ref.shape)}")
        lengths = {"mask": target_len, "c_mask": text.shape[1], "ref_mask": ref.shape[1] if ref is not None else None}
        for (name, length), value in zip(lengths.items(), (mask, c_mask, ref_mask), strict=True):
            if value is not None and length is not None and tuple(value.shape) != (rows, length):
                raise InvalidRequest(f"{name} must be [{rows}, {length}], got {list(value.shape)}")


def _audio_masks(
    mask: Tensor | None, ref: Tensor | None, ref_mask: Tensor | None, target_len: int
) -> tuple[Tensor | None, Tensor | None]:
    """(target mask, mask of [reference | target]); see `AuKTransformer.prepare`."""
    if mask is not None:
        mask = mask.bool()
    if ref is None:
        return mask, mask
    if mask is None and ref_mask is None:
        return None, None
    if mask is None:
        mask = torch.ones(ref.shape[0], target_len, dtype=torch.bool, device=ref.device)
    if ref_mask is None:
        ref_mask = torch.ones(ref.shape[:2], dtype=torch.bool, device=ref.device)
    return mask, torch.cat([ref_mask.bool(), mask], dim=1)


def _key_bias(mask: Tensor) -> Tensor:
    """0 where valid, -inf where not, float32 [row, 1, 1, key]."""
    return torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, float("-inf"))[:, None, None]
