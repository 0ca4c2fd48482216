"""How a call's rows read and write what sequences remember.

A lane belongs to one job, so attention and state updates run lane by lane with shapes that depend on that lane alone:
neighbours cannot change a bit, and no keys are copied together. Only products with weights are batched.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from oscine.runtime.cache import Lane


class Prefill:
    """A call whose rows are consecutive positions of one fresh lane."""

    def __init__(self, lane: Lane) -> None:
        self.lanes = (lane,)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention of q [time, head, head_dim] over k, v [time, kv_head, head_dim] → as q; stores k, v."""
        k, v = self.lanes[0].append(layer, k.transpose(0, 1), v.transpose(0, 1))
        group = q.shape[1] // k.shape[0]
        k, v = k.repeat_interleave(group, dim=0)[None], v.repeat_interleave(group, dim=0)[None]
        return F.scaled_dot_product_attention(q.transpose(0, 1)[None], k, v, is_causal=True)[0].transpose(0, 1)


class Decode:
    """A call whose rows are one new position each of several lanes; rows beyond the lanes are padding."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self.lanes = tuple(lanes)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of q [row, head, head_dim], each row over its own lane → as q; stores k, v [row, kv_head, ...]."""
        out = torch.zeros_like(q)
        for row, lane in enumerate(self.lanes):
            keys, values = lane.append(layer, k[row, :, None], v[row, :, None])
            # The heads that share keys stand in as queries of one head: nothing is repeated or masked.
            grouped = torch.unflatten(q[row], 0, (keys.shape[0], -1))[None]
            out[row] = F.scaled_dot_product_attention(grouped, keys[None], values[None])[0].flatten(0, 1)
        return out


Call = Prefill | Decode
