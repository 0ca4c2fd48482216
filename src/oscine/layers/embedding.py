"""A table of vectors that is quick to build before its weights are there."""

from __future__ import annotations

from torch import nn


class Embedding(nn.Embedding):
    """As torch's own, but left alone on the meta device: filling it at random there imports torch's compiler."""

    def reset_parameters(self) -> None:
        """Random values, unless there is nothing to hold them."""
        if not self.weight.is_meta:
            super().reset_parameters()
