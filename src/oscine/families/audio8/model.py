"""The Audio8 language model: a slow model over columns, a fast model inside each frame (AUDIO8 spec, section 3).

Modules hold weights only and are named as in the checkpoint. There are two ways through the slow model: `forward`,
simple and without a cache, kept to compare with, and `slow`, which works on rows of a `SlowCache`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from oscine.families.audio8.hybrid import HybridLayer, MixerState, scaled
from oscine.layers.norm import RMSNorm

Choose = Callable[[int, Tensor], Tensor]
"""(codebook i in 1..C-1, its logits float32 [row, codebook_size]) → ids int64 [row]."""


class DualAR(nn.Module):
    """Slow and fast autoregressive model of one checkpoint; build it on the meta device, then load its weights."""

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        self.config = config
        self.codebook_embeddings = nn.Embedding(config.codebook_size * config.num_codebooks, config.dim)
        if config.hybrid is None:
            self.embeddings = nn.Embedding(config.vocab_size, config.dim)
            self.layers = nn.ModuleList(_slow_block(config) for _ in range(config.n_layer))
            self.norm = RMSNorm(config.dim, config.norm_eps)
        else:
            self.slow_model = HybridSlow(config, config.hybrid)
            self.semantic_output = nn.Linear(config.dim, config.codebook_size + 1, bias=False)
        self.fast_project_in: nn.Module = (
            nn.Identity() if config.fast_dim == config.dim else nn.Linear(config.dim, config.fast_dim)
        )
        self.fast_embeddings = nn.Embedding(config.codebook_size, config.fast_dim)
        self.fast_layers = nn.ModuleList(_fast_block(config) for _ in range(config.n_fast_layer))
        self.fast_norm = RMSNorm(config.fast_dim, config.norm_eps)
        self.fast_output = nn.Linear(config.fast_dim, config.codebook_size, bias=False)
        rounding = torch.bfloat16 if config.hybrid is None else None
        self.slow_rope = RopeTable(config.max_seq_len, config.head_dim, config.rope_base, rounding)
        self.fast_rope = RopeTable(config.num_codebooks, config.fast_head_dim, config.rope_base, torch.bfloat16)
        self._compact_head: Tensor | None = None
