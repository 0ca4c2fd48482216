"""The Audio8 language model: a slow model over columns, a fast model inside each frame (AUDIO8 spec, section 3).

Modules hold weights only and are named as in the checkpoint. There are two ways through the slow model: `forward`,
simple and without a cache, kept to compare with, and `advance`, which works on rows of a `SlowCache`.

Shapes: C = num_codebooks, N = codebook_size. A column is C + 1 integers: a token id, then the C codes of an audio
frame (zeros at text). Compact logits are the N semantic ids, then end-of-speech at index N.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audio8.cache import SlowCache
from oscine.families.audio8.config import HybridConfig, LMConfig
from oscine.families.audio8.dense import (
    Attention,
    Block,
    LayerAttend,
    RopeTable,
    additive_mask,
    attend_directly,
    grouped_attention,
)
from oscine.families.audio8.flat import FlatBlock, Product, flat_attention, product_of, product_with
from oscine.families.audio8.hybrid import HybridLayer, MixerState, scaled
from oscine.layers.embedding import Embedding
from oscine.layers.half import HalfLinear, half_matrix, hold_half
from oscine.layers.norm import RMSNorm, StepNorm

if TYPE_CHECKING:
    from oscine.families.audio8.native import NativeSteps

Choose = Callable[[int, Tensor], Tensor]
"""(codebook i in 1..C-1, its logits float32 [row, N]) → ids int64 [row]."""

StateOf = Callable[[int], MixerState]
"""Layer index → its recurrent state."""


class HybridSlow(nn.Module):
    """The Falcon-H1 stack, under the name `slow` in the checkpoint."""

    def __init__(self, config: LMConfig, hybrid: HybridConfig) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(HybridLayer(config, hybrid) for _ in range(config.n_layer))
        self.final_layernorm = RMSNorm(config.dim, config.norm_eps)


@dataclass(frozen=True, kw_only=True)
class _StepParts:
    """What a step runs through on a device: flat blocks (no slow ones for a hybrid), the two heads, the fast norm.

    `pair_mask` [1, 1, 2, 2] is causal, for the fast model's first two positions.
    """

    device: torch.device
    slow: list[FlatBlock]
    fast: list[FlatBlock]
    semantic: Product
    codes: Product
    fast_norm: StepNorm
    pair_mask: Tensor


class DualAR(nn.Module):
    """Slow and fast autoregressive model of one checkpoint; build it on the meta device, then load its weights."""

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        self.config = config
        self.codebook_embeddings = Embedding(config.codebook_size * config.num_codebooks, config.dim)
        if config.hybrid is None:
            self.embeddings = Embedding(config.vocab_size, config.dim)
            self.layers = nn.ModuleList(_slow_block(config) for _ in range(config.n_layer))
            self.norm = RMSNorm(config.dim, config.norm_eps)
        else:
            self.slow = HybridSlow(config, config.hybrid)
            self.semantic_output = nn.Linear(config.dim, config.codebook_size + 1, bias=False)
        if config.fast_dim != config.dim:
            self.fast_project_in = nn.Linear(config.dim, config.fast_dim)
        self.fast_embeddings = Embedding(config.codebook_size, config.fast_dim)
        self.fast_layers = nn.ModuleList(_fast_block(config) for _ in range(config.n_fast_layer))
        self.fast_norm = RMSNorm(config.fast_dim, config.norm_eps)
        self.fast_output = nn.Linear(config.fast_dim, config.codebook_size, bias=False)
        is_dense = config.hybrid is None
        rounding = torch.bfloat16 if is_dense else None
        self.slow_rope = RopeTable(config.max_seq_len, config.head_dim, config.rope_base, rounding, spread=is_dense)
        self.fast_rope = RopeTable(
            config.num_codebooks, config.fast_head_dim, config.rope_base, torch.bfloat16, spread=True
        )
        self.native: NativeSteps | None = None  # compiled steps, which take the place of `advance` and `FrameDrawer`
        self._half_head: Product | None = None
        self._steps: _StepParts | None = None
        self._code_offsets: Tensor | None = None

    @property
    def dtype(self) -> torch.dtype:
        """The dtype the model computes in."""
        return self.codebook_embeddings.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.codebook_embeddings.weight.device

    def hold_half(self) -> None:
        """Halves what a step reads where nothing is lost by it (`oscine.layers.half`); before the first step."""
        if hold_half(self) and self.config.hybrid is None:
            self._half_head = half_matrix(self.compact_table())

    def linear_sizes(self) -> set[tuple[int, int]]:
        """(in, out) of every float matrix product a step makes, but for those of weights in half precision."""
        sizes = {(m.in_features, m.out_features) for m in self.modules() if isinstance(m, nn.Linear)}
        is_plain = self.config.hybrid is None and self._half_head is None
        return sizes | ({(self.config.dim, self.config.codebook_size + 1)} if is_plain else set())

    def half_sizes(self) -> set[tuple[int, int]]:
        """(in, out) of every product of weights in half precision."""
        sizes = {(m.in_features, m.out_features) for m in self.modules() if isinstance(m, HalfLinear)}
        is_half = self._half_head is not None
        return sizes | ({(self.config.dim, self.config.codebook_size + 1)} if is_half else set())

    # The slow model

    def embed(self, columns: Tensor) -> Tensor:
        """Token embedding, plus the sum of the code embeddings at audio columns → [row, time, dim].

        columns int64 [row, C + 1, time]. No factor is applied, not even the hybrid's (AUDIO8 spec, 3.1).
        """
        config = self.config
        tokens, codes = columns[:, 0], columns[:, 1:]
        if self._code_offsets is None or self._code_offsets.device != columns.device:
            tables = torch.arange(config.num_codebooks, device=columns.device)
            self._code_offsets = (tables * config.codebook_size)[:, None]
        audio = (tokens >= config.semantic_begin_id) & (tokens <= config.semantic_end_id)
        summed = self.codebook_embeddings(codes + self._code_offsets).sum(dim=1)
        table = self.embeddings if config.hybrid is None else self.slow.embed_tokens
        embedded: Tensor = table(tokens)
        return embedded + torch.where(audio[..., None], summed, 0.0)

    def forward(self, columns: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One pass without a cache over columns int64 [row, C + 1, time] → (logits, hidden), the simple path.

        `mask` bool or integer [row, time] is 0 at left padding. Dense: logits over the whole vocabulary and the
        hidden state BEFORE the final norm; hybrid: compact logits and the hidden state after it.
        """
        rows, _, time = columns.shape
        real = torch.ones(rows, time, dtype=torch.bool, device=columns.device) if mask is None else mask.bool()
        positions = (real.long().cumsum(dim=1) - 1).clamp_min(0)
        order = torch.arange(time, device=columns.device)
        visible = (order[None, :] <= order[:, None]) & real[:, None, :]
        visible = visible | (order[None, :] == order[:, None])  # a padded query must see something
        attend = attend_directly(self.config.n_local_heads, additive_mask(visible, self.dtype))
        keep = None if mask is None else real[..., None].to(self.dtype)
        scratch = SlowCache(self.config, dtype=self.dtype, device=columns.device)
        scratch.ensure(rows, 0)
        hidden = self._stack(
            self.embed(columns),
            positions,
            lambda _, q, kv: attend(q, kv),
            lambda layer: scratch.mixer_state(layer, slice(0, rows)),
            keep,
        )
        final = self.final_norm(hidden)
        if self.config.hybrid is None:
            return F.linear(final, self.embeddings.weight), hidden
        return self.semantic_output(final), final

    def advance(
        self, columns: Tensor, positions: Tensor, cache: SlowCache, rows: slice, width: int
    ) -> tuple[Tensor, Tensor]:
        """Runs columns int64 [row, C + 1, time] at `positions` [row, time] on `rows` of the cache.

        Keys up to `width` are looked at (above every position; see `ExactRule.round_width`). Returns, for the last
        column only, (final hidden state for `compact_logits`, hidden state for the fast model), both [row, dim].
        """
        config = self.config
        plan = cache.kv.plan(positions, rows, width)
        visible = torch.arange(width, device=columns.device) <= positions[..., None]
        mask = additive_mask(visible, self.dtype)
        embedded = self.embed(columns)

        def attend(layer: int, q: Tensor, kv: Tensor) -> Tensor:
            return grouped_attention(q, *cache.kv.append(layer, kv, plan), mask)

        def attend_flat(layer: int, q: Tensor, kv: Tensor) -> Tensor:
            return flat_attention(q, *cache.kv.append(layer, kv, plan), mask)

        if config.hybrid is None:
            x, turns = embedded.flatten(0, 1), self.slow_rope.turns_on(self.device)[positions.flatten()]
            for layer, block in enumerate(self._step_parts().slow):
                x = block(x, turns, attend_flat, layer)
            hidden = x.view_as(embedded)[:, -1]
        else:
            hidden = self._stack(embedded, positions, attend, lambda layer: cache.mixer_state(layer, rows), None)[:, -1]
        final = self.final_norm(hidden)
        return final, final if config.norm_fastlayer_input or config.hybrid is not None else hidden

    def _step_parts(self) -> _StepParts:
        """What a step runs through (made once for a device)."""
        if self._steps is None or self._steps.device != self.device:
            self._steps = _StepParts(
                device=self.device,
                slow=_flat_blocks(self.layers) if self.config.hybrid is None else [],
                fast=_flat_blocks(self.fast_layers),
                semantic=self._semantic_product(),
                codes=product_of(self.fast_output),
                fast_norm=StepNorm.of(self.fast_norm.weight, self.fast_norm.eps),
                pair_mask=_causal_mask(2, self.fast_embeddings.weight),
            )
        return self._steps

    def final_norm(self, hidden: Tensor) -> Tensor:
        """The norm after the slow stack; hidden [..., dim]."""
        norm = self.norm if self.config.hybrid is None else self.slow.final_layernorm
        result: Tensor = norm(hidden)
        return result

    def compact_logits(self, final: Tensor) -> Tensor:
        """final [row, dim] → float32 [row, N + 1]: the semantic ids, then end of speech."""
        return self._step_parts().semantic(final).float()

    def compact_table(self) -> Tensor:
        """Rows of the dense model's tied embedding that can ever be drawn, side by side (a copy)."""
        config = self.config
        ids = [*range(config.semantic_begin_id, config.semantic_end_id + 1), config.eos_token_id]
        return self.embeddings.weight.detach()[torch.tensor(ids, device=self.device)]

    def _semantic_product(self) -> Product:
        if self.config.hybrid is not None:
            return product_of(self.semantic_output)
        return self._half_head or product_with(self.compact_table())

    def _stack(
        self, embedded: Tensor, positions: Tensor, attend: LayerAttend, state_of: StateOf, keep: Tensor | None
    ) -> Tensor:
        """The slow layers without the final norm; embedded [row, time, dim] → same shape."""
        table = self.slow_rope(positions)
        x = embedded
        if self.config.hybrid is None:
            for index, layer in enumerate(self.layers):
                x = layer(x, table, _for_layer(attend, index))
            return x
        x = scaled(x, self.config.hybrid.embedding_multiplier)
        for index, layer in enumerate(self.slow.layers):
            x = layer(x, table, _for_layer(attend, index), state_of(index), keep)
        return x

    # The fast model

    def fast_frame(
        self, fast_hidden: Tensor, code0: Tensor, choose: Choose, *, parts: Sequence[int] | None = None
    ) -> Tensor:
        """All codes of one frame from the slow model's state [row, dim] and the semantic code → int64 [row, C].

        Positions 0 and 1 are known beforehand and run as one pass, cut into `parts` of the rows (see
        `ExactRule.pair_sizes`); each later position takes the id that `choose` drew before it. `code0` is clamped to
        0..N-1, so a row that has ended computes something harmless.
        """
        config = self.config
        rows = fast_hidden.shape[0]
        code0 = code0.clamp(0, config.codebook_size - 1)
        memory = fast_hidden.new_empty(
            config.n_fast_layer, rows, 2 * config.fast_n_local_heads, config.num_codebooks, config.fast_head_dim
        )
        projected = self.project_for_fast(fast_hidden)
        start = torch.stack([projected, self.fast_embeddings(code0)], dim=1)  # [row, 2, fast_dim]
        sizes = list(parts or [rows])
        pieces = zip(torch.split(start, sizes), torch.split(memory, sizes, dim=1), strict=True)
        first = [self._fast_pass(x.flatten(0, 1), own, 0).view_as(x)[:, 1] for x, own in pieces]
        ids = choose(1, self._fast_logits(torch.cat(first) if len(first) > 1 else first[0]))
        codes = [code0, ids]
        for index in range(2, config.num_codebooks):
            hidden = self._fast_pass(self.fast_embeddings(ids), memory, index)
            ids = choose(index, self._fast_logits(hidden))
            codes.append(ids)
        return torch.stack(codes, dim=1)

    def fast_teacher_forced(self, fast_hidden: Tensor, codes: Tensor) -> Tensor:
        """Logits of codebooks 1..C-1 when the frame's codes int64 [row, C] are given → float32 [row, C-1, N].

        One pass without a cache: the simple path of the fast model.
        """
        inputs = torch.cat([self.project_for_fast(fast_hidden)[:, None], self.fast_embeddings(codes[:, :-1])], dim=1)
        return self.fast_stack(inputs)[:, 1:]

    def fast_stack(self, x: Tensor) -> Tensor:
        """All fast layers, norm and head over x [row, position, fast_dim] from position 0 → float32 [..., N]."""
        attend = attend_directly(self.config.fast_n_local_heads, _causal_mask(x.shape[1], x))
        table = self.fast_rope.on(x.device)[: x.shape[1]]
        for layer in self.fast_layers:
            x = layer(x, table, attend)
        logits: Tensor = self.fast_output(self.fast_norm(x))
        return logits.float()

    def project_for_fast(self, hidden: Tensor) -> Tensor:
        """The slow hidden state in the fast model's width."""
        if self.config.fast_dim == self.config.dim:
            return hidden
        projected: Tensor = self.fast_project_in(hidden)
        return projected

    def _fast_logits(self, hidden: Tensor) -> Tensor:
        parts = self._step_parts()
        logits = parts.codes(parts.fast_norm(hidden))
        return logits if logits.dtype == torch.float32 else logits.float()

    def _fast_pass(self, x: Tensor, memory: Tensor, position: int) -> Tensor:
        """Runs x [row * time, fast_dim] at positions `position`.. on the frame's memory → same shape.

        memory [layer, row, 2 * kv_head, C, head_dim]; at position 0 time is 2, else 1.
        """
        rows, time = memory.shape[1], 1 if position else 2
        end = position + time
        parts = self._step_parts()
        turns = self.fast_rope.turns_on(x.device).narrow(0, position, time)
        turns = turns if time == 1 else turns.repeat(rows, 1, 1)
        mask = parts.pair_mask if position == 0 else None

        def attend(layer: int, q: Tensor, kv: Tensor) -> Tensor:
            own = memory[layer]
            new = kv.unsqueeze(2) if time == 1 else torch.unflatten(kv, 0, (rows, time)).transpose(1, 2)
            own.narrow(2, position, time).copy_(new)
            keys, values = own.narrow(2, 0, end).chunk(2, dim=1)
            return flat_attention(q, keys, values, mask)

        for layer, block in enumerate(parts.fast):
            x = block(x, turns, attend, layer)
        return x


def _causal_mask(length: int, like: Tensor) -> Tensor:
    """Additive mask [1, 1, length, length] in the dtype of `like`."""
    order = torch.arange(length, device=like.device)
    return additive_mask((order[None, :] <= order[:, None])[None], like.dtype)


def _flat_blocks(layers: nn.ModuleList) -> list[FlatBlock]:
    return [FlatBlock.of(layer) for layer in layers if isinstance(layer, Block)]


def _for_layer(attend: LayerAttend, index: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda q, kv: attend(index, q, kv)


def _slow_block(config: LMConfig) -> Block:
    attention = Attention(
        dim=config.dim,
        num_heads=config.n_head,
        num_kv_heads=config.n_local_heads,
        head_dim=config.head_dim,
        qkv_bias=config.attention_qkv_bias,
        qk_norm=config.attention_qk_norm,
        o_bias=config.attention_o_bias,
        eps=config.norm_eps,
    )
    return Block(attention, dim=config.dim, hidden=config.intermediate_size, eps=config.norm_eps)


def _fast_block(config: LMConfig) -> Block:
    attention = Attention(
        dim=config.fast_dim,
        num_heads=config.fast_n_head,
        num_kv_heads=config.fast_n_local_heads,
        head_dim=config.fast_head_dim,
        qkv_bias=config.fast_attention_qkv_bias,
        qk_norm=config.fast_attention_qk_norm,
        o_bias=config.fast_attention_o_bias,
        eps=config.norm_eps,
    )
    return Block(attention, dim=config.fast_dim, hidden=config.fast_intermediate_size, eps=config.norm_eps)
