"""Storage of the slow model: growth, copies of rows, and the bounded store of recent results."""

from __future__ import annotations

import torch

from oscine.families.audio8.cache import SlowCache, row_bytes
from oscine.families.audio8.lru import RecentStore
from oscine.layers.kv_cache import KVCache
from tests.audio8_toys import TINY, lm_config


def filled(cache: SlowCache, rows: int, width: int) -> SlowCache:
    cache.ensure(rows, width)
    for part in [*cache.kv.layers, cache.conv, cache.ssm]:
        part.copy_(torch.rand_like(part))
    return cache


CONFIGS = [lm_config(TINY, hybrid=hybrid) for hybrid in (False, True)]


def caches() -> list[SlowCache]:
    return [filled(SlowCache(config, dtype=torch.float32, device="cpu"), 3, 64) for config in CONFIGS]


def test_keys_go_where_the_plan_says() -> None:
    cache = KVCache(2, 2, 4, dtype=torch.float32, device="cpu")
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
        assert (cache.rows, cache.kv.capacity) == (5, 128)
        after = cache.export(1, 40)
        assert all(torch.equal(before[key], after[key]) for key in before)
        assert all(float(layer[3:].abs().sum()) == 0 for layer in cache.kv.layers)
        assert all(float(layer[:, :, 64:].abs().sum()) == 0 for layer in cache.kv.layers)


def test_an_exported_row_can_be_loaded_anywhere() -> None:
    for cache in caches():
        stored = cache.export(2, 17)
        assert cache.load(0, stored) == 17
        again = cache.export(0, 17)
        assert all(torch.equal(stored[key], again[key]) for key in stored)
        assert set(stored) == ({"kv", "conv", "ssm"} if cache.is_hybrid else {"kv"})


def test_move_clear_begin_and_snapshot() -> None:
    for cache in caches():
        stored = cache.export(0, 64)
        cache.move(0, 2)
        moved = cache.export(2, 64)
        assert all(torch.equal(stored[key], moved[key]) for key in stored)
        point = cache.snapshot(2)
        cache.begin(2)
        assert torch.equal(cache.export(2, 64)["kv"], stored["kv"])
        cache.restore(2, point)
        assert all(torch.equal(cache.export(2, 64)[key], stored[key]) for key in stored)
        cache.clear(2)
        assert all(float(part.abs().sum()) == 0 for part in cache.export(2, 64).values())


def test_row_bytes_are_what_a_row_takes() -> None:
    for config, cache in zip(CONFIGS, caches(), strict=True):
        parts = [*cache.kv.layers, *([cache.conv, cache.ssm] if cache.is_hybrid else [])]
        assert row_bytes(config, torch.float32, 64) * 3 == sum(part.numel() * part.element_size() for part in parts)


def test_the_store_keeps_what_was_used_last() -> None:
    store: RecentStore[str] = RecentStore(10, len)
    store.put("a", "aaaa")
    store.put("b", "bbbb")
    assert store.get("a") == "aaaa"
    store.put("c", "cccc")
    assert (store.get("a"), store.get("b"), store.get("c")) == ("aaaa", None, "cccc")
    store.put("c", "cc")
    assert store.used_bytes == 6
    store.put("d", "d" * 11)
    assert "d" not in store
    assert store.used_bytes <= 10
