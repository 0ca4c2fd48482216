"""Text in while it is written, sentences out as audio."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from oscine.server.state import ServerState

from .conftest import MODEL, SPEECH, body, wait_until


@pytest.fixture
def socket(base_url: str) -> Iterator[ClientConnection]:
    with connect(base_url.replace("http", "ws") + "/v1/audio/speech/stream") as connection:
        yield connection


def tell(socket: ClientConnection, kind: str, **fields: Any) -> None:
    socket.send(json.dumps({"type": kind} | fields))


def hear(socket: ClientConnection) -> dict[str, Any]:
    """The next event that is not just about progress, of which a busy machine tells."""
    message = socket.recv(timeout=30)
    assert isinstance(message, str), "audio where an event was expected"
    event: dict[str, Any] = json.loads(message)
    return hear(socket) if event["type"] == "audio.progress" else event


def configure(socket: ClientConnection, **fields: Any) -> dict[str, Any]:
    tell(socket, "session.config", **{"seed": 7, "max_new_tokens": 12, "response_format": "pcm"} | fields)
    return hear(socket)


def sentence(socket: ClientConnection) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
    start, audio = hear(socket), b""
    assert start["type"] == "audio.start", start
    while isinstance(message := socket.recv(timeout=30), bytes):
        audio += message
    return start, audio, json.loads(message)


def test_the_first_sentence_is_spoken_before_the_text_has_ended(socket: ClientConnection, client: httpx.Client) -> None:
    configured = configure(socket)
    assert configured == {
        "type": "session.configured",
        "model": MODEL,
        "format": "pcm",
        "sample_rate": 24000,
        "seed": 7,
    }
    tell(socket, "input.text", text="Hello wor")
    tell(socket, "input.text", text="ld. And ")
    start, audio, done = sentence(socket)
    place = {"utterance_index": 0, "sentence_index": 0}
    text = {"sentence_text": "Hello world.", "format": "pcm", "sample_rate": 24000}
    assert start == {"type": "audio.start", **place, **text}
    assert done["finish_reason"] in ("stop", "length")
    assert done.items() >= {"type": "audio.done", **place, "total_bytes": len(audio), "error": None}.items()
    assert audio == client.post(SPEECH, json=body(response_format="pcm")).content
    tell(socket, "input.text", text="so on")
    tell(socket, "input.done")
    assert sentence(socket)[0]["sentence_text"] == "And so on"
    assert hear(socket) == {"type": "session.done", "total_sentences": 2}


def test_a_session_goes_on_with_other_settings(socket: ClientConnection) -> None:
    configure(socket)
    tell(socket, "input.text", text="Hello.")
    tell(socket, "input.done")
    sentence(socket)
    assert hear(socket)["type"] == "session.done"
    assert configure(socket, response_format="wav", seed=8)["format"] == "wav"
    tell(socket, "input.text", text="Good day.")
    tell(socket, "input.done")
    start, audio, _ = sentence(socket)
    assert (start["utterance_index"], start["sentence_index"]) == (1, 0)
    assert audio.startswith(b"RIFF")
    assert hear(socket) == {"type": "session.done", "total_sentences": 1}
    tell(socket, "session.close")
    with pytest.raises(Exception, match="1000"):
        socket.recv(timeout=10)


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"voice": "nobody"}, "voice_not_found", "voice"),
        ({"model": "no-such"}, "model_not_found", "model"),
        ({"colour": "red"}, "invalid_request", "colour"),
        ({"speed": 9}, "invalid_request", "speed"),
        ({"cfg_scale": 2.0}, "unsupported_feature", "cfg_scale"),
        ({"stream_format": "sse"}, "invalid_request", "stream_format"),
        ({"input": "Hello."}, "invalid_request", "input"),
    ],
)
def test_wrong_settings_are_refused_before_any_text(
    socket: ClientConnection, fields: dict[str, Any], code: str, param: str
) -> None:
    answer = configure(socket, **fields)
    assert answer["type"] == "error"
    assert (answer["error"]["code"], answer["error"]["param"]) == (code, param)
    tell(socket, "input.text", text="Hello.")
    assert "session.config" in hear(socket)["error"]["message"]


def test_a_sentence_that_cannot_be_spoken_does_not_end_the_session(socket: ClientConnection) -> None:
    configure(socket)
    tell(socket, "input.text", text="🙂🙂.")
    tell(socket, "input.done")
    refused = hear(socket)
    assert (refused["type"], refused["sentence_index"]) == ("error", 0)
    assert hear(socket)["type"] == "session.done"
    for message in ("{", "[]", '{"type": "nonsense"}', '{"type": "input.text", "text": 5}'):
        socket.send(message)
        assert hear(socket)["error"]["code"] == "invalid_request"
    tell(socket, "input.text", text="Hello.")
    tell(socket, "input.done")
    assert sentence(socket)[2]["total_bytes"] > 0


@pytest.mark.parametrize(
    ("frame", "word"),
    [
        (b"\x00\x01", "binary"),
        ("{", "JSON"),
        ("[1, 2]", "object"),
        ("[" * 50_000, "JSON"),
        ('{"no": "type"}', "unknown message type"),
        (json.dumps({"type": "x" * 5000}), "unknown message type"),
        ('{"type": "input.text"}', "text"),
        ('{"type": "input.text", "text": "a", "colour": "red"}', "text"),
        ('{"type": "input.text", "text": "\\ud800"}', "surrogate"),
        ('{"type": "input.done", "text": "a"}', "input.done"),
        (json.dumps({"type": "input.text", "text": "a. " * 2000}), "5000"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_wrong_message_is_told_what_is_wrong_and_the_session_goes_on(
    socket: ClientConnection, frame: str | bytes, word: str
) -> None:
    configure(socket)
    socket.send(frame)
    answer = hear(socket)
    assert (answer["type"], answer["error"]["code"]) == ("error", "invalid_request")
    assert word in answer["error"]["message"]
    assert len(answer["error"]["message"]) < 300
    tell(socket, "input.text", text="Hello.")
    tell(socket, "input.done")
    assert sentence(socket)[2]["total_bytes"] > 0


def test_more_text_than_can_wait_is_refused_until_some_has_been_spoken(socket: ClientConnection) -> None:
    configure(socket, max_new_tokens=200)
    for _ in range(2):  # an utterance may have 5000 characters here, and so many may wait
        tell(socket, "input.text", text="Four words of it. " * 260)
        tell(socket, "input.done")
    while True:
        message = socket.recv(timeout=30)
        if isinstance(message, str) and (event := json.loads(message))["type"] == "error":
            break
    assert event["error"]["code"] == "queue_full"
    tell(socket, "session.close")


def test_text_after_the_end_is_the_next_utterance_and_an_end_without_text_ends_nothing(
    socket: ClientConnection,
) -> None:
    configure(socket)
    tell(socket, "input.done")
    assert hear(socket) == {"type": "session.done", "total_sentences": 0}
    tell(socket, "input.text", text="Hello.")
    tell(socket, "input.done")
    assert sentence(socket)[0]["utterance_index"] == 1


def test_leaving_cancels_what_is_being_spoken(base_url: str, app: Any) -> None:
    state: ServerState = app.state.server
    with connect(base_url.replace("http", "ws") + "/v1/audio/speech/stream") as socket:
        configure(socket, max_new_tokens=600)
        tell(socket, "input.text", text="word " * 900)
        tell(socket, "input.done")
        hear(socket)
        assert state.models.stats().running
    wait_until(lambda: not state.models.stats().running and not state.models.stats().waiting)
    wait_until(lambda: state.active == 0)
