"""How several sequences lie in one batch: padded rows with masks, or packed end to end without padding.

The blocks are written once; a layout says which rows attend to which, where padding is, and which row of the
modulation table a token takes. Streams: "text", "audio" = [reference | target], "single" = [text | audio] of each row.
Heads are [batch, head, time, head_dim].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.errors import InvalidRequest
from oscine.runtime.exact import RowRule

StreamName = Literal["text", "audio", "single", "target"]
Rope = tuple[Tensor, Tensor]
"""(cos, sin), float32 [batch, 1, time, head_dim], each angle repeated for its pair."""
Heads = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values of one stream."""


@dataclass(frozen=True, kw_only=True)
class AuKStepContext:
    """Everything of a request that depends neither on the latents nor on the time; made by `AuKTransformer.prepare`.

    Rows are [conditioned ; unconditioned] when `branches` is 2. Biases are additive, 0 or -inf, [row, 1, 1, key].
    """

    c: Tensor
    c_mask: Tensor
    prompt: Tensor | None
    target_mask: Tensor | None
    audio_mask: Tensor | None
    single_mask: Tensor | None
    joint_bias: Tensor | None
    single_bias: Tensor | None
    rope_text: Rope
    rope_audio: Rope
    rope_single: Rope
    branches: int
    target_len: int
    modulation: Tensor | None = None

    def tensors(self) -> list[Tensor | None]:
        """Every tensor in a fixed order, those of the rotary tables one by one, the modulation table last."""
        masks = (self.target_mask, self.c_mask, self.audio_mask, self.single_mask, self.joint_bias, self.single_bias)
        return [self.c, self.prompt, *masks, *self.rope_audio, *self.rope_text, *self.rope_single, self.modulation]

    def copy_(self, other: AuKStepContext) -> None:
        """Writes the tensors of `other` into these, for a captured graph that reads them where they are.

        Raises InvalidRequest, a ValueError, for a context of another form: then nothing is written.
        """
        pairs = list(zip(self.tensors(), other.tensors(), strict=True))
        forms = [[None if value is None else value.shape for value in pair] for pair in pairs]
        if (self.branches, self.target_len) != (other.branches, other.target_len) or any(a != b for a, b in forms):
            raise InvalidRequest("the contexts differ in branches, in lengths, or in which masks there are")
        for mine, theirs in pairs:
            if mine is not None and theirs is not None:
                mine.copy_(theirs)

    def clone(self) -> AuKStepContext:
        """The same context with tensors of its own."""
        copies = {field.name: _cloned(getattr(self, field.name)) for field in fields(self)}
        return AuKStepContext(**copies)


class Layout(Protocol):
    """What the blocks ask of a batch."""

    rope_text: Rope
    rope_audio: Rope
    rope_single: Rope

    def spread(self, rows: Tensor, stream: StreamName) -> Tensor:
        """Modulation rows [request or 1, width] so that they broadcast over the tokens of the stream."""

    def joint(self, audio: Heads, text: Heads) -> tuple[Tensor, Tensor]:
        """Attention over both streams, keys audio first; ([batch, audio time, dim], [batch, text time, dim])."""

    def single(self, heads: Heads) -> Tensor:
        """Attention over the single stream, [batch, time, dim]."""

    def zeroed(self, x: Tensor, stream: StreamName) -> Tensor:
        """x with the rows that are padding set to zero."""

    def merge(self, text: Tensor, audio: Tensor) -> Tensor:
        """The single stream of both."""

    def targets(self, single: Tensor) -> Tensor:
        """The target's rows of the single stream."""

    def apply(self, layer: nn.Module, x: Tensor) -> Tensor:
        """A layer that treats every token alike."""


class Padded:
    """Rows of one length, as the context's masks say."""

    def __init__(self, context: AuKStepContext) -> None:
        self._context = context
        self.rope_text, self.rope_audio = context.rope_text, context.rope_audio
        self.rope_single = context.rope_single
        self._masks = {"text": context.c_mask, "audio": context.audio_mask, "single": context.single_mask}

    def spread(self, rows: Tensor, stream: StreamName) -> Tensor:
        """See `Layout`; [row or 1, 1, width]."""
        return rows[:, None]

    def joint(self, audio: Heads, text: Heads) -> tuple[Tensor, Tensor]:
        """See `Layout`."""
        q, k, v = (torch.cat(pair, dim=2) for pair in zip(audio, text, strict=True))
        out = _attend(q, k, v, self._context.joint_bias)
        length = audio[0].shape[2]
        return out[:, :length], out[:, length:]

    def single(self, heads: Heads) -> Tensor:
        """See `Layout`."""
        return _attend(*heads, self._context.single_bias)

    def zeroed(self, x: Tensor, stream: StreamName) -> Tensor:
        """See `Layout`."""
        mask = self._masks[stream]
        return x if mask is None else x.masked_fill(~mask[..., None], 0.0)

    def merge(self, text: Tensor, audio: Tensor) -> Tensor:
        """See `Layout`."""
        return torch.cat([text, audio], dim=1)

    def targets(self, single: Tensor) -> Tensor:
        """See `Layout`."""
        return single[:, -self._context.target_len :]

    def apply(self, layer: nn.Module, x: Tensor) -> Tensor:
        """See `Layout`."""
        out: Tensor = layer(x)
        return out


class Packed:
    """Requests of any lengths end to end in one row, [1, tokens, dim]; each attends to itself alone, at its own length.

    So a request's attention is the same call whoever else is there, and token-wise products keep to the rows of a
    `RowRule`: on the CPU in float32 its bits do not depend on its neighbours. The branches of a request lie
    side by side. Contexts must be of one request each, without padding.

        text    [t0 cond][t0 uncond][t1 cond]...      audio   [r0 x0 cond][r0 x0 uncond][r1 x1 cond]...
        single  [t0 r0 x0 cond][t0 r0 x0 uncond][t1 r1 x1 cond]...
    """

    def __init__(self, contexts: Sequence[AuKStepContext], rule: RowRule) -> None:
        self._rule = rule
        self._branches = [context.branches for context in contexts]
        self._text = [context.c.shape[1] for context in contexts]
        self._audio = [context.rope_audio[0].shape[2] for context in contexts]
        self._target = [context.target_len for context in contexts]
        self._both = [text + audio for text, audio in zip(self._text, self._audio, strict=True)]
        self.rope_text = self._pack_rope([context.rope_text for context in contexts])
        self.rope_audio = self._pack_rope([context.rope_audio for context in contexts])
        self.rope_single = self._pack_rope([context.rope_single for context in contexts])
        lengths = {"text": self._text, "audio": self._audio, "single": self._both, "target": self._target}
        device = contexts[0].c.device
        self._owner = {name: self._owners(counts).to(device) for name, counts in lengths.items()}

    def spread(self, rows: Tensor, stream: StreamName) -> Tensor:
        """See `Layout`; [1, 1 or token, width]."""
        return rows[None] if rows.shape[0] == 1 else rows[self._owner[stream]][None]

    def joint(self, audio: Heads, text: Heads) -> tuple[Tensor, Tensor]:
        """See `Layout`."""
        audio_parts, text_parts = [], []
        audios = zip(*(self._split(x, self._audio) for x in audio), strict=True)
        texts = zip(*(self._split(x, self._text) for x in text), strict=True)
        for a, t in zip(audios, texts, strict=True):
            q, k, v = (torch.cat(pair, dim=2) for pair in zip(a, t, strict=True))
            out = _attend(q, k, v, None)  # [branch, time, dim]
            length = a[0].shape[2]
            audio_parts.append(out[:, :length].flatten(0, 1))
            text_parts.append(out[:, length:].flatten(0, 1))
        return self._rule.pad(audio_parts), self._rule.pad(text_parts)

    def single(self, heads: Heads) -> Tensor:
        """See `Layout`."""
        parts = zip(*(self._split(x, self._both) for x in heads), strict=True)
        return self._rule.pad([_attend(q, k, v, None).flatten(0, 1) for q, k, v in parts])

    def zeroed(self, x: Tensor, stream: StreamName) -> Tensor:
        """See `Layout`; nothing attends to padding."""
        return x

    def merge(self, text: Tensor, audio: Tensor) -> Tensor:
        """See `Layout`."""
        texts, audios = self._rows(text, self._text), self._rows(audio, self._audio)
        return self._rule.pad([torch.cat(pair, dim=1).flatten(0, 1) for pair in zip(texts, audios, strict=True)])

    def targets(self, single: Tensor) -> Tensor:
        """See `Layout`."""
        rows = self._rows(single, self._both)
        return self._rule.pad([x[:, -n:].flatten(0, 1) for x, n in zip(rows, self._target, strict=True)])

    def apply(self, layer: nn.Module, x: Tensor) -> Tensor:
        """See `Layout`."""
        return self._rule.apply(layer, x)

    def pack(self, parts: Sequence[Tensor]) -> Tensor:
        """[branch, time, dim] of each request → [1, tokens, dim]."""
        return self._rule.pad([part.flatten(0, 1) for part in parts])

    def split_targets(self, target: Tensor) -> list[Tensor]:
        """Per request [branch, target time, width] of the rows `targets` gave."""
        return self._rows(target, self._target)

    def _split(self, x: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """Heads [1, head, token, head_dim] → per request [branch, head, time, head_dim]."""
        counts = [b * n for b, n in zip(self._branches, lengths, strict=True)]
        pieces = torch.split(x[0, :, : sum(counts)], counts, dim=1)
        return [
            torch.unflatten(piece, 1, (b, n)).transpose(0, 1)
            for piece, b, n in zip(pieces, self._branches, lengths, strict=True)
        ]

    def _rows(self, x: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """[1, token, dim] → per request [branch, time, dim]."""
        counts = [b * n for b, n in zip(self._branches, lengths, strict=True)]
        pieces = torch.split(x[0, : sum(counts)], counts)
        return [torch.unflatten(piece, 0, (b, n)) for piece, b, n in zip(pieces, self._branches, lengths, strict=True)]

    def _pack_rope(self, tables: Sequence[Rope]) -> Rope:
        """Tables [branch or 1, 1, time, head_dim] → [1, 1, token, head_dim]."""
        cos, sin = (
            self._rule.pad(
                [
                    table[part][:, 0].expand(b, -1, -1).flatten(0, 1)
                    for table, b in zip(tables, self._branches, strict=True)
                ]
            )
            for part in (0, 1)
        )
        return cos[:, None], sin[:, None]

    def _owners(self, lengths: Sequence[int]) -> Tensor:
        counts = torch.tensor([b * n for b, n in zip(self._branches, lengths, strict=True)])
        owner = torch.repeat_interleave(torch.arange(len(counts)), counts)
        return F.pad(owner, (0, self._rule.padded(len(owner)) - len(owner)))


def _cloned(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_cloned(part) for part in value)
    return value.clone() if isinstance(value, Tensor) else value


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Softmax attention; [batch, head, time, head_dim] → [batch, time, head * head_dim]."""
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=None if bias is None else bias.to(q.dtype))
    return out.transpose(1, 2).flatten(2)
