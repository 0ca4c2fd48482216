"""Call shapes under which a row's result does not depend on its neighbours, bit for bit.

Matrix products and attention pick their kernel, and with it the order of their sums, by the shape of the call. The
rules that hold are facts about a machine, a number of threads, a dtype and the sizes of a model, so they are measured
on random data when a model is loaded, `torch.equal` being the judge; where none is found, one fixed shape holds
everywhere. No promise is made on accelerators, nor for many rows in anything but float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.kernels.fp16 import fp16_matrix
from oscine.kernels.vector import pad_to_vector_width
from oscine.layers.norm import rms_norm

FEW_ROWS = (*range(1, 17), 20, 24, 32)
"""Row counts tried for decode calls; two that agree are taken to agree with those between them."""
USEFUL_FEW = 8
"""A range of row counts that ends below this would cut ordinary batches into too many calls."""
MIN_MANY = 16
"""Fewest rows of products of many: kernels differ between few rows and many."""
MANY_ROWS = (MIN_MANY, 17, 48, 96, 128, 192, 256, 384, 512, 1024)
USEFUL_MANY, FIXED_MANY = 96, 64
SLOTS = 8
"""Rows of every decode call where no range agrees."""

LINEAR_SIZES = ((384, 512), (896, 1152), (4864, 896))
ATTENTION_SIZE = (2, 4, 64)
PROBED_LENGTHS = (1, 63, 250, 300, 500, 600, 850, 1100)
PROBED_WIDTH = 1600


@dataclass(frozen=True, kw_only=True)
class RowRule:
    """Rows of a call, padding included: `least` to `most` (None: any number), a multiple of `multiple`.

    `reason` says why it is no better than this, where a better one was looked for.
    """

    least: int = 1
    most: int | None = None
    multiple: int = 1
    reason: str = ""

    def padded(self, rows: int) -> int:
        """Rows of all calls together."""
        return max(self.least, -(-rows // self.multiple) * self.multiple)

    def sizes(self, rows: int) -> list[int]:
        """Rows of each call for `rows` rows, as even as they can be; padding is at the end of the last."""
        units = self.padded(rows) // self.multiple
        calls = 1 if self.most is None else -(-units // (self.most // self.multiple))
        return [size * self.multiple for size in _even(units, calls)]

    def pair_sizes(self, rows: int) -> list[int]:
        """The rows of one call in parts for a pass over two positions a row (twice the rows in a product)."""
        if self.most is None or self.least == self.most:
            return [rows]
        return _even(rows, -(-2 * rows // (self.most // 2 * 2)))

    def pad(self, parts: Sequence[Tensor]) -> Tensor:
        """Rows [time, dim] end to end as [1, tokens, dim], with zero rows up to `padded`."""
        rows = torch.cat(list(parts)) if len(parts) > 1 else parts[0]
        extra = self.padded(rows.shape[0]) - rows.shape[0]
        return (F.pad(rows, (0, 0, 0, extra)) if extra else rows)[None]

    def apply(self, layer: nn.Module, x: Tensor) -> Tensor:
        """The layer on padded x [1, tokens, dim] in calls of allowed sizes."""
        sizes = self.sizes(x.shape[1])
        if len(sizes) == 1:
            whole: Tensor = layer(x)
            return whole
        return torch.cat([layer(piece) for piece in torch.split(x, sizes, dim=1)], dim=1)


@dataclass(frozen=True, kw_only=True)
class WidthRule:
    """Key widths of masked attention.

    The keys beyond the last whole `block` are rounded up to a multiple of `multiple` in the first half of a block,
    else to the whole block (a longer sum is split in the middle, which changes its order). `reason` as in `RowRule`.
    """

    multiple: int = 64
    block: int = 512
    reason: str = ""

    def round(self, width: int) -> int:
        """The least allowed width that holds `width` keys."""
        whole, rest = divmod(width, self.block)
        rounded = -(-rest // self.multiple) * self.multiple
        return whole * self.block + (rounded if rounded <= self.block // 2 else self.block)


@dataclass(frozen=True, kw_only=True)
class ExactRule:
    """What decode calls with batched attention keep to."""

    rows: RowRule = field(default_factory=lambda: RowRule(least=2, most=15))
    width: WidthRule = field(default_factory=WidthRule)

    @property
    def reason(self) -> str:
        """Why one shape is fixed, or nothing promised; empty when the rule holds for any company."""
        return "; ".join(filter(None, dict.fromkeys((self.rows.reason, self.width.reason))))


def fixed_rows(slots: int, reason: str) -> RowRule:
    """The rule for decode calls that needs no facts: always `slots` rows."""
    return RowRule(least=slots, most=slots, multiple=slots, reason=reason)


def fixed_width(capacity: int, reason: str) -> WidthRule:
    """The rule for key widths that needs no facts: always the full `capacity`."""
    return WidthRule(multiple=capacity, block=capacity, reason=reason)


def check_exact(
    device: torch.device | str,
    dtype: torch.dtype,
    *,
    capacity: int = 2048,
    linears: Iterable[tuple[int, int]] = LINEAR_SIZES,
    fp16: Iterable[tuple[int, int]] = (),
    attention: tuple[int, int, int] = ATTENTION_SIZE,
) -> ExactRule:
    """The rule that holds here for products (see `few_rows`) and attention (see `key_widths`) of these sizes."""
    return ExactRule(
        rows=few_rows(device, dtype, linears, fp16), width=key_widths(device, dtype, attention, capacity=capacity)
    )


def few_rows(
    device: torch.device | str,
    dtype: torch.dtype,
    linears: Iterable[tuple[int, int]],
    fp16: Iterable[tuple[int, int]] = (),
) -> RowRule:
    """The rows that decode calls may have with products of the sizes `linears` (in, out).

    `fp16` are the sizes of products whose weights are held as float16 (`oscine.kernels.fp16`). Which row counts give
    equal rows for all sizes; `SLOTS` where no useful range does. On an accelerator rows are not padded.
    """
    where = torch.device(device)
    if where.type != "cpu":
        return RowRule(reason=f"no promise on {where.type}")
    generator = torch.Generator().manual_seed(0)
    sizes = sorted([(False, *size) for size in set(linears)] + [(True, *size) for size in set(fp16)])
    results = [_probe(size, is_fp16, dtype, generator) for is_fp16, *size in sizes]
    start = 0
    for index in range(1, len(FEW_ROWS) + 1):
        ends = index == len(FEW_ROWS) or any(not torch.equal(r[index], r[index - 1]) for r in results)
        if not ends:
            continue
        least, most = FEW_ROWS[start], FEW_ROWS[index - 1]
        if most >= max(2 * least, USEFUL_FEW):
            return RowRule(least=least, most=most)
        start = index
    return fixed_rows(SLOTS, "products of every row count differ")


def many_rows(layers: Sequence[nn.Linear], *, counts: Sequence[int] = MANY_ROWS) -> RowRule:
    """The rows that products of many may have with these layers as they are now.

    `counts` are the row counts tried, ascending from `MIN_MANY`; when all agree, larger ones are taken to as well.
    Where no useful range does, every call has `FIXED_MANY` rows.
    """
    if not layers or layers[0].weight.device.type != "cpu" or layers[0].weight.dtype != torch.float32:
        return RowRule(least=MIN_MANY)
    sizes = {(layer.in_features, layer.out_features) for layer in layers}
    most = min(_agreeing_rows(size, counts) for size in sizes)
    if most >= counts[-1]:
        return RowRule(least=MIN_MANY)
    if most >= USEFUL_MANY:
        return RowRule(least=MIN_MANY, most=most)
    return fixed_rows(FIXED_MANY, "large products of every row count differ")


def key_widths(
    device: torch.device | str, dtype: torch.dtype, attention: tuple[int, int, int], *, capacity: int
) -> WidthRule:
    """The widths at which a masked tail of keys adds nothing to `attention` (kv heads, group, head dim).

    Finest first; `capacity` where none is found. On an accelerator 64 keeps shapes few.
    """
    where = torch.device(device)
    if where.type != "cpu":
        return WidthRule(block=64, reason=f"no promise on {where.type}")
    generator = torch.Generator().manual_seed(0)
    kv_heads, group, head_dim = attention
    q = torch.randn(1, kv_heads, group, head_dim, generator=generator).to(dtype)
    keys = torch.randn(1, 2 * kv_heads, PROBED_WIDTH, head_dim, generator=generator).to(dtype)
    for multiple, block in ((64, 512), (512, 512)):
        rule = WidthRule(multiple=multiple, block=block)
        widths = sorted({rule.round(width) for width in range(1, PROBED_WIDTH - block, 32)})
        if all(_tail_adds_nothing(q, keys, length, widths) for length in PROBED_LENGTHS):
            return rule
    return fixed_width(capacity, "a masked tail of keys changes the result")


def last_equal(counts: Iterable[int], results: Iterable[Tensor]) -> int:
    """The last of `counts` before one whose rows differ from the first result's, or among themselves."""
    last, first = 0, None
    for count, result in zip(counts, results, strict=True):
        first = result[0] if first is None else first
        if not torch.equal(result, first.expand_as(result)):
            break
        last = count
    return last


def _even(total: int, parts: int) -> list[int]:
    return [total // parts + (part < total % parts) for part in range(parts)]


def _probe(size: Sequence[int], is_fp16: bool, dtype: torch.dtype, generator: torch.Generator) -> list[Tensor]:
    """What a norm, a product and an activation make of one row among each of `FEW_ROWS` rows.

    NaN (equal to nothing) where the place of a row among the others matters.
    """
    num_in, num_out = size
    x = torch.randn(1, num_in, generator=generator).to(dtype).repeat(FEW_ROWS[-1], 1)
    weight = torch.randn(num_out, num_in, generator=generator).to(dtype)
    product = (fp16_matrix(weight.half().float()) if is_fp16 else None) or partial(F.linear, weight=weight)
    gain = torch.ones_like(x[0])
    outputs = [pad_to_vector_width(F.silu, product(rms_norm(x[:rows], gain, 1e-6))) for rows in FEW_ROWS]
    return [y[0] if torch.equal(y, y[:1].expand_as(y)) else y[0] * float("nan") for y in outputs]


def _agreeing_rows(size: tuple[int, int], counts: Sequence[int]) -> int:
    """The largest of `counts` up to which one row comes out the same."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, size[0], generator=generator)
    weight = torch.randn(size[1], size[0], generator=generator)
    return last_equal(counts, (F.linear(x.expand(rows, -1).contiguous(), weight) for rows in counts))


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
