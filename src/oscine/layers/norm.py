"""RMS normalisation as the released models compute it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x * rsqrt(mean(x^2) + eps)` in float32 over the last dim, cast to x's dtype, THEN times `weight` [..., dim].

    The order of cast and product matters in half precision (AUDIO8 spec, 3.2); in float32 there is no cast, and the
    built-in function does the same sums in fewer calls.
    """
    if x.dtype == torch.float32:
        if weight.dim() == 1:
            return torch.rms_norm(x, weight.shape, weight, eps)
        return torch.rms_norm(x, weight.shape[-1:], None, eps) * weight
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def upcast_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """As `rms_norm`, but cast to x's dtype AFTER the product with `weight`."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def plain_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x * rsqrt(mean(x^2) + eps) * weight` in x's dtype throughout."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


class RMSNorm(nn.Module):
    """Holds the weight of a `formula`, which is one of the functions above."""

    def __init__(self, dim: int, eps: float, formula: Callable[[Tensor, Tensor, float], Tensor] = rms_norm) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps
        self.formula = formula

    def forward(self, x: Tensor) -> Tensor:
        """x [..., dim] → same shape and dtype."""
        return self.formula(x, self.weight, self.eps)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepNorm:
    """`rms_norm` with the same weight again and again, in as few calls as it takes; `bottom` is eps as a tensor."""

    weight: Tensor
    eps: float
    bottom: Tensor

    @classmethod
    def of(cls, weight: Tensor, eps: float) -> StepNorm:
        """With `weight` [..., dim], which is not to change afterwards."""
        weight = weight.detach()
        return cls(weight=weight, eps=eps, bottom=torch.full((), eps, device=weight.device))

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., dim] → same shape and dtype."""
        if x.dtype != torch.float32:
            return rms_norm(x, self.weight, self.eps)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = torch.addcmul(self.bottom, length, length, value=1.0 / x.shape[-1]).rsqrt_()
        return scale.mul(x).mul_(self.weight)
