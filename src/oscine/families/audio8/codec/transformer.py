"""The codec's transformers: causal attention over a sliding window (AUDIO8 spec, 3.5)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audio8.codec.layers import StreamState
from oscine.layers.mlp import SwiGLU
from oscine.layers.norm import RMSNorm
from oscine.layers.rope import factors, rope_table, spread_interleaved, turn_interleaved

NORM_EPS = 1e-5
ROPE_BASE = 10000.0
QUERY_BLOCK = 1024  # whole signals attend block by block, so that no mask is time x time
WIDTH_MULTIPLE = 64  # key widths of a stream are rounded up to this, which keeps the kernel's bits the same


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    """Attention of q [batch, head, query, head_dim] to k, v [batch, kv_head, key, head_dim].

    `visible` bool [query, key]. Query heads share key heads in consecutive groups.
    """
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible)


class WindowAttention(nn.Module):
    """Rotary attention in which step i sees steps i - window + 1 to i."""

    def __init__(self, dim: int, num_heads: int, num_kv_heads: int, head_dim: int, window: int) -> None:
        super().__init__()
        self.wqkv = nn.Linear(dim, (num_heads + 2 * num_kv_heads) * head_dim, bias=False)
        self.wo = nn.Linear(num_heads * head_dim, dim, bias=False)
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.head_dim = head_dim
        self.window = window

    def forward(self, x: Tensor, table: Tensor, state: StreamState | None = None) -> Tensor:
        """x [batch, time, dim], spread rope table of its absolute positions → same shape as x."""
        heads = torch.unflatten(self.wqkv(x), -1, (-1, self.head_dim))
        turned, v = heads.split_with_sizes((self.num_heads + self.num_kv_heads, self.num_kv_heads), dim=2)
        q, k = turn_interleaved(turned, *factors(table)).split_with_sizes((self.num_heads, self.num_kv_heads), dim=2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        y = self._whole(q, k, v) if state is None else self._piece(q, k, v, state)
        out: Tensor = self.wo(y.transpose(1, 2).flatten(2))
        return out

    def _whole(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        blocks = []
        for start in range(0, q.shape[2], QUERY_BLOCK):
            end = min(start + QUERY_BLOCK, q.shape[2])
            first = max(0, start - self.window + 1)
            visible = self._visible(start, end - start, first, end - first, q.device)
            blocks.append(attend(q[:, :, start:end], k[:, :, first:end], v[:, :, first:end], visible))
        return torch.cat(blocks, dim=2) if len(blocks) > 1 else blocks[0]

    def _piece(self, q: Tensor, k: Tensor, v: Tensor, state: StreamState) -> Tensor:
        position = state.positions.get(self, 0)
        length = q.shape[2]
        held = state.tensors.get(self)
        if held is not None:
            k, v = torch.cat([held[0], k], dim=2), torch.cat([held[1], v], dim=2)
        first = position + length - k.shape[2]
        keep = min(self.window - 1, k.shape[2])
        state.store(self, k[:, :, k.shape[2] - keep :], v[:, :, v.shape[2] - keep :])
        state.positions[self] = position + length
        fill = -k.shape[2] % WIDTH_MULTIPLE
        k, v = F.pad(k, (0, 0, 0, fill)), F.pad(v, (0, 0, 0, fill))
        return attend(q, k, v, self._visible(position, length, first, k.shape[2], q.device))

    def _visible(self, first_query: int, queries: int, first_key: int, keys: int, device: torch.device) -> Tensor:
        """Bool [queries, keys]; keys after the last query (padding included) are never visible."""
        i = torch.arange(first_query, first_query + queries, device=device)[:, None]
        j = torch.arange(first_key, first_key + keys, device=device)[None, :]
        return (j <= i) & (j > i - self.window)


class LayerScale(nn.Module):
    """A learned gain per channel on a residual branch."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), 1e-2))

    def forward(self, x: Tensor) -> Tensor:
        """x [..., dim] → same shape."""
        return x * self.gamma


class WindowBlock(nn.Module):
    """Pre-norm attention and feed-forward, each scaled before it is added."""

    def __init__(self, dim: int, heads: tuple[int, int], head_dim: int, hidden: int, window: int) -> None:
        super().__init__()
        self.attention = WindowAttention(dim, *heads, head_dim, window)
        self.feed_forward = SwiGLU(dim, hidden)
        self.ffn_norm = RMSNorm(dim, NORM_EPS)
        self.attention_norm = RMSNorm(dim, NORM_EPS)
        self.attention_layer_scale = LayerScale(dim)
        self.ffn_layer_scale = LayerScale(dim)

    def forward(self, x: Tensor, table: Tensor, state: StreamState | None = None) -> Tensor:
        """x [batch, time, dim] → same shape."""
        h: Tensor = x + self.attention_layer_scale(self.attention(self.attention_norm(x), table, state))
        y: Tensor = self.ffn_layer_scale(self.feed_forward(self.ffn_norm(h)))
        return h + y


class WindowTransformer(nn.Module):
    """A stack of window blocks over channels-first input; positions count from the start of the signal.

    `heads` = (query heads, key/value heads), `hidden` the feed-forward width, `window` in steps.
    """

    def __init__(
        self, dim: int, num_layers: int, *, heads: tuple[int, int], head_dim: int, hidden: int, window: int
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(WindowBlock(dim, heads, head_dim, hidden, window) for _ in range(num_layers))
        self.norm = RMSNorm(dim, NORM_EPS)
        self.head_dim = head_dim

    def forward(self, x: Tensor, state: StreamState | None = None) -> Tensor:
        """x [batch, dim, time] → same shape."""
        length = x.shape[-1]
        start = 0 if state is None else state.positions.get(self, 0)
        positions = torch.arange(start, start + length, device=x.device)
        table = spread_interleaved(rope_table(positions, self.head_dim, ROPE_BASE, round_to=torch.bfloat16))
        y = x.transpose(1, 2)
        for layer in self.layers:
            y = layer(y, table, state)
        if state is not None:
            state.positions[self] = start + length
        out: Tensor = self.norm(y).transpose(1, 2)
        return out
