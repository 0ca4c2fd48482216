"""The Audio8 language model: a slow model over columns, a fast model inside each frame (AUDIO8 spec, section 3).

Modules hold weights only and are named as in the checkpoint. `forward` and `fast_stack` are the simple path, without a
cache, which trains and is kept to compare with; steps on rows of a `SequenceCache` are a backend's (`backends/`).

Shapes: C = num_codebooks, N = codebook_size. A column is C + 1 integers: a token id, then the C codes of an audio
frame (zeros at text). Compact logits are the N semantic ids, then end-of-speech at index N.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audio8.config import HybridConfig, LMConfig
from oscine.families.audio8.model.cache import cache_shape, mixer_state
from oscine.families.audio8.model.dense import (
    Attention,
    Block,
    LayerAttend,
    RopeTable,
    additive_mask,
    attend_directly,
)
from oscine.families.audio8.model.hybrid import HybridLayer, MixerState, scaled
from oscine.layers.embedding import Embedding
from oscine.layers.norm import RMSNorm
from oscine.runtime.cache import SequenceCache

StateOf = Callable[[int], MixerState]
"""Layer index → its recurrent state."""


class HybridSlow(nn.Module):
    """The Falcon-H1 stack, under the name `slow` in the checkpoint."""

    def __init__(self, config: LMConfig, hybrid: HybridConfig) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(HybridLayer(config, hybrid) for _ in range(config.n_layer))
        self.final_layernorm = RMSNorm(config.dim, config.norm_eps)


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
        self._code_offsets: Tensor | None = None

    @property
    def dtype(self) -> torch.dtype:
        """The dtype the model computes in."""
        return self.codebook_embeddings.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.codebook_embeddings.weight.device

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
        scratch = SequenceCache(cache_shape(self.config, self.dtype), columns.device)
        scratch.ensure(rows, 0)
        hidden = self.stack(
            self.embed(columns),
            positions,
            lambda _, q, kv: attend(q, kv),
            lambda layer: mixer_state(scratch, layer, slice(0, rows)),
            keep,
        )
        final = self.final_norm(hidden)
        if self.config.hybrid is None:
            return F.linear(final, self.embeddings.weight), hidden
        return self.semantic_output(final), final

    def final_norm(self, hidden: Tensor) -> Tensor:
        """The norm after the slow stack; hidden [..., dim]."""
        norm = self.norm if self.config.hybrid is None else self.slow.final_layernorm
        result: Tensor = norm(hidden)
        return result

    def compact_table(self) -> Tensor:
        """Rows of the dense model's tied embedding that can ever be drawn, side by side (a copy)."""
        config = self.config
        ids = [*range(config.semantic_begin_id, config.semantic_end_id + 1), config.eos_token_id]
        return self.embeddings.weight.detach()[torch.tensor(ids, device=self.device)]

    def stack(
        self, embedded: Tensor, positions: Tensor, attend: LayerAttend, state_of: StateOf, keep: Tensor | None = None
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

    def fast_teacher_forced(self, fast_hidden: Tensor, codes: Tensor) -> Tensor:
        """Logits of codebooks 1..C-1 when the frame's codes int64 [row, C] are given → float32 [row, C-1, N].

        One pass without a cache: the simple path of the fast model.
        """
        inputs = torch.cat([self.project_for_fast(fast_hidden)[:, None], self.fast_embeddings(codes[:, :-1])], dim=1)
        return self.fast_stack(inputs)[:, 1:]

    def fast_stack(self, x: Tensor) -> Tensor:
        """All fast layers, norm and head over x [row, position, fast_dim] from position 0 → float32 [..., N]."""
        attend = attend_directly(self.config.fast_n_local_heads, causal_mask(x.shape[1], x))
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


def causal_mask(length: int, like: Tensor) -> Tensor:
    """Additive mask [1, 1, length, length] in the dtype of `like`."""
    order = torch.arange(length, device=like.device)
    return additive_mask((order[None, :] <= order[:, None])[None], like.dtype)


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
