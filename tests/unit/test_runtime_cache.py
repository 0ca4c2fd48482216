"""The state of sequences in flight, and the store of recent results."""

from __future__ import annotations

import torch

from oscine.runtime.cache import CacheShape, Lane, RowTensors, SequenceCache
from oscine.runtime.store import RecentStore, content_key

STATES = {"conv.0": ((3, 5), torch.float32), "ssm.0": ((2, 4, 6), torch.float32)}
SHAPES = [CacheShape(layers=2, kv_heads=2, head_dim=8, dtype=torch.float32, states=states) for states in ({}, STATES)]


def caches() -> list[SequenceCache]:
    return [filled(SequenceCache(shape, "cpu"), 3, 64) for shape in SHAPES]


def filled(cache: SequenceCache, rows: int, width: int) -> SequenceCache:
    cache.ensure(rows, width)
    for part in [*cache.layers, *cache.states.tensors.values()]:
        part.normal_()
    return cache


def test_keys_go_where_the_plan_says() -> None:
    cache = SequenceCache(CacheShape(layers=2, kv_heads=2, head_dim=4, dtype=torch.float32), "cpu")
    cache.ensure(4, 8)
    positions = torch.tensor([[0, 1], [5, 6]])
    kv = torch.rand(2, 2, 4, 4)
    keys, values = cache.append(1, kv, cache.plan(positions, slice(1, 3), 7))
    assert keys.shape == values.shape == (2, 2, 7, 4)
    for row in range(2):
        for time in range(2):
            at = int(positions[row, time])
            assert torch.equal(keys[row, :, at], kv[row, time, :2])
            assert torch.equal(values[row, :, at], kv[row, time, 2:])
    assert float(cache.layers[0].abs().sum()) == 0
    assert torch.isclose(cache.layers[1].sum(), kv.sum())


def test_growth_keeps_contents_and_adds_zeros() -> None:
    for cache in caches():
        before = cache.export(1, 40)
        cache.ensure(5, 128)
        cache.ensure(2, 10)
        assert (cache.rows, cache.capacity) == (5, 128)
        after = cache.export(1, 40)
        assert all(torch.equal(before[key], after[key]) for key in before)
        assert all(float(layer[3:].abs().sum()) == 0 for layer in cache.layers)
        assert all(float(layer[:, :, 64:].abs().sum()) == 0 for layer in cache.layers)


def test_an_exported_row_can_be_loaded_anywhere() -> None:
    for cache in caches():
        stored = cache.export(2, 17)
        assert cache.load(0, stored) == 17
        again = cache.export(0, 17)
        assert all(torch.equal(stored[key], again[key]) for key in stored)
        assert set(stored) == {"kv", *cache.states.tensors}


def test_move_clear_begin_and_snapshot() -> None:
    for cache in caches():
        stored = cache.export(0, 64)
        cache.move(0, 2)
        moved = cache.export(2, 64)
        assert all(torch.equal(stored[key], moved[key]) for key in stored)
        point = cache.states.snapshot(2)
        cache.begin(2)
        assert torch.equal(cache.export(2, 64)["kv"], stored["kv"])
        cache.states.restore(2, point)
        assert all(torch.equal(cache.export(2, 64)[key], stored[key]) for key in stored)
        cache.clear(2)
        assert all(float(part.abs().sum()) == 0 for part in cache.export(2, 64).values())


def test_row_bytes_are_what_a_row_takes() -> None:
    for shape, cache in zip(SHAPES, caches(), strict=True):
        parts = [*cache.layers, *cache.states.tensors.values()]
        assert shape.row_bytes(64) * 3 == sum(part.numel() * part.element_size() for part in parts)


def test_row_tensors_keep_rows_apart() -> None:
    rows = RowTensors({"a": torch.zeros(0, 2), "b": torch.zeros(0, dtype=torch.long)})
    assert rows.rows == 0
    rows.ensure(3)
    rows["a"][1], rows["b"][1] = 1.0, 7
    point = rows.snapshot(slice(1, 3), ["b"])
    rows.move(1, 2)
    assert rows["a"].tolist() == [[0, 0], [1, 1], [1, 1]]
    rows.clear(1)
    assert rows["b"].tolist() == [0, 0, 7]
    rows.restore(slice(1, 3), point)
    assert rows["b"].tolist() == [0, 7, 0]
    assert rows["a"].tolist() == [[0, 0], [0, 0], [1, 1]]


def test_a_lane_grows_to_its_limit_and_keeps_its_keys() -> None:
    shape = CacheShape(layers=1, kv_heads=2, head_dim=3, dtype=torch.float32)
    lane, seen = Lane(shape, "cpu", capacity=2, limit=9), []
    for position in range(11):
        lane.reserve(position + 1)
        keys, values = lane.append(0, torch.full((2, 1, 3), position), torch.full((2, 1, 3), -position))
        lane.length += 1
        seen.append(lane.capacity)
        assert keys[0, :, 0].tolist() == list(range(position + 1))
        assert values[1, :, 2].tolist() == [-p for p in range(position + 1)]
    assert seen == [2, 2, 4, 4, 8, 8, 8, 8, 9, 10, 11]


def test_a_lane_comes_back_to_a_snapshot_more_than_once() -> None:
    lane = Lane(SHAPES[1], "cpu", capacity=4)
    point = lane.snapshot()
    for _ in range(2):
        lane.length += 3
        lane.states["conv.0"] = lane.states["conv.0"] + 1
        lane.restore(point)
        assert lane.length == 0
        assert not any(state.any() for state in lane.states.values())


def test_the_store_keeps_what_was_used_last() -> None:
    store: RecentStore[str] = RecentStore(10, len)
    store.put("a", "aaaa")
    store.put("b", "bbbb")
    assert store.get("a") == "aaaa"
    store.put("c", "cccc")
    assert (store.get("a"), store.get("b"), store.get("c")) == ("aaaa", None, "cccc")
    store.put("c", "cc")
    assert store.used == 6
    store.put("d", "d" * 11)
    assert "d" not in store
    assert store.used <= 10


def test_a_store_of_values_makes_what_it_lacks() -> None:
    store: RecentStore[str] = RecentStore(2)
    made: list[str] = []

    def make(key: str) -> str:
        return store.get_or_make(key, lambda: made.append(key) or key.upper())

    assert [make(key) for key in "abacab"] == list("ABACAB")
    assert made == ["a", "b", "c", "b"]
    assert len(store) == 2
    assert RecentStore[str](0).get_or_make("a", lambda: "A") == "A"


def test_content_is_told_apart_by_samples_and_rate() -> None:
    samples = torch.arange(4.0).numpy()
    assert content_key(samples) == content_key(samples.copy())
    keys = {content_key(samples), content_key(samples, 1), content_key(samples, 2), content_key(samples[::-1])}
    assert len(keys) == 4
