"""Linear layers whose weights are held in half precision while they compute in float32, where that loses nothing.

A product of few rows takes as long as its weights take to read. Released weights are bfloat16 or float16 numbers;
with a power of two taken out they are float16 numbers without rounding, so such a layer reads half the bytes and
still multiplies the same numbers. The kernels (FBGEMM, x86 only) sum each output in one order, however many rows and
threads there are: a row's result is the same bits in any company.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

LARGEST_EXPONENT = 15
"""Scaled weights stay below 2 to this, which float16 can hold."""
LARGE = 2**20
"""Weights from which a product is worth several threads, and the longer call that uses them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fp16Matrix:
    """A linear map from packed weights: `factor` (a power of two, None for 1) times what `multiply` gives."""

    multiply: Callable[[Tensor], Tensor]
    factor: float | None
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        """x float32 [..., in] → [..., out]."""
        out = self.multiply(x)
        if self.factor is not None:
            out.mul_(self.factor)
        return out if self.bias is None else out.add_(self.bias)


class Fp16Linear(nn.Module):
    """Stands where an `nn.Linear` stood; for inference only."""

    def __init__(self, matrix: Fp16Matrix, num_in: int, num_out: int) -> None:
        super().__init__()
        self.matrix = matrix
        self.in_features = num_in
        self.out_features = num_out

    @property
    def num_bytes(self) -> int:
        """Bytes that a product reads."""
        return 2 * self.in_features * self.out_features

    def forward(self, x: Tensor) -> Tensor:
        """x float32 [..., in] → [..., out]."""
        return self.matrix(x)


def to_fp16_weights(module: nn.Module) -> int:
    """Replaces the linear layers of `module` that lose nothing by it with `Fp16Linear`; how many there were."""
    count = 0
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            matrix = fp16_matrix(child.weight, child.bias) if isinstance(child, nn.Linear) else None
            if isinstance(child, nn.Linear) and matrix is not None:
                setattr(parent, name, Fp16Linear(matrix, child.in_features, child.out_features))
                count += 1
    return count


def fp16_matrix(weight: Tensor, bias: Tensor | None = None) -> Fp16Matrix | None:
    """The map `x weightᵀ + bias` from weights float32 [out, in] in half precision.

    None where it would not be the same: weights that need rounding, are not float32 on the CPU, or a machine without
    the kernels.
    """
    if weight.dtype != torch.float32 or weight.device.type != "cpu" or not kernels_work():
        return None
    weight, bias = weight.detach(), None if bias is None else bias.detach()
    scale = fp16_scale(weight)
    if scale is None:
        return None
    factor = None if scale == 1 else 1 / scale
    return Fp16Matrix(multiply=_packed(weight * scale), factor=factor, bias=bias)


def fp16_scale(weight: Tensor) -> float | None:
    """The power of two with which float32 weights are float16 numbers, 1 if they are already; None if there is none."""
    largest = float(weight.abs().max())
    if not largest < math.inf:
        return None
    if _fits(weight):
        return 1.0
    scale: float = 2.0 ** (LARGEST_EXPONENT - math.frexp(largest)[1])
    return scale if _fits(weight * scale) else None


@functools.cache
def kernels_work() -> bool:
    """Whether both kernels are there and give the one right result on this machine."""
    weight = torch.tensor([[1.0, 2.0], [3.0, 0.5]])
    x = torch.tensor([[1.0, 4.0]])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the short call says once that it may be gone in a later torch
            results = [packed(x) for packed in (_packed_short(weight), _packed_threaded(weight))]
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return all(torch.equal(result, x @ weight.t()) for result in results)


def _fits(weight: Tensor) -> bool:
    """Whether finite weights are float16 numbers, none of them beyond the largest."""
    return torch.equal(weight.half().float(), weight)


def _packed(weight: Tensor) -> Callable[[Tensor], Tensor]:
    return _packed_threaded(weight) if weight.numel() >= LARGE else _packed_short(weight)


def _packed_short(weight: Tensor) -> Callable[[Tensor], Tensor]:
    """One thread and little overhead."""
    packed = torch.fbgemm_pack_gemm_matrix_fp16(weight.contiguous())
    multiply = torch.fbgemm_linear_fp16_weight_fp32_activation
    return lambda x: multiply(x, packed, None)


def _packed_threaded(weight: Tensor) -> Callable[[Tensor], Tensor]:
    """All of torch's threads."""
    packed = torch.ops.quantized.linear_prepack_fp16(weight.contiguous(), None)
    multiply = torch.ops.quantized.linear_dynamic_fp16.default
    return lambda x: multiply(x, packed)
