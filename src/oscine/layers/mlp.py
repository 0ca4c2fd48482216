"""The gated feed-forward block shared by the transformers."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from oscine.kernels.vector import pad_to_vector_width


class SwiGLU(nn.Module):
    """`w2(silu(w1 x) * (w3 x))`, no biases; names as in the Audio8 checkpoint (AUDIO8 spec, 3.2)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., dim] → same shape."""
        out: Tensor = self.w2(pad_to_vector_width(F.silu, self.w1(x)) * self.w3(x))
        return out
