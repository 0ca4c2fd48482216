"""Linear layers with half-precision weights on a CPU without units for them: weights are upcast as they are used.

Such a CPU multiplies bfloat16 several times slower than float32. Upcasting a block of weights that stays in its cache,
then multiplying in float32, costs little beside a product of many rows, and no memory to speak of.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEWEST_ROWS = 16
"""Rows from which upcasting pays; below, reading the weights is what takes the time."""
BLOCK_VALUES = 2**19
"""Weights upcast at a time: 2 MB in float32."""
UNITS = {torch.bfloat16: ("avx512_bf16", "amx_bf16"), torch.float16: ("avx512_fp16", "amx_fp16")}


class UpcastLinear(nn.Linear):
    """Stands where an `nn.Linear` stood, with the same parameters; sums are float32, the result is of x's dtype."""

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] → [..., out]."""
        if x.shape[:-1].numel() < FEWEST_ROWS:
            return F.linear(x, self.weight, self.bias)
        wide, rows = x.float(), max(1, BLOCK_VALUES // self.in_features)
        out = torch.cat([F.linear(wide, block.float()) for block in torch.split(self.weight, rows)], dim=-1)
        return (out if self.bias is None else out.add_(self.bias)).to(x.dtype)


def to_upcast_linear(module: nn.Module) -> int:
    """Replaces the linear layers of `module` whose weights this machine multiplies slowly; how many there were."""
    count = 0
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and not isinstance(child, UpcastLinear) and is_slow(child.weight):
                made = UpcastLinear(child.in_features, child.out_features, bias=child.bias is not None, device="meta")
                made.weight, made.bias = child.weight, child.bias
                setattr(parent, name, made.train(child.training))
                count += 1
    return count


def is_slow(weight: Tensor) -> bool:
    """Whether products with these weights are slower than in float32: half precision on x86 without its units."""
    units = UNITS.get(weight.dtype)
    if units is None or weight.device.type != "cpu":
        return False
    capabilities = torch.cpu.get_capabilities()
    return capabilities.get("architecture") == "x86_64" and not any(capabilities.get(unit) for unit in units)
