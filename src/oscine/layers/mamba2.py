"""The state-space recurrence of Mamba-2, `S_t = exp(decay_t) S_(t-1) + driven_t ⊗ b_t`, `y_t = S_t c_t`, in float32.

`decay` is the logarithm of what a step keeps, step size times A; `driven` the step size times the input.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oscine.kernels.vector import pad_to_vector_width


def split_columns(columns: Tensor, *, heads: int, groups: int, states: int) -> tuple[Tensor, Tensor, Tensor]:
    """Columns [..., inner + 2 * group * state] → float32 x [..., head, head_dim], B and C [..., head, state].

    B and C are made by group; each group's serve the heads that follow each other in it.
    """
    width = groups * states
    x, b, c = torch.split(columns.float(), [columns.shape[-1] - 2 * width, width, width], dim=-1)
    b, c = (
        torch.unflatten(part, -1, (groups, states)).repeat_interleave(heads // groups, dim=-2).contiguous()
        for part in (b, c)
    )
    return torch.unflatten(x, -1, (heads, -1)), b, c


def update_state(state: Tensor, decay: Tensor, driven: Tensor, b: Tensor) -> None:
    """Moves state [..., head, head_dim, state] on by one position, in place.

    decay [..., head], driven [..., head, head_dim], b [..., head, state].
    """
    kept = pad_to_vector_width(torch.exp, decay)[..., None, None]
    state.mul_(kept).add_(driven[..., None] * b[..., None, :])


def scan_chunks(decay: Tensor, driven: Tensor, b: Tensor, c: Tensor, state: Tensor, chunk: int) -> Tensor:
    """y [row, time, head, head_dim] of all positions, `chunk` at a time by matrix products.

    Shapes as in `update_state` with a time axis after the row. Within a chunk, position i sees j <= i through
    exp(sum of decay over j+1..i); what came before the chunk it sees through the state, which is updated in place.
    The chunk size changes rounding only.
    """
    outputs = []
    for decays, drivens, bs, cs in zip(*(torch.split(t, chunk, dim=1) for t in (decay, driven, b, c)), strict=True):
        total = decays.cumsum(dim=1).transpose(1, 2)  # [row, head, i]
        between = total[..., :, None] - total[..., None, :]
        later = torch.ones(between.shape[-2:], dtype=torch.bool, device=between.device).triu(1)
        seen = between.masked_fill(later, float("-inf")).exp()  # [row, head, i, j]
        weighted, bs, cs = (part.transpose(1, 2) for part in (drivens, bs, cs))  # [row, head, j, ...]
        within = ((cs @ bs.mT) * seen) @ weighted
        before = total.exp()[..., None] * (cs @ state.mT)
        outputs.append((within + before).transpose(1, 2))
        to_end = (total[..., -1:] - total).exp()[..., None]
        state.mul_(total[..., -1].exp()[..., None, None]).add_((weighted * to_end).mT @ bs)
    return torch.cat(outputs, dim=1)
