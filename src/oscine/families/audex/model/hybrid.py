"""The hybrid language model of the 30B-A3B checkpoint (AUDEX spec, 3.2). Submodules are named as in the checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from oscine.families.audex.config import HybridConfig
from oscine.families.audex.model.dense import Attention, Linear, SquaredReluMLP
from oscine.families.audex.model.lanes import Call, Decode, Prefill
from oscine.families.audex.model.mamba import Mamba
from oscine.families.audex.model.moe import MoE
from oscine.layers.embedding import Embedding
from oscine.layers.norm import RMSNorm, upcast_rms_norm
from oscine.runtime.cache import CacheShape, Lane


class Block(nn.Module):
    """One pre-norm block; its mixer is one of four kinds."""

    def __init__(self, config: HybridConfig, kind: str, index: int) -> None:
        super().__init__()
        self.kind = kind
        self.norm = RMSNorm(config.hidden_size, config.layer_norm_epsilon, upcast_rms_norm)
        self.mixer = _mixer(config, kind, index)

    def forward(self, h: Tensor, call: Call) -> Tensor:
        """h [row, dim] → same shape."""
        x = self.norm(h)
        mixed: Tensor = self.mixer(x) if self.kind == "mlp" else self.mixer(x, call)
        return h + mixed


class HybridStack(nn.Module):
    """Embedding, blocks and final norm, under the checkpoint's name `backbone`."""

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        self.embeddings = Embedding(config.vocab_size, config.hidden_size)
        ordinals = [config.blocks[:i].count(kind) for i, kind in enumerate(config.blocks)]
        self.layers = nn.ModuleList(
            Block(config, kind, index) for kind, index in zip(config.blocks, ordinals, strict=True)
        )
        self.norm_f = RMSNorm(config.hidden_size, config.layer_norm_epsilon, upcast_rms_norm)


class HybridLM(nn.Module):
    """Token ids or embeddings in, logits out; what a sequence remembers is in its `Lane`."""

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = HybridStack(config)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.hidden_size, config.vocab_size)

    @property
    def cache_shape(self) -> CacheShape:
        """What a lane keeps; states are named by the number of their Mamba block."""
        config, dtype = self.config, self.backbone.embeddings.weight.dtype
        parts = {
            "conv": ((config.conv_size, config.conv_kernel), dtype),
            "ssm": ((config.mamba_num_heads, config.mamba_head_dim, config.ssm_state_size), torch.float32),
        }
        blocks = range(config.blocks.count("mamba"))
        return CacheShape(
            layers=config.blocks.count("attention"),
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            dtype=dtype,
            states={f"{name}.{block}": part for block in blocks for name, part in parts.items()},
        )

    def new_lane(self, capacity: int, limit: int | None = None) -> Lane:
        """An empty lane with room for `capacity` positions to begin with, `limit` at most as far as is known."""
        return Lane(self.cache_shape, self.backbone.embeddings.weight.device, capacity=capacity, limit=limit)

    def embed(self, ids: Tensor) -> Tensor:
        """ids int64 [...] → [..., dim]."""
        out: Tensor = self.backbone.embeddings(ids)
        return out

    def prefill(self, embeddings: Tensor, lane: Lane) -> Tensor:
        """Takes embeddings [time, dim] into a fresh lane → normed hidden rows [time, dim]."""
        return self._run(embeddings, Prefill(lane), len(embeddings))

    def decode(self, ids: Tensor, lanes: Sequence[Lane]) -> Tensor:
        """Takes one token id a row into each lane → normed hidden rows; rows beyond the lanes are padding."""
        return self._run(self.embed(ids), Decode(lanes), 1)

    @property
    def head_weight(self) -> Tensor:
        """The output matrix [vocab, dim]."""
        return self.backbone.embeddings.weight if self.config.tie_word_embeddings else self.lm_head.weight

    def logits(self, hidden: Tensor) -> Tensor:
        """Normed hidden rows [..., dim] → float32 logits [..., vocab]."""
        return nn.functional.linear(hidden, self.head_weight).float()

    def _blocks(self) -> list[Block]:
        return [cast(Block, block) for block in self.backbone.layers]

    def _run(self, h: Tensor, call: Call, taken: int) -> Tensor:
        for lane in call.lanes:
            lane.reserve(lane.length + taken)
        for block in self.backbone.layers:
            h = block(h, call)
        for lane in call.lanes:
            lane.length += taken
        out: Tensor = self.backbone.norm_f(h)
        return out


def _mixer(config: HybridConfig, kind: str, index: int) -> nn.Module:
    if kind == "mamba":
        return Mamba(config, index)
    if kind == "moe":
        return MoE(config)
    if kind == "attention":
        return Attention(
            config.hidden_size, config.num_attention_heads, config.num_key_value_heads, config.head_dim, index
        )
    return SquaredReluMLP(config.hidden_size, config.intermediate_size or 0)
