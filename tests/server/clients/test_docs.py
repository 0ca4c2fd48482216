"""Each client has a page, and the Python examples of those that need nothing else run, but for the address."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ..conftest import decode

PAGES = Path(__file__).parents[3] / "docs" / "clients"
CLIENTS = ["openai_sdk", "open_webui", "sillytavern", "livekit", "pipecat", "home_assistant", "curl", "websocket"]


def run(name: str, base_url: str) -> None:
    page = PAGES / f"{name}.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    values: dict[str, object] = {}
    exec(compile(code.replace("127.0.0.1:8000", base_url.removeprefix("http://")), page.name, "exec"), values)
    if "client" in values:
        values["client"].close()  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_sdk_example(base_url: str) -> None:
    run("openai_sdk", base_url)
    assert len(decode(Path("hello.mp3").read_bytes())[0])


def test_the_websocket_example(base_url: str) -> None:
    run("websocket", base_url)
    assert Path("speech.pcm").stat().st_size > 8000


def test_every_client_has_a_page_that_the_index_leads_to() -> None:
    assert sorted(CLIENTS) == sorted(page.stem for page in PAGES.glob("*.md"))
    index = (PAGES.parent / "clients.md").read_text(encoding="utf-8")
    for name in CLIENTS:
        assert f"(clients/{name}.md)" in index, name
