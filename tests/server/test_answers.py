"""Answers in words that come as they are made, through the official client and bare."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import openai
import pytest

import oscine
from oscine.engine.engine import Engine, EngineOptions
from oscine.server.app import create_app
from oscine.server.models import ModelRegistry, ModelSpec
from oscine.server.state import ServerSettings
from tests.unit.audex_models import wordy_folder

from .conftest import AUDEX, reference_wav, serving, wait_until

HEARD = {"type": "input_audio", "input_audio": {"data": base64.b64encode(reference_wav()).decode(), "format": "wav"}}
ASKED = {"type": "text", "text": "What is this?"}
CHAT = "/v1/chat/completions"
WANTED: dict[str, Any] = {
    "model": "audex",
    "messages": [{"role": "user", "content": [HEARD, ASKED]}],
    "temperature": 1.0,
    "seed": 5,
    "max_tokens": 12,
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a model that answers in letters."""
    if not AUDEX.is_dir():
        pytest.skip(f"no miniature Audex checkpoint in {AUDEX.parent}")
    folder = wordy_folder(AUDEX, tmp_path_factory.mktemp("wordy") / "audex")
    engine = Engine(EngineOptions(memory_bytes=1 << 30, max_waiting=None))
    load = partial(oscine.load, folder, device="cpu", voices_dir=tmp_path_factory.mktemp("voices"), engine=engine)
    registry = ModelRegistry([ModelSpec(id="audex", load=load, num_bytes=1)], engine)
    with serving(create_app(registry, ServerSettings(max_audio_s=2.0))) as url:
        yield url


@pytest.fixture
def web(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=60) as client:
        yield client


def test_an_answer_comes_as_it_is_made(url: str, web: httpx.Client) -> None:
    """The joined deltas are the whole answer; then how it ended, token counts if wanted, and the mark of the end."""
    whole = web.post(CHAT, json=WANTED).json()
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as sdk:
        options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(sdk.chat.completions.create(**WANTED, **options))
    *told, usage = chunks
    assert "".join(chunk.choices[0].delta.content or "" for chunk in told) == whole["choices"][0]["message"]["content"]
    assert sum(bool(chunk.choices[0].delta.content) for chunk in told) > 1
    assert told[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in told[:-1]] == [None] * (len(told) - 1)
    assert told[-1].choices[0].finish_reason == whole["choices"][0]["finish_reason"]
    assert not usage.choices
    assert usage.usage is not None
    assert usage.usage.model_dump(include=set(whole["usage"])) == whole["usage"]
    response = web.post(CHAT, json=WANTED | {"stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("data: [DONE]\n\n")
    assert '"usage"' not in response.text


def test_a_client_that_leaves_ends_its_answer(url: str, web: httpx.Client) -> None:
    with web.stream("POST", CHAT, json=WANTED | {"stream": True, "max_tokens": 4000}) as response:
        assert next(response.iter_lines()).startswith("data: ")
    ended = f'oscine_requests_total{{endpoint="{CHAT}",outcome="cancelled"}} 1'
    wait_until(lambda: ended in web.get("/metrics").text)
