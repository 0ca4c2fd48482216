"""Installing compiles the native steps where it can, and goes on without them where it cannot."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from oscine.families.audio8.backends.native import INTERFACE
from oscine.kernels.compiled import open_library

ROOT = Path(__file__).parents[2]
COMPILERS = [name for name in ("cc", "gcc", "clang") if shutil.which(name)]
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="no C compiler here")


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("OSCINE_NATIVE", raising=False)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path, build: ModuleType) -> Path:
    for file in (*ROOT.glob(build.SOURCES), *(ROOT / build.HEADERS).glob("*.h")):
        copy = tmp_path / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    return tmp_path


def build_data(build: ModuleType, tree: Path, target: str = "wheel") -> dict[str, Any]:
    data: dict[str, Any] = {"artifacts": []}
    build.NativeBuildHook(str(tree), {}, None, None, str(tree), target).initialize("standard", data)
    return data


@needs_compiler
def test_the_libraries_are_made_beside_the_source(build: ModuleType, tree: Path) -> None:
    data = build_data(build, tree)
    assert data["pure_python"] is False
    assert data["tag"].startswith("py3-none-")
    assert not set(data["tag"]) & set(". ")
    assert "src/oscine/families/audio8/backends/libnative.so" in data["artifacts"]
    stem = tree / "src/oscine/families/audio8/backends/libnative"
    assert open_library(stem, "", INTERFACE) is not None


def test_without_a_compiler_nothing_is_made(build: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tree))
    assert build_data(build, tree) == {"artifacts": []}
    monkeypatch.setenv("CC", str(tree / "missing"))
    assert build_data(build, tree) == {"artifacts": []}


def test_a_compiler_that_fails_is_no_compiler(build: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", f"{sys.executable} -c 'raise SystemExit(1)'")
    assert build_data(build, tree) == {"artifacts": []}


def test_they_can_be_left_out(build: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_data(build, tree, "sdist") == {"artifacts": []}
    monkeypatch.setenv("OSCINE_NATIVE", "0")
    assert build_data(build, tree) == {"artifacts": []}
