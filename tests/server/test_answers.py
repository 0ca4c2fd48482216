"""Answers in words that come as they are made, through the official client and bare."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import oscine
from oscine.engine.engine import Engine, EngineOptions
from oscine.errors import GenerationError
from oscine.server.app import create_app
from oscine.server.models import ModelRegistry, ModelSpec
from oscine.server.state import ServerSettings
from tests.unit.audex_models import wordy_folder

from .conftest import AUDEX, UNTOLD_S, reference_wav, serving, wait_until

HEARD = {"type": "input_audio", "input_audio": {"data": base64.b64encode(reference_wav()).decode(), "format": "wav"}}
ASKED = {"type": "text", "text": "What is this?"}
CHAT, TRANSCRIPTIONS = "/v1/chat/completions", "/v1/audio/transcriptions"
WANTED: dict[str, Any] = {
    "model": "audex",
    "messages": [{"role": "user", "content": [HEARD, ASKED]}],
    "temperature": 1.0,
    "seed": 5,
    "max_tokens": 12,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that answers in letters."""
    if not AUDEX.is_dir():
        pytest.skip(f"no miniature Audex checkpoint in {AUDEX.parent}")
    return wordy_folder(AUDEX, tmp_path_factory.mktemp("wordy") / "audex")


def registry_of(folder: Path) -> ModelRegistry:
    engine = Engine(EngineOptions(memory_bytes=1 << 30, max_waiting=None))
    load = partial(oscine.load, folder, device="cpu", voices_dir=folder / "voices", engine=engine)
    return ModelRegistry([ModelSpec(id="audex", load=load, num_bytes=1)], engine)


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with serving(create_app(registry_of(folder), ServerSettings(max_audio_s=2.0, progress_s=UNTOLD_S))) as url:
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


def test_a_transcript_comes_as_it_is_made(url: str, web: httpx.Client) -> None:
    form: dict[str, Any] = {"model": "audex", "temperature": 1.0}
    extra: dict[str, Any] = {"seed": 5, "max_new_tokens": 200}  # a transcript is settled from its 120th letter on
    file = ("a.wav", reference_wav())
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as sdk:
        whole = sdk.audio.transcriptions.create(**form, file=file, extra_body=extra)
        events = list(sdk.audio.transcriptions.create(**form, file=file, stream=True, extra_body=extra))
    *deltas, done = events
    assert {event.type for event in deltas} == {"transcript.text.delta"}
    assert len(deltas) > 1
    assert "".join(event.delta for event in deltas) == done.text == whole.text
    assert (done.type, done.finish_reason) == ("transcript.text.done", "length")
    assert done.usage.model_dump() == whole.usage.model_dump()
    sent = form | extra | {"stream": "true"}
    refused = web.post(TRANSCRIPTIONS, data=sent, files={"file": ("a.wav", b"no audio")})
    assert refused.status_code == 422
    assert refused.json()["error"]["param"] == "file"


class Held:
    """A stand-in for a stream that has no words until it is let go, or fails then."""

    def __init__(self, stream: Any, go: threading.Event, error: Exception | None) -> None:
        self._stream, self._go, self._error = stream, go, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def words(self) -> Iterator[str]:
        assert self._go.wait(60)
        if self._error is not None:
            raise self._error
        yield from self._stream.words()


def hold(registry: ModelRegistry, go: threading.Event, error: Exception | None = None) -> None:
    with registry.use("audex") as model:
        run = type(model).run
        model.run = lambda request: Held(run(model, request), go, error)  # type: ignore[method-assign,assignment]


def events_of(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def test_an_answer_that_takes_long_tells_its_progress(folder: Path) -> None:
    registry, go = registry_of(folder), threading.Event()
    with serving(create_app(registry, ServerSettings(progress_s=0.01))) as url:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as sdk:
            whole = sdk.chat.completions.create(**WANTED)
            hold(registry, go)
            chunks = iter(sdk.chat.completions.create(**WANTED, stream=True))
            first, *silent = (next(chunks) for _ in range(4))
            go.set()
            rest = list(chunks)
        assert first.choices[0].delta.role == "assistant"
        for chunk in silent:
            assert chunk.choices[0].delta.model_dump(exclude_none=True) == {}
            assert chunk.choices[0].finish_reason is None
            assert 0 <= chunk.model_extra["progress"] <= 1
            assert chunk.model_extra["output_tokens"] >= 0
        assert "".join(chunk.choices[0].delta.content or "" for chunk in rest) == whole.choices[0].message.content
        assert rest[-1].choices[0].finish_reason == whole.choices[0].finish_reason

        go.clear()
        fields = {"model": "audex", "seed": "5", "max_new_tokens": "12", "stream": "true"}
        with httpx.stream("POST", url + TRANSCRIPTIONS, data=fields, files={"file": ("a.wav", reference_wav())}) as got:
            events = events_of(got)
            told = next(events)
            go.set()
            *_, last = events
    assert told.keys() == {"type", "progress", "output_tokens"}
    assert told["type"] == "transcript.text.progress"
    assert last["type"] == "transcript.text.done"


@pytest.mark.parametrize("progress_s", [0.01, 60.0], ids=["after progress", "before it"])
def test_a_failure_is_an_event_after_progress_and_a_status_before(folder: Path, progress_s: float) -> None:
    registry, go = registry_of(folder), threading.Event()
    with serving(create_app(registry, ServerSettings(progress_s=progress_s))) as url:
        hold(registry, go, GenerationError("the model broke"))
        if progress_s > 1:
            go.set()
        with httpx.stream("POST", url + CHAT, json=WANTED | {"stream": True}, timeout=60) as response:
            told = []
            for event in events_of(response):
                told.append(event)
                go.set()
    if progress_s > 1:
        assert (response.status_code, told) == (500, [])
    else:
        assert response.status_code == 200
        assert told[-1]["error"]["code"] == "generation_error"
        assert "choices" not in told[-1]
