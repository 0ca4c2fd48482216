"""Who sits in which row: no gaps, whoever comes and goes, and the stores move along."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import given
from hypothesis import strategies as st

from oscine.runtime.batch import RowBatch, rows_of
from oscine.runtime.cache import CacheShape, RowTensors, SequenceCache


@dataclass(eq=False)
class Guest:
    name: int
    row: int | None = None


def check(batch: RowBatch[Guest], tensors: RowTensors, cache: SequenceCache) -> None:
    for row, guest in enumerate(batch.active):
        assert guest.row == row
        assert int(tensors["name"][row]) == guest.name
        assert bool((cache.layers[0][row] == guest.name).all())


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**6)), max_size=30))
def test_rows_follow_their_members(moves: list[tuple[bool, int]]) -> None:
    tensors = RowTensors({"name": torch.zeros(0, dtype=torch.long)})
    cache = SequenceCache(CacheShape(layers=1, kv_heads=1, head_dim=2, dtype=torch.float32), "cpu")
    batch: RowBatch[Guest] = RowBatch(tensors, cache)
    for number, (arrives, choice) in enumerate(moves, start=1):
        if arrives or not batch.active:
            cache.ensure(len(batch.active) + 1, 3)
            tensors.ensure(len(batch.active) + 1)
            row = batch.append(Guest(number))
            tensors["name"][row] = number
            cache.layers[0][row] = number
        else:
            guest = batch.active[choice % len(batch.active)]
            assert batch.pop(guest) == len(batch.active)
            assert guest.row is None
            assert batch.pop(guest) is None
        check(batch, tensors, cache)
        chosen = [guest for guest in batch.active if (choice >> guest.name) % 2]
        first = batch.move_to_tail(chosen)
        assert set(batch.active[first:]) == set(chosen)
        if chosen:
            assert rows_of(batch.active[first:]) == slice(first, len(batch.active))
        check(batch, tensors, cache)
