"""The dense language model of the 2B checkpoint (AUDEX spec, 3.1). Submodules are named as in the checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from oscine.families.audex.config import DenseConfig
from oscine.families.audex.model.lanes import Call, Decode, Prefill
from oscine.kernels.int8 import Int8Linear, Matrix, product
from oscine.layers.embedding import Embedding
from oscine.layers.norm import RMSNorm
from oscine.layers.rope import rope_table, rotate_half_split
from oscine.runtime.cache import CacheShape, Lane


class Linear(nn.Linear):
    """A bias-free product whose weights are not filled at random first: there can be thousands of them."""

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__(num_in, num_out, bias=False)

    def reset_parameters(self) -> None:
        """Nothing: weights come from a checkpoint."""


class SquaredReluMLP(nn.Module):
    """`down(relu(up x)^2)`: two matrices, no gate, no bias."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.up_proj = Linear(dim, hidden)
        self.down_proj = Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., dim] → same shape."""
        out: Tensor = self.down_proj(self.up_proj(x).relu().square())
        return out


class Attention(nn.Module):
    """Causal attention with grouped heads; rotary when a table is given. No biases, no norm of q and k."""

    def __init__(self, dim: int, heads: int, kv_heads: int, head_dim: int, index: int) -> None:
        super().__init__()
        self.q_proj = Linear(dim, heads * head_dim)
        self.k_proj = Linear(dim, kv_heads * head_dim)
        self.v_proj = Linear(dim, kv_heads * head_dim)
        self.o_proj = Linear(heads * head_dim, dim)
        self.head_dim = head_dim
        self.index = index

    def forward(self, x: Tensor, call: Call, rope: Tensor | None = None) -> Tensor:
        """x [row, dim], rope table [row, head_dim / 2, 2] → same shape as x."""
        shape = (-1, self.head_dim)
        q, k, v = self.q_proj(x).unflatten(-1, shape), self.k_proj(x).unflatten(-1, shape), self.v_proj(x)
        if rope is not None:
            q, k = rotate_half_split(q, rope), rotate_half_split(k, rope)
        out: Tensor = self.o_proj(call.attend(self.index, q, k, v.unflatten(-1, shape)).flatten(-2))
        return out


class DenseLayer(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, config: DenseConfig, index: int) -> None:
        super().__init__()
        dim = config.hidden_size
        self.input_layernorm = RMSNorm(dim, config.norm_eps)
        heads = (config.num_attention_heads, config.num_key_value_heads, config.head_dim)
        self.self_attn = Attention(dim, *heads, index)
        self.post_attention_layernorm = RMSNorm(dim, config.norm_eps)
        self.mlp = SquaredReluMLP(dim, config.intermediate_size)

    def forward(self, h: Tensor, call: Call, rope: Tensor) -> Tensor:
        """h [row, dim], rope table [row, head_dim / 2, 2] → same shape as h."""
        h = h + self.self_attn(self.input_layernorm(h), call, rope)
        out: Tensor = h + self.mlp(self.post_attention_layernorm(h))
        return out


class DenseStack(nn.Module):
    """Embedding, layers and final norm, under the checkpoint's name `model`."""

    def __init__(self, config: DenseConfig) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DenseLayer(config, index) for index in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)


class DenseLM(nn.Module):
    """Token ids or embeddings in, logits out; what a sequence remembers is in its `Lane`."""

    def __init__(self, config: DenseConfig) -> None:
        super().__init__()
        self.config = config
        self.model = DenseStack(config)
        if not config.tie_word_embeddings:
            self.lm_head: Linear | Int8Linear = Linear(config.hidden_size, config.vocab_size)

    @property
    def cache_shape(self) -> CacheShape:
        """What a lane keeps."""
        config = self.config
        return CacheShape(
            layers=config.num_hidden_layers,
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            dtype=self.model.embed_tokens.weight.dtype,
        )

    def new_lane(self, capacity: int, limit: int | None = None) -> Lane:
        """An empty lane with room for `capacity` positions to begin with, `limit` at most as far as is known."""
        return Lane(self.cache_shape, self.model.embed_tokens.weight.device, capacity=capacity, limit=limit)

    def embed(self, ids: Tensor) -> Tensor:
        """ids int64 [...] → [..., dim]."""
        out: Tensor = self.model.embed_tokens(ids)
        return out

    def prefill(self, embeddings: Tensor, lane: Lane) -> Tensor:
        """Takes embeddings [time, dim] into a fresh lane → normed hidden rows [time, dim]."""
        return self._run(embeddings, Prefill(lane), torch.arange(len(embeddings), device=embeddings.device))

    def decode(self, ids: Tensor, lanes: Sequence[Lane]) -> Tensor:
        """Takes one token id a row into each lane → normed hidden rows; rows beyond the lanes are padding."""
        lengths = [lane.length for lane in lanes] + [0] * (len(ids) - len(lanes))
        return self._run(self.embed(ids), Decode(lanes), torch.tensor(lengths, device=ids.device))

    @property
    def head_weight(self) -> Matrix:
        """The output matrix [vocab, dim]."""
        if self.config.tie_word_embeddings:
            return self.model.embed_tokens.weight
        return self.lm_head.matrix if isinstance(self.lm_head, Int8Linear) else self.lm_head.weight

    def logits(self, hidden: Tensor) -> Tensor:
        """Normed hidden rows [..., dim] → float32 logits [..., vocab]."""
        return product(hidden, self.head_weight).float()

    def _run(self, h: Tensor, call: Call, positions: Tensor) -> Tensor:
        taken = len(h) if isinstance(call, Prefill) else 1
        for lane in call.lanes:
            lane.reserve(lane.length + taken)
        angles = (self.config.head_dim, self.config.rope_theta)
        if isinstance(call, Prefill):
            rope = rope_table(positions, *angles)
        else:  # one by one: a cosine's last bit can depend on where the tensor ends, hence on the neighbours
            rope = torch.cat([rope_table(position, *angles) for position in positions[:, None]])
        for layer in self.model.layers:
            h = layer(h, call, rope)
        for lane in call.lanes:
            lane.length += taken
        out: Tensor = self.model.norm(h)
        return out
