"""How many rows a large matrix product may see, so that a row's bits do not depend on the others.

Products of a few rows have a rule of their own (`oscine.runtime.exact`).

A float32 product on the CPU picks its kernel, and with several threads the split of its sums, by the number of rows.
Which counts agree is a fact about a machine and a thread count, so it is measured when a model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MIN_ROWS = 16
PROBED_ROWS = (MIN_ROWS, 17, 48, 96, 128, 192, 256, 384, 512, 1024)
USEFUL_ROWS = 96
"""A limit below this would cut ordinary batches into too many calls."""
FIXED_ROWS = 64


@dataclass(frozen=True, kw_only=True)
class RowRule:
    """Products see at least `MIN_ROWS` rows, at most `most` (None: any number), and a multiple of `multiple`."""

    most: int | None = None
    multiple: int = 1

    def padded(self, rows: int) -> int:
        """Rows after padding."""
        return max(MIN_ROWS, -(-rows // self.multiple) * self.multiple)

    def pieces(self, rows: int) -> list[int]:
        """Rows of each call for `rows` padded ones."""
        if self.most is None or rows <= self.most:
            return [rows]
        units, most = rows // self.multiple, self.most // self.multiple
        count = -(-units // most)
        return [(units // count + (index < units % count)) * self.multiple for index in range(count)]

    def pad(self, parts: Sequence[Tensor]) -> Tensor:
        """Rows [time, dim] end to end as [1, tokens, dim], with zero rows up to `padded`."""
        rows = torch.cat(list(parts)) if len(parts) > 1 else parts[0]
        extra = self.padded(rows.shape[0]) - rows.shape[0]
        return (F.pad(rows, (0, 0, 0, extra)) if extra else rows)[None]

    def apply(self, layer: nn.Module, x: Tensor) -> Tensor:
        """The layer on x [1, tokens, dim] in calls of allowed sizes."""
        sizes = self.pieces(x.shape[1])
        if len(sizes) == 1:
            whole: Tensor = layer(x)
            return whole
        return torch.cat([layer(piece) for piece in torch.split(x, sizes, dim=1)], dim=1)


def measured_rule(layers: Sequence[nn.Linear], *, counts: Sequence[int] = PROBED_ROWS) -> RowRule:
    """The rule that holds for these layers as they are now: device, dtype and number of threads.

    `counts` are the row counts tried, ascending from `MIN_ROWS`; when all agree, larger ones are taken to as well.

    Equal bits are promised for float32 on the CPU only; elsewhere nothing is cut or padded further. `torch.equal` on
    random data is the judge; where no useful range of row counts agrees, every call has `FIXED_ROWS` rows.
    """
    if not layers or layers[0].weight.device.type != "cpu" or layers[0].weight.dtype != torch.float32:
        return RowRule()
    sizes = {(layer.in_features, layer.out_features) for layer in layers}
    most = min(_agreeing_rows(size, counts) for size in sizes)
    if most >= counts[-1]:
        return RowRule()
    return RowRule(most=most) if most >= USEFUL_ROWS else RowRule(most=FIXED_ROWS, multiple=FIXED_ROWS)


def _agreeing_rows(size: tuple[int, int], counts: Sequence[int]) -> int:
    """The largest of `counts` up to which one row comes out the same."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, size[0], generator=generator)
    weight = torch.randn(size[1], size[0], generator=generator)
    return last_equal(counts, (F.linear(x.expand(rows, -1).contiguous(), weight) for rows in counts))


def last_equal(counts: Iterable[int], results: Iterable[Tensor]) -> int:
    """The last of `counts` before one whose rows differ from the first result's, or among themselves."""
    last, first = 0, None
    for count, result in zip(counts, results, strict=True):
        first = result[0] if first is None else first
        if not torch.equal(result, first.expand_as(result)):
            break
        last = count
    return last
