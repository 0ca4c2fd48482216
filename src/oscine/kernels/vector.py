"""Elementwise functions whose bits at a place do not depend on how many other values there are."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

VECTOR_LOOP = 64
"""Values that one round of a vectorised loop takes at most; what is left at the end of a tensor is done one by one."""


def pad_to_vector_width(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """An elementwise function of x [row, ..., width], the same bits wherever in the batch a row stands.

    exp, log and their kin are computed by other means at the end of a tensor than in its midst; rows whose width is a
    whole number of rounds have no such end. Sums, products and square roots need no such care.
    """
    width = x.shape[-1]
    extra = -width % VECTOR_LOOP
    return function(F.pad(x, (0, extra)))[..., :width] if extra else function(x)
