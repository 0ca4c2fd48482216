"""One training pass of the language model: what it should say, and the aids that exist only in training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audio8.model.dense import Attend
from oscine.families.audio8.model.dual_ar import DualAR
from training.factors import ADVANCES, BENDS, CODEBOOK_SIZE, LOUDNESSES
from training.lm_data import IGNORED, Batch

GUIDED_LAYERS = (2, 4)
"""Slow layers whose first head is taught to look at the symbol being spoken."""

SYMBOL_WEIGHT, NEXT_WEIGHT, GUIDE_WEIGHT = 0.5, 0.25, 0.2
STATE_DROPOUT = 0.1  # of what heads and fast model read
ADVANCE_SPREAD, BEND_SPREAD = 1.5, 0.7  # standard deviations of advances and bends as targets, in 1/32 cycle
LOUDNESS_SPREAD = 0.3  # and of a loudness, in units of the teacher's energy, 5 to 6 dB each


class SymbolHead(nn.Module):
    """Reads off the slow state the symbol spoken in the frame and the one after it; exists only in training."""

    def __init__(self, dim: int, num_symbols: int) -> None:
        super().__init__()
        self.out = nn.Linear(dim, 2 * num_symbols)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """hidden [row, dim] → logits (now, next), both [row, symbol]."""
        now, following = self.out(hidden).chunk(2, dim=-1)
        return now, following


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Parts of the loss (means over what each predicts) and the share of symbols told right."""

    semantic: Tensor
    advance: Tensor
    loudness: Tensor
    fast: Tensor
    now: Tensor
    next: Tensor
    guide: Tensor
    accuracy: Tensor

    @property
    def total(self) -> Tensor:
        """What is descended."""
        aids = SYMBOL_WEIGHT * self.now + NEXT_WEIGHT * self.next + GUIDE_WEIGHT * self.guide
        return self.semantic + self.fast + aids


def slow_states(model: DualAR, columns: Tensor, place: Tensor | None) -> tuple[Tensor, Tensor]:
    """Final states [B, T, dim] of right-padded columns [B, C + 1, T], and the loss of the guided heads.

    With causal attention no real column sees the padding behind it, so no mask is needed.
    """
    x = model.embed(columns)
    table = model.slow_rope(torch.arange(columns.shape[-1], device=columns.device)[None])
    losses: list[Tensor] = []
    for index, layer in enumerate(model.layers):
        guided = place if index in GUIDED_LAYERS else None
        x = layer(x, table, causal_attention(model.config.n_local_heads, guided, losses))
    guide = torch.stack(losses).mean() if losses else x.new_zeros(())
    return model.final_norm(x), guide


def causal_attention(kv_heads: int, place: Tensor | None, losses: list[Tensor]) -> Attend:
    """Causal attention of one layer; with `place` [B, T] the loss of its first head is appended to `losses`."""

    def attend(q: Tensor, kv: Tensor) -> Tensor:
        group = q.shape[2] // kv_heads
        q, kv = q.transpose(1, 2), kv.transpose(1, 2)
        keys, values = kv[:, :kv_heads], kv[:, kv_heads:]
        if place is not None:
            losses.append(guide_loss(q[:, 0], keys[:, 0], place))
        wide = [x.repeat_interleave(group, dim=1) for x in (keys, values)]
        out = F.scaled_dot_product_attention(q, *wide, is_causal=True)
        return out.transpose(1, 2).flatten(2)

    return attend


def guide_loss(q: Tensor, keys: Tensor, place: Tensor) -> Tensor:
    """Cross-entropy between one head's attention and a narrow bump at the column `place` [B, T] (IGNORED: no frame).

    q and keys [B, T, head_dim].
    """
    rows, steps = (place != IGNORED).nonzero(as_tuple=True)
    scores = torch.einsum("nd,nkd->nk", q[rows, steps], keys[rows]) * q.shape[-1] ** -0.5
    columns = torch.arange(keys.shape[1], device=q.device)
    scores = scores.masked_fill(columns > steps[:, None], float("-inf"))
    near = place[rows, steps][:, None] + torch.arange(-1, 3, device=q.device)
    bump = torch.tensor([0.15, 0.5, 0.25, 0.1], device=q.device)
    logs = scores.log_softmax(-1).gather(1, torch.minimum(near, steps[:, None]))
    return -(logs * bump).sum(-1).mean()


def code_targets(centres: Tensor) -> Tensor:
    """What to expect when a code is true, [code, code]: itself for sounds, its neighbourhood for the rest.

    Advances, bends and loudnesses that lie side by side sound alike and are learned together; `centres` [code, 2] are
    those of the loudnesses.
    """
    targets = torch.eye(CODEBOOK_SIZE)
    for codes, spread in ((ADVANCES, ADVANCE_SPREAD), (BENDS, BEND_SPREAD)):
        steps = torch.arange(len(codes), dtype=torch.float32)
        part = slice(codes.start, codes.stop)
        targets[part, part] = (-0.5 * (steps[:, None] - steps).square() / spread**2).softmax(-1)
    part = slice(LOUDNESSES.start, LOUDNESSES.stop)
    targets[part, part] = (-0.5 * torch.cdist(centres, centres).square() / LOUDNESS_SPREAD**2).softmax(-1)
    return targets


def soft_cross_entropy(logits: Tensor, codes: Tensor, targets: Tensor | None) -> Tensor:
    """Mean cross-entropy of logits [row, >= N] with rows `codes` [row] of `targets` [N, N], or with the codes alone.

    Ids of N and above (the end of speech) have themselves as the target.
    """
    if targets is None:
        return F.cross_entropy(logits, codes)
    logs, size = logits.log_softmax(-1), len(targets)
    is_code = codes < size
    soft = -(targets[codes[is_code]] * logs[is_code, :size]).sum()
    hard = -logs[~is_code].gather(1, codes[~is_code][:, None]).sum()
    return (soft + hard) / len(codes)


def compute_losses(
    model: DualAR,
    head: SymbolHead,
    batch: Batch,
    columns: Tensor,
    targets: Tensor | None = None,
    *,
    dropout: float = 0.0,
) -> Losses:
    """All losses of a batch whose input is `columns` (perhaps corrupted).

    `targets` is `code_targets`; None: the codes themselves are the targets.
    """
    states, guide = slow_states(model, columns, batch.place)
    predicting = batch.semantic != IGNORED
    final = F.dropout(states[predicting], dropout)
    truth = batch.semantic[predicting]
    logits = F.linear(final, compact_head(model))
    semantic = soft_cross_entropy(logits, truth, targets)
    is_frame = batch.place[predicting] != IGNORED
    spoken = final[is_frame]
    now, following = head(spoken)
    at_frames = batch.place != IGNORED
    true_now = batch.now[at_frames]
    codes = batch.codes[at_frames]
    fast = model.fast_teacher_forced(spoken, codes)
    parts = [soft_cross_entropy(fast[:, i - 1], codes[:, i], targets) for i in range(1, codes.shape[1])]
    return Losses(
        semantic=semantic,
        advance=parts[1].detach(),
        loudness=parts[2].detach(),
        fast=torch.stack(parts).mean(),
        now=F.cross_entropy(now, true_now),
        next=F.cross_entropy(following, batch.next[at_frames]),
        guide=guide,
        accuracy=(now.argmax(-1) == true_now).float().mean(),
    )


def compact_head(model: DualAR) -> Tensor:
    """The rows of the tied embedding that can be drawn [N + 1, dim], with their gradient (AUDIO8 spec, 3.2)."""
    config = model.config
    table = model.embeddings.weight
    begin, end = config.semantic_begin_id, config.semantic_end_id + 1
    return torch.cat([table[begin:end], table[config.eos_token_id][None]])
