"""The causal speech decoder: one token a frame to 16 kHz samples, a chunk at a time (AUDEX spec, 3.4 and 6.4).

Decoding in chunks gives the samples of one call: attention sees all past frames through a growing cache, and the
look-ahead frames are only peeked at. Everything is float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audex.codec_config import SpeechDecoderConfig
from oscine.families.audex.lanes import LaneKV
from oscine.layers.rope import rope_table, rotate_interleaved

NORM_EPS = 1e-6
ROPE_BASE = 10000.0
FIRST_CAPACITY = 64


class PlainRMSNorm(nn.Module):
    """RMS over the last dim in the input's own dtype, without casts."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """x [..., dim] → same shape."""
        return plain_rms_norm(x, self.weight, NORM_EPS)


def plain_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x * rsqrt(mean(x^2) + eps) * weight` in x's dtype throughout."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


class DecoderAttention(nn.Module):
    """Causal attention over all frames so far, rotary in interleaved pairs."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(dim, 3 * dim, bias=False)
        self.c_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, rope: Tensor, visible: Tensor | None, layer: int, kv: LaneKV | None) -> Tensor:
        """x [batch, time, dim] → same shape. `visible` bool [time, key], None for all; `kv` needs a batch of one."""
        q, k, v = self.c_attn(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k = rotate_interleaved(q, rope).transpose(1, 2), rotate_interleaved(k, rope).transpose(1, 2)
        v = v.transpose(1, 2)
        if kv is not None:
            keys, values = kv.append(layer, k[0], v[0])
            k, v = keys[None], values[None]
        out: Tensor = self.c_proj(F.scaled_dot_product_attention(q, k, v, attn_mask=visible).transpose(1, 2).flatten(2))
        return out


class DecoderMLP(nn.Module):
    """`fc2(silu(fc1 x))`, no biases."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, 4 * dim, bias=False)
        self.fc2 = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., dim] → same shape."""
        out: Tensor = self.fc2(F.silu(self.fc1(x)))
        return out


class DecoderBlock(nn.Module):
    """One pre-norm block."""

    def __init__(self, config: SpeechDecoderConfig) -> None:
        super().__init__()
        self.att_norm = PlainRMSNorm(config.hidden_dim)
        self.att = DecoderAttention(config.hidden_dim, config.heads)
        self.ffn_norm = PlainRMSNorm(config.hidden_dim)
        self.mlp = DecoderMLP(config.hidden_dim)

    def forward(self, x: Tensor, rope: Tensor, visible: Tensor | None, layer: int, kv: LaneKV | None) -> Tensor:
        """x [batch, time, dim] → same shape."""
        x = x + self.att(self.att_norm(x), rope, visible, layer, kv)
        out: Tensor = x + self.mlp(self.ffn_norm(x))
        return out


class Backbone(nn.Module):
    """The blocks and the final norm."""

    def __init__(self, config: SpeechDecoderConfig) -> None:
        super().__init__()
        self.head_dim = config.pos_meb_dim
        self.transformers = nn.ModuleList(DecoderBlock(config) for _ in range(config.depth))
        self.final_layer_norm = PlainRMSNorm(config.hidden_dim)

    def forward(self, x: Tensor, kv: LaneKV | None = None) -> Tensor:
        """x [batch, time, dim], the frames after those in `kv` → same shape; `kv` takes them in."""
        time, start = x.shape[1], kv.length if kv else 0
        positions = torch.arange(start, start + time, device=x.device)
        rope = rope_table(positions, self.head_dim, ROPE_BASE)
        visible = None if time == 1 else torch.arange(start + time, device=x.device) <= positions[:, None]
        if kv is not None:
            kv.reserve(start + time)
        for layer, block in enumerate(self.transformers):
            x = block(x, rope, visible, layer, kv)
        if kv is not None:
            kv.length += time
        out: Tensor = self.final_layer_norm(x)
        return out


class WaveHead(nn.Module):
    """Rows to samples in (-1, 1)."""

    def __init__(self, dim: int, hop_length: int) -> None:
        super().__init__()
        self.proj = nn.Linear(dim, hop_length, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, time, dim] → [batch, time * hop_length]."""
        out: Tensor = self.proj(x).tanh().flatten(1)
        return out


class DecoderModule(nn.Module):
    """What the checkpoint calls `module`; `wav_proj` was a training input and is loaded but never used."""

    def __init__(self, config: SpeechDecoderConfig) -> None:
        super().__init__()
        dim, steps = config.hidden_dim, config.lookahead_steps
        self.wav_proj = nn.Linear(config.hop_length, dim, bias=False)
        self.fc_post_a = nn.Linear(config.vq_dim, dim, bias=False)
        if steps:
            self.lookahead_conv = nn.Conv1d(dim, dim, steps + 1, groups=dim, bias=False)
            self.lookahead_proj = nn.Conv1d(dim, dim, 1, bias=False)
        self.steps = steps
        self.backbone = Backbone(config)
        self.head = WaveHead(dim, config.hop_length)

    def look_ahead(self, projected: Tensor, num_frames: int) -> Tensor:
        """Mixes the next frames into the first `num_frames` of projected [batch, time, dim]; missing ones are zeros."""
        if not self.steps:
            return projected[:, :num_frames]
        lacking = num_frames + self.steps - projected.shape[1]
        x = F.pad(projected, (0, 0, 0, max(lacking, 0)))[:, : num_frames + self.steps].transpose(1, 2)
        mixed = self.lookahead_proj(F.silu(self.lookahead_conv(x))).transpose(1, 2)
        out: Tensor = projected[:, :num_frames] + mixed
        return out


class TokenEmbedder(nn.Module):
    """Finite scalar quantisation: the token's digits, scaled to [-1, 1], through one matrix."""

    def __init__(self, config: SpeechDecoderConfig) -> None:
        super().__init__()
        self.levels = config.codebook_levels
        self.project_out = nn.Linear(config.token_embed_dim, config.vq_dim)

    def forward(self, ids: Tensor) -> Tensor:
        """ids int64 [...] → [..., vq_dim]; the first digit is the least significant."""
        levels = torch.tensor(self.levels, device=ids.device)
        places = torch.tensor([prod(self.levels[:k]) for k in range(len(self.levels))], device=ids.device)
        digits = (ids[..., None] // places) % levels
        out: Tensor = self.project_out(digits * (2.0 / (levels - 1)) - 1.0)
        return out


class SpeechDecoder(nn.Module):
    """Tokens to samples; `SpeechSession` streams it."""

    def __init__(self, config: SpeechDecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.audex_speech_token_embedder = TokenEmbedder(config)
        self.module = DecoderModule(config)

    def project(self, ids: Tensor) -> Tensor:
        """ids int64 [batch, frame] → what the look-ahead reads [batch, frame, dim]. ValueError for an id too large."""
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < self.config.codebook_size:
            raise ValueError(f"speech tokens must be in 0..{self.config.codebook_size - 1}, got {int(ids.max())}")
        out: Tensor = self.module.fc_post_a(self.audex_speech_token_embedder(ids))
        return out

    def forward(self, ids: Tensor) -> Tensor:
        """ids int64 [batch, frame] → samples [batch, 1, sample], all at once."""
        projected = self.project(ids)
        x = self.module.look_ahead(projected, ids.shape[1])
        out: Tensor = self.module.head(self.module.backbone(x))[:, None]
        return out

    def new_kv(self) -> LaneKV:
        """An empty cache for one stream."""
        weight, config = self.module.fc_post_a.weight, self.config
        return LaneKV(
            config.depth,
            config.heads,
            config.pos_meb_dim,
            capacity=FIRST_CAPACITY,
            like=weight,
        )

    def kv_bytes(self, num_frames: int) -> int:
        """Bytes of the cache of a stream of `num_frames`, which grows by doubling."""
        config = self.config
        return 2 * 2 * num_frames * config.depth * config.hidden_dim * self.module.fc_post_a.weight.element_size()

    def decode_chunk(self, ids: Sequence[int], num_frames: int, kv: LaneKV) -> Tensor:
        """Samples [sample] of the first `num_frames` of `ids`, the frames after those in `kv`.

        The rest of `ids`, up to `lookahead_steps`, is peeked at; frames that are not there count as zeros.
        """
        device = self.module.fc_post_a.weight.device
        seen = torch.tensor([list(ids[: num_frames + self.config.lookahead_steps])], device=device)
        x = self.module.look_ahead(self.project(seen), num_frames)
        out: Tensor = self.module.head(self.module.backbone(x, kv))[0]
        return out


class SpeechSession:
    """One stream of frames through the decoder.

    With `chunk_frames` each chunk is exactly that long, as in the reference; without, a push decodes all it can, so
    that the first audio comes after `lookahead_steps` + 1 frames. Any way of cutting gives the same samples.
    """

    def __init__(self, decoder: SpeechDecoder, chunk_frames: int | None = None) -> None:
        if chunk_frames is not None and chunk_frames < 1:
            raise ValueError(f"chunk_frames must be at least 1, got {chunk_frames}")
        self._decoder = decoder
        self._chunk_frames = chunk_frames
        self.reset()

    def reset(self) -> None:
        """Back to an empty stream."""
        self._kv = self._decoder.new_kv()
        self._waiting: list[int] = []

    def push(self, ids: Sequence[int]) -> list[Tensor]:
        """Adds frames; the chunks [sample] they complete, maybe none."""
        self._waiting.extend(ids)
        chunks = []
        while (ready := len(self._waiting) - self._decoder.config.lookahead_steps) >= (self._chunk_frames or 1):
            chunks.append(self._decode(self._chunk_frames or ready))
        return chunks

    def flush(self) -> list[Tensor]:
        """The chunks of the frames held back; the stream may go on after it."""
        chunks = []
        while self._waiting:
            chunks.append(self._decode(min(self._chunk_frames or len(self._waiting), len(self._waiting))))
        return chunks

    def _decode(self, num_frames: int) -> Tensor:
        samples = self._decoder.decode_chunk(self._waiting, num_frames, self._kv)
        del self._waiting[:num_frames]
        return samples
