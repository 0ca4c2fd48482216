"""The causal speech decoder: one token a frame to 16 kHz samples, a chunk at a time (AUDEX spec, 3.4 and 6.4).

Decoding in chunks gives the samples of one call: attention sees all past frames through a growing cache, and the
look-ahead frames are only peeked at. Everything is float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audex.codec.config import SpeechDecoderConfig
from oscine.families.audex.codec.speech_batch import NOTHING_PROMISED, FrameCall, Stretch, measured_rules
from oscine.kernels.vector import pad_to_vector_width
from oscine.layers.norm import RMSNorm, plain_rms_norm
from oscine.layers.rope import rotate_interleaved
from oscine.runtime.cache import CacheShape, Lane
from oscine.runtime.exact import MIN_MANY

NORM_EPS = 1e-6
FIRST_CAPACITY = 64


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """`frames` to decode, the first of `ids`, after those in `lane`; the rest of `ids` is looked ahead at.

    `ids` holds up to `lookahead_steps` more; frames that are not there count as zeros.
    """

    ids: Sequence[int]
    frames: int
    lane: Lane


class DecoderAttention(nn.Module):
    """Causal attention over all frames so far, rotary in interleaved pairs."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(dim, 3 * dim, bias=False)
        self.c_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, call: FrameCall, index: int) -> Tensor:
        """x [1, row, dim] → same shape, in layer `index`."""
        q, k, v = torch.unflatten(call.product(self.c_attn, x)[0], -1, (3, self.heads, -1)).unbind(1)
        q, k = rotate_interleaved(q, call.rope), rotate_interleaved(k, call.rope)
        return call.product(self.c_proj, call.attend(index, q, k, v).flatten(1)[None])


class DecoderMLP(nn.Module):
    """`fc2(silu(fc1 x))`, no biases."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, 4 * dim, bias=False)
        self.fc2 = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x: Tensor, call: FrameCall) -> Tensor:
        """x [1, row, dim] → same shape."""
        return call.product(self.fc2, pad_to_vector_width(F.silu, call.product(self.fc1, x)))


class DecoderBlock(nn.Module):
    """One pre-norm block."""

    def __init__(self, config: SpeechDecoderConfig) -> None:
        super().__init__()
        self.att_norm = RMSNorm(config.hidden_dim, NORM_EPS, plain_rms_norm)
        self.att = DecoderAttention(config.hidden_dim, config.heads)
        self.ffn_norm = RMSNorm(config.hidden_dim, NORM_EPS, plain_rms_norm)
        self.mlp = DecoderMLP(config.hidden_dim)

    def forward(self, x: Tensor, call: FrameCall, index: int) -> Tensor:
        """x [1, row, dim] → same shape, as layer `index`."""
        x = x + self.att(self.att_norm(x), call, index)
        out: Tensor = x + self.mlp(self.ffn_norm(x), call)
        return out


class Backbone(nn.Module):
    """The blocks and the final norm."""

    def __init__(self, config: SpeechDecoderConfig) -> None:
        super().__init__()
        self.head_dim = config.pos_meb_dim
        self.transformers = nn.ModuleList(DecoderBlock(config) for _ in range(config.depth))
        self.final_layer_norm = RMSNorm(config.hidden_dim, NORM_EPS, plain_rms_norm)

    def forward(self, x: Tensor) -> Tensor:
        """Whole streams x [batch, time, dim] → same shape."""
        stretches = [Stretch(frames=x.shape[1]) for _ in x]
        call = FrameCall(stretches, [x.shape[0] * x.shape[1]], head_dim=self.head_dim, like=x)
        return self.run(x.flatten(0, 1)[None], call).view(x.shape)

    def run(self, x: Tensor, call: FrameCall) -> Tensor:
        """The rows of a call x [1, row, dim] → same shape; its streams move on."""
        for index, block in enumerate(self.transformers):
            x = block(x, call, index)
        call.finish()
        out: Tensor = self.final_layer_norm(x)
        return out


class WaveHead(nn.Module):
    """Rows to samples in (-1, 1)."""

    def __init__(self, dim: int, hop_length: int) -> None:
        super().__init__()
        self.proj = nn.Linear(dim, hop_length, bias=False)

    def forward(self, x: Tensor, call: FrameCall | None = None) -> Tensor:
        """x [batch, time, dim] → [batch, time * hop_length]; the product in the sizes of `call`, if there is one."""
        rows = call.product(self.proj, x) if call else self.proj(x)
        return pad_to_vector_width(torch.tanh, rows).flatten(1)


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
    """Tokens to samples; `SpeechSession` streams it. `rules` say in which calls a stream's result is its own."""

    def __init__(self, config: SpeechDecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.rules = NOTHING_PROMISED
        self.audex_speech_token_embedder = TokenEmbedder(config)
        self.module = DecoderModule(config)

    def measure_rules(self) -> None:
        """Sets `rules` to what holds on this machine for the weights as they are now."""
        layers = [layer for layer in self.module.backbone.modules() if isinstance(layer, nn.Linear)]
        self.rules = measured_rules([*layers, self.module.head.proj])

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

    @property
    def cache_shape(self) -> CacheShape:
        """What a stream keeps."""
        config = self.config
        return CacheShape(
            layers=config.depth, kv_heads=config.heads, head_dim=config.pos_meb_dim, dtype=self._weight.dtype
        )

    def new_lane(self) -> Lane:
        """An empty cache for one stream."""
        return Lane(self.cache_shape, self._weight.device, capacity=FIRST_CAPACITY)

    def decode(self, chunks: Sequence[Chunk]) -> list[Tensor]:
        """Samples [sample] of the next chunk of each of several streams, bit for bit those of a call of its own."""
        made: list[Tensor] = [torch.empty(0)] * len(chunks)
        for many in (False, True):
            places = [place for place, chunk in enumerate(chunks) if (chunk.frames >= MIN_MANY) is many]
            if places:
                for place, samples in zip(places, self._decode([chunks[i] for i in places], many), strict=True):
                    made[place] = samples
        return made

    def _decode(self, chunks: Sequence[Chunk], many: bool) -> Sequence[Tensor]:
        """`decode` for chunks that are all of few frames, or all of many."""
        x = torch.cat([self._looked_ahead(chunk) for chunk in chunks])
        stretches = [Stretch(frames=chunk.frames, lane=chunk.lane) for chunk in chunks]
        call = FrameCall(stretches, self.rules[many].sizes(len(x)), head_dim=self.config.pos_meb_dim, like=self._weight)
        rows = self.module.backbone.run(F.pad(x, (0, 0, 0, call.padding))[None], call)
        samples: Tensor = self.module.head(rows, call)[0, : len(x) * self.config.hop_length]
        return torch.split(samples, [chunk.frames * self.config.hop_length for chunk in chunks])

    def _looked_ahead(self, chunk: Chunk) -> Tensor:
        """What the backbone reads of a chunk [frame, dim]; in shapes that depend on the chunk alone."""
        ids = list(chunk.ids[: chunk.frames + self.config.lookahead_steps])
        seen = torch.tensor([ids], device=self._weight.device)
        return self.module.look_ahead(self.project(seen), chunk.frames)[0]

    @property
    def _weight(self) -> Tensor:
        return self.module.fc_post_a.weight


class SpeechSession:
    """One stream of frames through the decoder.

    With `chunk_frames` each chunk is exactly that long, as in the reference; without, a push decodes all it can, so
    that the first audio comes after `lookahead_steps` + 1 frames. Any way of cutting gives the same samples.
    """

    def __init__(self, decoder: SpeechDecoder, chunk_frames: int | None = None) -> None:
        if chunk_frames is not None and chunk_frames < 1:
            raise ValueError(f"chunk_frames must be at least 1, got {chunk_frames}")
        self.decoder = decoder
        self._chunk_frames = chunk_frames
        self.reset()

    def reset(self) -> None:
        """Back to an empty stream."""
        self._lane = self.decoder.new_lane()
        self._waiting: list[int] = []

    def snapshot(self) -> tuple[int, tuple[int, ...]]:
        """A point to come back to: frames decoded and frames waiting."""
        return self._lane.length, tuple(self._waiting)

    def restore(self, snapshot: tuple[int, tuple[int, ...]]) -> None:
        """Back to a snapshot of this stream: what was decoded since is as if it had not been."""
        self._lane.length, self._waiting = snapshot[0], list(snapshot[1])

    def push(self, ids: Sequence[int]) -> list[Tensor]:
        """Adds frames; the chunks [sample] they complete, maybe none."""
        chunks = []
        while chunk := self.take(ids):
            chunks += self.decoder.decode([chunk])
            ids = ()
        return chunks

    def take(self, ids: Sequence[int]) -> Chunk | None:
        """Adds frames and takes out the next chunk they complete; it is to be decoded before the next is taken."""
        self._waiting.extend(ids)
        ready = len(self._waiting) - self.decoder.config.lookahead_steps
        return self._chunk(self._chunk_frames or ready) if ready >= (self._chunk_frames or 1) else None

    def flush(self) -> list[Tensor]:
        """The chunks of the frames held back; the stream may go on after it."""
        chunks = []
        while self._waiting:
            frames = min(self._chunk_frames or len(self._waiting), len(self._waiting))
            chunks += self.decoder.decode([self._chunk(frames)])
        return chunks

    def _chunk(self, frames: int) -> Chunk:
        chunk = Chunk(ids=tuple(self._waiting), frames=frames, lane=self._lane)
        del self._waiting[:frames]
        return chunk
