"""Importing oscine is quick and light; the public names are what they say."""

from __future__ import annotations

import subprocess
import sys

import oscine


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_loads_neither_torch_nor_a_web_framework() -> None:
    code = "import sys, oscine; print([m for m in ('torch', 'fastapi', 'soundfile', 'tokenizers') if m in sys.modules])"
    assert run(code).strip() == "[]"


def test_public_names_are_sorted_and_exist() -> None:
    assert oscine.__all__ == sorted(oscine.__all__)
    for name in oscine.__all__:
        assert getattr(oscine, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(oscine, "no_such_name")
