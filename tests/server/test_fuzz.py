"""Whatever a client sends, the server neither fails nor hangs: it serves, or says what is wrong. Bounded in time."""

from __future__ import annotations

import json
import warnings
from typing import Any

import httpx
import hypothesis
import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from .conftest import MODEL, SPEECH, body, reference_wav

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of other packages, while they are imported
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

OPERATIONS = [
    ("/v1/audio/speech", "POST"),
    ("/v1/audio/speech/batch", "POST"),
    ("/v1/audio/voices", "GET"),
    ("/v1/audio/voices/{voice_id}", "DELETE"),
    ("/v1/audio/generations", "POST"),
    ("/v1/audio/edits", "POST"),
    ("/v1/chat/completions", "POST"),
    ("/v1/models/{model}", "GET"),
]
WAIT_S = 100.0
"""Nothing here takes a second on an idle machine; who waits so long has been forgotten."""


def bounded(max_examples: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=max_examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )


def check_answer(response: httpx.Response) -> None:
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        error = response.json()["error"]
        assert list(error) == ["message", "type", "param", "code"]
        assert error["message"]


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_no_request_makes_the_server_fail(base_url: str, path: str, method: str) -> None:
    schema = schemathesis.openapi.from_url(f"{base_url}/openapi.json")
    operation = schema[path][method]

    @hypothesis.given(case=operation.as_strategy())
    @bounded(15)
    def check(case: schemathesis.Case) -> None:
        response = case.call()
        assert response.status_code < 500, (case.as_curl_command(), response.text)
        if response.status_code >= 400:
            error = response.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}

    check()


# Multipart forms

WAV = reference_wav(0.6)
FORMS: dict[str, dict[str, Any]] = {
    "/v1/audio/transcriptions": {"file": WAV, "model": "audex", "max_new_tokens": "2"},
    "/v1/audio/voices": {"audio_sample": WAV, "name": "fuzzed", "ref_text": "A tone.", "model": MODEL},
    "/v1/audio/edits": {
        "audio": WAV,
        "model": "auk",
        "task": "pitch",
        "direction": "up",
        "semitones": "1",
        "num_steps": "1",
        "response_format": "pcm",
    },
}
VALUES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", "-1", "9" * 5000, "1e999", "nan", "true", "null", "../../etc/passwd", "\x00", "x" * 70_000]),
)
FILES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([WAV, WAV[:40], WAV[:1000], WAV[44:], b"RIFF" + bytes(200), b"\xff\xfb" + bytes(500), b"fLaC"]),
)
BOUNDARY = "frontier"


def multipart(fields: dict[str, Any]) -> bytes:
    """A form; bytes become files."""
    parts = []
    for name, value in fields.items():
        is_file = isinstance(value, bytes)
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"' + '; filename="a.wav"' * is_file
        parts.append(head.encode() + b"\r\n\r\n" + (value if is_file else value.encode()) + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def send(client: httpx.Client, path: str, content: bytes, kind: str) -> None:
    response = client.post(path, content=content, headers={"Content-Type": kind})
    check_answer(response)
    if path.endswith("/voices") and response.status_code == 200:
        assert client.delete(f"{path}/{response.json()['id']}").status_code == 200


# Starlette leaves the file of a part that was cut off to the garbage collector, which says so.
@pytest.mark.filterwarnings("ignore:Unclosed file <tempfile:ResourceWarning")
@pytest.mark.parametrize("path", FORMS)
def test_no_form_makes_the_server_fail(families_url: str, path: str) -> None:
    base = FORMS[path]
    names = st.sampled_from([*base, "seed", "language", "response_format", "sample_rate", "colour"])
    changes = st.dictionaries(names, st.one_of(st.none(), VALUES, FILES), max_size=3)
    damage = st.tuples(st.integers(0, 400), st.integers(0, 30), st.binary(max_size=8))
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    kinds = st.sampled_from(
        [kind, kind + "; charset=utf-16", "multipart/form-data", f"{kind}x", "application/x-www-form-urlencoded"]
    )

    with httpx.Client(base_url=families_url, timeout=WAIT_S) as client:
        send(client, path, multipart(base), kind)  # what is damaged below is fine as it stands

        @hypothesis.given(changes=changes)
        @bounded(25)
        def other_fields(changes: dict[str, Any]) -> None:
            fields = {name: value for name, value in (base | changes).items() if value is not None}
            send(client, path, multipart(fields), kind)

        @hypothesis.given(damage=damage, kind=kinds, cut=st.one_of(st.none(), st.integers(0, 600)))
        @bounded(25)
        def other_bytes(damage: tuple[int, int, bytes], kind: str, cut: int | None) -> None:
            begin, length, put = damage
            content = multipart(base)
            send(client, path, (content[:begin] + put + content[begin + length :])[:cut], kind)

        other_fields()
        other_bytes()


# The WebSocket

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["session.config", "input.text", "input.done", "input", "", "audio.done"])
FIELDS = st.sampled_from(["text", "model", "voice", "speed", "seed", "ref_audio", "response_format", "input", "stream"])
GOOD = st.sampled_from(
    [
        {"type": "session.config", "max_new_tokens": 2, "response_format": "pcm"},
        {"type": "input.text", "text": "Hello. You"},
        {"type": "input.text", "text": "🙂. \n\n"},
        {"type": "input.done"},
    ]
)
EVENTS = st.one_of(
    GOOD, st.builds(lambda kind, fields: fields | {"type": kind}, TYPES, st.dictionaries(FIELDS, JSON, max_size=2))
)
FRAMES = st.one_of(
    EVENTS.map(json.dumps),
    EVENTS.map(lambda event: json.dumps(event)[:-3]),
    JSON.map(json.dumps),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.sampled_from(
        ["[" * 50_000, "9" * 5000, json.dumps({"type": "input.text", "text": "a. " * 20_000}), "x" * 300_000]
    ),
)
KNOWN = {"session.configured", "audio.start", "audio.done", "session.done", "error"}


@hypothesis.given(frames=st.lists(FRAMES, min_size=1, max_size=5))
@bounded(40)
def check_session(url: str, frames: list[str | bytes]) -> None:
    with connect(url, open_timeout=WAIT_S, close_timeout=WAIT_S) as socket:
        for frame in frames:
            socket.send(frame)
        socket.send(json.dumps({"type": "the last one"}))
        while True:  # until that is answered, which shows that the session lives
            message = socket.recv(timeout=WAIT_S)
            if isinstance(message, bytes):
                continue
            event = json.loads(message)
            assert event["type"] in KNOWN
            if event["type"] == "error":
                assert list(event["error"]) == ["message", "type", "param", "code"]
                assert event["error"]["code"] != "internal_error"
                assert len(event["error"]["message"]) < 2000
                if "the last one" in event["error"]["message"]:
                    break
        socket.send(json.dumps({"type": "session.close"}))
        with pytest.raises(ConnectionClosed, match="1000"):
            read_all(socket)


def read_all(socket: ClientConnection) -> None:
    while True:
        socket.recv(timeout=WAIT_S)


def test_no_message_makes_a_session_fail(base_url: str) -> None:
    check_session(base_url.replace("http", "ws") + f"{SPEECH}/stream")
    assert httpx.post(base_url + SPEECH, json=body(), timeout=WAIT_S).status_code == 200
