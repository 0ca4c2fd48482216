"""Linear layers whose weights are held as int8, each output channel with a scale of its own.

On the CPU the input rows are held as whole numbers too, two int8 parts each (some 16 bits), so that a product is a sum
of whole numbers. Such sums have no rounding and hence no order: a row's result is the same bits in any company. On
other devices the weights are widened for each product, which saves memory and no time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.errors import UnsupportedFeature

LARGEST = 127
"""Weights and row parts lie in -127 to 127."""
LOW_STEPS = 2 * LARGEST
"""Steps of the low part within one step of the high part, which leaves at most half a step over."""
MOST_INPUTS = (2**31 - 1) // LARGEST**2
"""Products that surely fit the 32 bits of their sum."""
QUANTIZED_ROWS = 4096
"""Rows of a matrix that are widened at a time while it is quantised."""
SMALLEST = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, kw_only=True)
class Int8Matrix:
    """`weight` int8 [out, in] times `scale` float32 [out]; slices are views of some of its rows."""

    weight: Tensor
    scale: Tensor

    def __len__(self) -> int:
        return len(self.weight)

    def __getitem__(self, rows: slice) -> Int8Matrix:
        return Int8Matrix(weight=self.weight[rows], scale=self.scale[rows])


Matrix = Tensor | Int8Matrix


class Int8Linear(nn.Module):
    """A bias-free linear layer around an `Int8Matrix`; a checkpoint fills it."""

    weight: Tensor
    scale: Tensor

    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        if num_in > MOST_INPUTS:
            raise UnsupportedFeature(
                f"int8 takes products of at most {MOST_INPUTS} values, got {num_in}", param="dtype"
            )
        self.register_buffer("weight", torch.empty(num_out, num_in, dtype=torch.int8))
        self.register_buffer("scale", torch.empty(num_out))

    @property
    def matrix(self) -> Int8Matrix:
        """What it holds."""
        return Int8Matrix(weight=self.weight, scale=self.scale)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] → [..., out] in x's dtype."""
        return product(x, self.matrix)


def to_int8_weights(module: nn.Module) -> None:
    """Puts an empty `Int8Linear` in the place of every bias-free linear layer in `module`."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and child.bias is None:
                setattr(parent, name, Int8Linear(child.in_features, child.out_features))


def quantized(weight: Tensor) -> Int8Matrix:
    """The nearest int8 matrix to a finite `weight` [out, in], symmetric, its scale the largest of each row over 127."""
    parts = [_quantized(rows) for rows in torch.split(weight, QUANTIZED_ROWS)]
    return Int8Matrix(weight=torch.cat([part[0] for part in parts]), scale=torch.cat([part[1] for part in parts]))


def product(x: Tensor, matrix: Matrix) -> Tensor:
    """`x matrixᵀ`, x [..., in] → [..., out] in x's dtype, for weights of either kind."""
    if isinstance(matrix, Tensor):
        return F.linear(x, matrix)
    return whole_number_product(x, matrix) if x.device.type == "cpu" else widened_product(x, matrix)


def whole_number_product(x: Tensor, matrix: Int8Matrix) -> Tensor:
    """The product as a sum of whole numbers; a row's result depends on that row alone, bit for bit."""
    rows = x.reshape(-1, x.shape[-1]).float()
    unit = (rows.abs().amax(-1, keepdim=True) / LARGEST).clamp_min(SMALLEST)  # NaN stays, and spreads over its row
    scaled = rows / unit
    high = scaled.round()
    low = ((scaled - high) * LOW_STEPS).round()
    sums = torch._int_mm(torch.cat([high, low]).to(torch.int8), matrix.weight.T)
    highs, lows = torch.split(sums.float(), len(rows))
    out: Tensor = (highs + lows / LOW_STEPS) * unit * matrix.scale
    return out.to(x.dtype).reshape(*x.shape[:-1], len(matrix))


def widened_product(x: Tensor, matrix: Int8Matrix) -> Tensor:
    """The product with the weights in x's dtype, in which every int8 is exact; its scale comes after the sum."""
    return (F.linear(x, matrix.weight.to(x.dtype)).float() * matrix.scale).to(x.dtype)


def require_whole_products() -> None:
    """Raises UnsupportedFeature unless this CPU's int8 sums are exact; some of older make clip them half way."""
    rows = torch.full((33, 256), LARGEST, dtype=torch.int8)
    rows[::2] = -LARGEST
    weight = torch.full((64, 256), LARGEST, dtype=torch.int8)
    expected = (rows.long() @ weight.T.long()).int()
    if not all(torch.equal(torch._int_mm(rows[:count], weight.T), expected[:count]) for count in (1, 2, 7, 33)):
        raise UnsupportedFeature("int8 sums are not exact on this CPU; use dtype='bfloat16'", param="dtype")


def _quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    wide = weight.float()
    scale = (wide.abs().amax(-1) / LARGEST).clamp_min(SMALLEST)
    return (wide / scale[:, None]).round().to(torch.int8), scale
