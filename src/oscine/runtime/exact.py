"""Call shapes under which a row's result does not depend on its neighbours, bit for bit.

Matrix products and attention pick their kernel, and with it the order of their sums, by the shape of the call. The
rules that hold are facts about a machine, a dtype and the sizes of a model, so they are measured when a model is
loaded (`check_exact`), with a slower rule that holds everywhere when they fail: one fixed shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from oscine.kernels.fp16 import fp16_matrix
from oscine.kernels.vector import pad_to_vector_width
from oscine.layers.norm import rms_norm

PROBED_ROWS = (*range(1, 17), 20, 24, 32)
"""Row counts tried; two that agree are taken to agree with those between them."""

USEFUL_ROWS = 8
"""A range of row counts that ends below this would cut ordinary batches into too many calls."""

LINEAR_SIZES = ((384, 512), (896, 1152), (4864, 896))
ATTENTION_SIZE = (2, 4, 64)
PROBED_LENGTHS = (1, 63, 250, 300, 500, 600, 850, 1100)
PROBED_WIDTH = 1600


@dataclass(frozen=True, kw_only=True)
class ExactRule:
    """Shapes that decode calls keep to.

    A call takes `min_rows` to `max_rows` rows, counting padding. Key widths are rounded up: the keys beyond the last
    whole `width_block` to a multiple of `width_multiple` in the first half of a block, else to the whole block (a
    longer sum is split in the middle, which changes its order). `holds` is False when nothing better than one fixed
    shape was found, or when the device makes no promise; `reason` says so.
    """

    min_rows: int = 2
    max_rows: int = 15
    width_multiple: int = 64
    width_block: int = 512
    holds: bool = True
    reason: str = ""

    def round_width(self, width: int) -> int:
        """The least allowed key width that holds `width` keys."""
        whole, rest = divmod(width, self.width_block)
        rounded = -(-rest // self.width_multiple) * self.width_multiple
        return whole * self.width_block + (rounded if rounded <= self.width_block // 2 else self.width_block)

    def call_sizes(self, rows: int) -> list[int]:
        """Cuts `rows` into the rows of each call; only the last may need padding (up to `min_rows`)."""
        full, rest = divmod(rows, self.max_rows)
        sizes = [self.max_rows] * full + ([rest] if rest else [])
        lacking = self.min_rows - sizes[-1] if len(sizes) > 1 else 0
        if lacking > 0 and sizes[-2] - lacking >= self.min_rows:
            sizes[-2] -= lacking
            sizes[-1] += lacking
        return sizes

    def pair_sizes(self, rows: int) -> list[int]:
        """Cuts the `rows` of one call into parts for a pass over two positions a row (twice the rows in a product)."""
        if self.min_rows == self.max_rows or 2 * rows <= self.max_rows:
            return [rows]
        parts = -(-rows // (self.max_rows // 2))
        return [rows // parts + (part < rows % parts) for part in range(parts)]


def fixed_rule(*, slots: int, capacity: int, reason: str) -> ExactRule:
    """The rule that needs no facts: always `slots` rows and the full `capacity` of keys."""
    return ExactRule(
        min_rows=slots, max_rows=slots, width_multiple=capacity, width_block=capacity, holds=False, reason=reason
    )


def check_exact(
    device: torch.device | str,
    dtype: torch.dtype,
    *,
    slots: int = 8,
    capacity: int = 2048,
    linears: Iterable[tuple[int, int]] = LINEAR_SIZES,
    halves: Iterable[tuple[int, int]] = (),
    attention: tuple[int, int, int] = ATTENTION_SIZE,
) -> ExactRule:
    """The rule that holds here for products of the sizes `linears` (in, out) and attention (kv heads, group, head dim).

    `halves` are the sizes of products whose weights are held in half precision (`oscine.kernels.fp16`). Measures on
    random data, `torch.equal` being the judge: which row counts give equal rows for all sizes, and whether a masked
    tail of keys changes nothing. Where either fails it gives way to the fixed shape of `slots` rows or `capacity`
    keys. On an accelerator no promise of equal bits is made: rows are not padded.
    """
    where = torch.device(device)
    if where.type != "cpu":
        return ExactRule(
            min_rows=1, max_rows=max(slots, 1024), width_block=64, holds=False, reason=f"no promise on {where.type}"
        )
    generator = torch.Generator().manual_seed(0)
    rows = _row_range(_probe_products(set(linears), set(halves), dtype, generator))
    block = _width_block(attention, dtype, generator)
    reasons = [
        *(["products of every row count differ"] if rows is None else []),
        *(["a masked tail of keys changes the result"] if block is None else []),
    ]
    fixed = fixed_rule(slots=slots, capacity=capacity, reason="; ".join(reasons))
    low, high = rows or (fixed.min_rows, fixed.max_rows)
    multiple, whole = block or (fixed.width_multiple, fixed.width_block)
    return ExactRule(
        min_rows=low,
        max_rows=high,
        width_multiple=multiple,
        width_block=whole,
        holds=not reasons,
        reason=fixed.reason,
    )


def _probe_products(
    linears: Iterable[tuple[int, int]],
    halves: Iterable[tuple[int, int]],
    dtype: torch.dtype,
    generator: torch.Generator,
) -> list[list[Tensor]]:
    """For each size, what a norm, a product and an activation make of one row among PROBED_ROWS rows.

    NaN (equal to nothing) where the place of a row among the others matters.
    """
    results = []
    for is_half, num_in, num_out in sorted([(False, *size) for size in linears] + [(True, *size) for size in halves]):
        x = torch.randn(1, num_in, generator=generator).to(dtype).repeat(PROBED_ROWS[-1], 1)
        weight = torch.randn(num_out, num_in, generator=generator).to(dtype)
        product = (fp16_matrix(weight.half().float()) if is_half else None) or partial(F.linear, weight=weight)
        gain = torch.ones_like(x[0])
        outputs = [pad_to_vector_width(F.silu, product(rms_norm(x[:rows], gain, 1e-6))) for rows in PROBED_ROWS]
        results.append([y[0] if torch.equal(y, y[:1].expand_as(y)) else y[0] * float("nan") for y in outputs])
    return results


def _row_range(results: Sequence[Sequence[Tensor]]) -> tuple[int, int] | None:
    """The range of row counts to use: equal results for every size, as low as it can be and still useful."""
    start = 0
    for index in range(1, len(PROBED_ROWS) + 1):
        ends = index == len(PROBED_ROWS) or any(not torch.equal(r[index], r[index - 1]) for r in results)
        if not ends:
            continue
        low, high = PROBED_ROWS[start], PROBED_ROWS[index - 1]
        if high >= max(2 * low, USEFUL_ROWS):
            return low, high
        start = index
    return None


def _width_block(
    attention: tuple[int, int, int], dtype: torch.dtype, generator: torch.Generator
) -> tuple[int, int] | None:
    """(width_multiple, width_block) under which the masked tail of keys adds nothing, finest first."""
    kv_heads, group, head_dim = attention
    q = torch.randn(1, kv_heads, group, head_dim, generator=generator).to(dtype)
    keys = torch.randn(1, 2 * kv_heads, PROBED_WIDTH, head_dim, generator=generator).to(dtype)
    for multiple, block in ((64, 512), (512, 512)):
        rule = ExactRule(width_multiple=multiple, width_block=block)
        widths = sorted({rule.round_width(width) for width in range(1, PROBED_WIDTH - block, 32)})
        if all(_tail_adds_nothing(q, keys, length, widths) for length in PROBED_LENGTHS):
            return multiple, block
    return None


def _tail_adds_nothing(q: Tensor, keys: Tensor, length: int, widths: Sequence[int]) -> bool:
    """Whether attention over `length` keys is equal at every width that holds them."""
    kv_heads = q.shape[1]
    first: Tensor | None = None
    for width in (w for w in widths if w >= length):
        mask = torch.zeros(1, 1, 1, width, dtype=q.dtype)
        mask[..., length:] = float("-inf")
        k, v = keys[:, :kv_heads, :width], keys[:, kv_heads:, :width]
        result = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        if first is not None and not torch.equal(result, first):
            return False
        first = result if first is None else first
    return True
