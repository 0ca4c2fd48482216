"""A local cache of the hub with snapshots put into it by hand; nothing is downloaded."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def use_cache(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Path:
    """Makes `cache`, which may be absent, the hub's cache of this test."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    return cache


def put_snapshot(cache: Path, hub_id: str, folder: Path) -> Path:
    """Moves a folder into the cache as the one snapshot of a hub id."""
    repo = cache / f"models--{hub_id.replace('/', '--')}"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    (repo / "snapshots").mkdir()
    return Path(shutil.move(folder, repo / "snapshots" / COMMIT))
