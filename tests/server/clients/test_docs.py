"""The Python examples of the clients' page run as they stand, but for the address."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ..conftest import decode

PAGE = Path(__file__).parents[3] / "docs" / "clients.md"


def example(word: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    return next(block for block in blocks if word in block)


def run(word: str, base_url: str) -> None:
    code = example(word).replace("127.0.0.1:8000", base_url.removeprefix("http://"))
    values: dict[str, object] = {}
    exec(compile(code, PAGE.name, "exec"), values)
    if "client" in values:
        values["client"].close()  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_sdk_example(base_url: str) -> None:
    run("from openai import OpenAI", base_url)
    assert len(decode(Path("hello.mp3").read_bytes())[0])


def test_the_websocket_example(base_url: str) -> None:
    run("session.config", base_url)
    assert Path("speech.pcm").stat().st_size > 8000
