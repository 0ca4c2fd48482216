"""Long work tells how far it is wherever there are events: in those of HTTP and in a WebSocket session."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from oscine.errors import NoAudio
from oscine.server.app import create_app
from oscine.server.models import ModelRegistry
from oscine.server.responses import AudioEvents
from oscine.server.state import ServerSettings
from oscine.server.stream import Progress

from .conftest import SPEECH, body, make_registry, reference_wav, serving

EDITS = "/v1/audio/edits"
QUICK = ServerSettings(progress_s=0.01)


class Held:
    """A stand-in for a stream that gives nothing until it is let go, and pretends to be half done until then."""

    def __init__(self, stream: Any, go: threading.Event, error: Exception | None = None) -> None:
        self._stream, self._go, self._error = stream, go, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def progress(self) -> float:
        return self._stream.progress if self._go.is_set() else 0.5

    def __next__(self) -> Any:
        assert self._go.wait(60)
        if self._error is not None:
            self._stream.cancel()
            raise self._error
        return next(self._stream)


def hold(registry: ModelRegistry, go: threading.Event, error: Exception | None = None) -> None:
    """Makes every stream of the default model one that is held until `go`."""
    with registry.use("tts-1") as model:
        whole = model.stream
        model.stream = lambda *args, **fields: Held(whole(*args, **fields), go, error)  # type: ignore[method-assign,assignment]


def events_of(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line:
            yield json.loads(line.removeprefix("data: "))


@pytest.fixture
def registry(voices_dir: Path) -> ModelRegistry:
    return make_registry(voices_dir)


def test_events_begin_before_the_audio_and_tell_the_progress(registry: ModelRegistry) -> None:
    fields = body(response_format="pcm")
    go = threading.Event()
    with serving(create_app(registry, QUICK)) as url, httpx.Client(base_url=url, timeout=60) as client:
        expected = client.post(SPEECH, json=fields).content
        hold(registry, go)
        with client.stream("POST", SPEECH, json=fields | {"stream_format": "sse"}) as response:
            assert response.status_code == 200
            assert response.headers["x-seed"] == "7"
            events = events_of(response)
            for _ in range(3):
                assert next(events) == {"type": "speech.audio.progress", "progress": 0.5, "audio_s": 0.0}
            go.set()
            rest = list(events)
    deltas = [event for event in rest if event["type"] == "speech.audio.delta"]
    assert b"".join(base64.b64decode(event["audio"]) for event in deltas) == expected
    assert rest[-1]["type"] == "speech.audio.done"
    told = [event for event in rest[:-1] if event["progress"] != 0.5]  # one may have been on its way
    shares = [event["progress"] for event in told]
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] <= 1
    assert deltas[-1]["audio_s"] == pytest.approx(len(expected) / 2 / 24000, abs=0.01)


def test_a_failure_after_progress_is_an_event_and_before_it_a_status(registry: ModelRegistry, voices_dir: Path) -> None:
    go = threading.Event()
    fields = body(stream_format="sse")
    with serving(create_app(registry, QUICK)) as url, httpx.Client(base_url=url, timeout=60) as client:
        hold(registry, go, NoAudio("nothing was heard"))
        with client.stream("POST", SPEECH, json=fields) as response:
            assert response.status_code == 200
            events = events_of(response)
            assert next(events)["type"] == "speech.audio.progress"
            go.set()
            *_, last = events
        assert last["type"] == "speech.audio.error"
        assert last["error"]["code"] == "no_audio"
    patient = make_registry(voices_dir)
    with serving(create_app(patient, ServerSettings(progress_s=60))) as url:
        hold(patient, go, NoAudio("nothing was heard"))  # raised at once: `go` is set
        refused = httpx.post(url + SPEECH, json=fields, timeout=60)
    assert refused.status_code == 500
    assert refused.json()["error"]["code"] == "no_audio"


def test_raw_audio_begins_with_audio_however_long_it_takes(registry: ModelRegistry) -> None:
    go = threading.Event()
    fields = body(response_format="pcm")
    with serving(create_app(registry, QUICK)) as url, httpx.Client(base_url=url, timeout=60) as client:
        expected = client.post(SPEECH, json=fields).content
        hold(registry, go)
        with pytest.raises(httpx.ReadTimeout):
            client.post(SPEECH, json=fields, timeout=0.5)
        go.set()
        assert client.post(SPEECH, json=fields).content == expected


def test_a_session_tells_the_progress_of_a_sentence(registry: ModelRegistry) -> None:
    go = threading.Event()
    with serving(create_app(registry, QUICK)) as url:
        hold(registry, go)
        with connect(url.replace("http", "ws") + f"{SPEECH}/stream") as socket:
            socket.send(json.dumps({"type": "session.config", "seed": 7, "max_new_tokens": 12}))
            assert json.loads(socket.recv(timeout=60))["type"] == "session.configured"
            socket.send(json.dumps({"type": "input.text", "text": "Hello."}))
            socket.send(json.dumps({"type": "input.done"}))
            place = {"utterance_index": 0, "sentence_index": 0}
            for _ in range(3):
                event = json.loads(socket.recv(timeout=60))
                assert event == {"type": "audio.progress", **place, "progress": 0.5, "audio_s": 0.0}
            go.set()
            seen = []
            while seen[-1:] != ["session.done"]:
                message = socket.recv(timeout=60)
                seen.append("audio" if isinstance(message, bytes) else json.loads(message)["type"])
    heard = [kind for kind in seen if kind != "audio.progress"]
    assert heard[0] == "audio.start"
    assert heard[-2:] == ["audio.done", "session.done"]
    assert "audio" in heard


def test_the_steps_of_a_flow_are_its_progress(families_url: str) -> None:
    audio = base64.b64encode(reference_wav(0.5)).decode()
    fields = {"model": "auk", "seed": 3, "num_steps": 8, "task": "denoise", "audio": audio, "stream_format": "sse"}
    with httpx.stream("POST", families_url + EDITS, json=fields, timeout=60) as response:
        events = list(events_of(response))
    kinds = [event["type"] for event in events]
    first = kinds.index("speech.audio.delta")
    shares = [event["progress"] for event in events[:first]]
    assert set(kinds[:first]) == {"speech.audio.progress"}
    assert shares == sorted(shares)
    assert {share for share in shares if 0 < share < 1} <= {step / 8 for step in range(8)}
    assert len(set(shares)) > 3
    assert kinds[-1] == "speech.audio.done"


class Given:
    """A stand-in for a delivery of one long run of bytes."""

    run = SimpleNamespace(content_type="audio/wav", stream=SimpleNamespace(usage={}, finish_reason="stop"))
    progress = Progress(share=0.5, audio_s=1.0)

    def __init__(self, data: bytes) -> None:
        self._data: list[bytes | None] = [data, None]

    async def pull_or_progress(self) -> bytes | None:
        return self._data.pop(0)

    def close(self) -> None:
        assert not self._data


def test_no_event_is_longer_than_clients_take_in_one_line() -> None:
    data = bytes(range(256)) * 400
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    asyncio.run(AudioEvents(Given(data), {})({}, None, send))  # type: ignore[arg-type]
    events = [json.loads(body.removeprefix(b"data: ")) for body in sent if body]
    assert max(map(len, sent)) < 1 << 16
    assert b"".join(base64.b64decode(event.get("audio", "")) for event in events) == data
    assert events[-1]["type"] == "speech.audio.done"
