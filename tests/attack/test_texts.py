"""Texts and JSON that cost more than they are long: no request keeps the others waiting, or fills the memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.server.conftest import MODEL, SPEECH, body

from .harness import Server, server_process

LENGTH = 96_000
FOR_A_TEXT = 64 << 20
"""What planning a text of that length, and speaking some of it, may take."""
FOR_A_BODY = 4 * (32 << 20)
"""A body as large as may be, copied a few times on its way."""
WAIT_S = 100.0
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server_process(tmp_path_factory.mktemp("texts")) as server:
        assert httpx.post(server.url + SPEECH, json=body(), timeout=WAIT_S).status_code == 200
        yield server


def begin(server: Server, text: str) -> tuple[int, str]:
    """Status and beginning of an answer; if it is audio, the client leaves after the first of it."""
    fields = body(input=text, response_format="pcm")
    with httpx.stream("POST", server.url + SPEECH, json=fields, timeout=WAIT_S) as response:
        if response.status_code != 200:
            return response.status_code, response.read().decode()[:200]
        assert next(response.iter_bytes(), b"")
        return 200, ""


@pytest.mark.parametrize(
    "unit",
    [
        "<!--",
        "<script>",
        " _a",
        "[a](b \"c' ",
        "[^",
        " **a",
        "1 a.",
        "a-",
        "Dr. ",
        "a.b.",
        "a@",
        "'d",
        ". ",
        "\u0301 ",
        "你",
    ],
)
def test_a_text_of_one_thing_repeated_is_planned_beside_the_others(server: Server, unit: str) -> None:
    with server.watched() as watch:
        status, words = begin(server, (unit * LENGTH)[:LENGTH])
    print(f"\n{unit!r}: {status} {words} {watch}")
    assert status in (200, 400), words
    assert not watch.failures
    assert watch.memory_growth < FOR_A_TEXT


def test_a_text_in_many_small_messages_is_cut_beside_the_others(server: Server) -> None:
    with server.watched() as watch, connect(server.url.replace("http", "ws") + f"{SPEECH}/stream") as socket:
        socket.send(json.dumps({"type": "session.config", "max_new_tokens": 2, "response_format": "pcm"}))
        assert json.loads(socket.recv(WAIT_S))["type"] == "session.configured"
        for _ in range(5000):
            socket.send('{"type": "input.text", "text": "... "}')
        socket.send('{"type": "session.close"}')
        assert closing_code(socket) == 1000
    print(f"\nmessages: {watch}")
    assert not watch.failures
    assert watch.memory_growth < FOR_A_TEXT


def closing_code(socket: ClientConnection) -> int:
    """What a session is closed with, whatever is said before."""
    try:
        while True:
            socket.recv(WAIT_S)
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd else 1006


def many(count: int, entry: str) -> str:
    return ", ".join(entry.replace("#", str(number)) for number in range(count))


BODIES: dict[str, tuple[str, str, int]] = {
    "100,000 unknown fields": (SPEECH, '{"model": "tts-1", ' + many(100_000, '"f#": 0') + "}", 400),
    "2 million unknown fields": (SPEECH, '{"model": "tts-1", ' + many(2_000_000, '"f#": 0') + "}", 400),
    "2 million items": (
        f"{SPEECH}/batch",
        '{"model": "tts-1", "items": [' + many(2_000_000, '{"input":"a"}') + "]}",
        400,
    ),
    "metadata": (SPEECH, '{"model": "tts-1", "metadata": {' + many(1_500_000, '"f#": 0') + "}}", 400),
    "fields of a task": ("/v1/audio/edits", '{"model": "tts-1", ' + many(1_500_000, '"f#": 0') + "}", 400),
    "brackets": (SPEECH, '{"input": ' + "[" * 30_000_000, 400),
    "white space": (SPEECH, '{"input": ' + " " * 30_000_000 + '"a"}', 413),
    "digits": (SPEECH, '{"seed": ' + "9" * 30_000_000 + "}", 413),
    "a text": (SPEECH, '{"input": "' + "a" * 30_000_000 + '"}', 400),
    "escapes": (SPEECH, '{"input": "' + '\\"' * 15_000_000 + '"}', 400),
    "quotes": (SPEECH, '"' * 30_000_000, 400),
    "colons": (SPEECH, ":" * 30_000_000, 400),
    "a name": (SPEECH, '{"' + "a" * 30_000_000 + '": 1}', 400),
    "messages": ("/v1/chat/completions", '{"model": "tts-1", "messages": [' + many(2_000_000, "{}") + "]}", 400),
}
BODIES["an escaped recording"] = (
    SPEECH,
    json.dumps(body(ref_text="a"))[:-1] + ', "ref_audio": "' + "AAA\\u002f" * 3_000_000 + '"}',
    422,
)


@pytest.mark.parametrize(("path", "content", "status"), BODIES.values(), ids=BODIES)
def test_a_body_of_many_things_is_refused_beside_the_others(
    server: Server, path: str, content: str, status: int
) -> None:
    with server.watched() as watch:
        response = httpx.post(server.url + path, content=content.encode(), headers=JSON, timeout=WAIT_S)
    print(f"\n{len(content)} bytes: {response.status_code} {response.text[:150]} {watch}")
    assert response.status_code == status, response.text[:300]
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert not watch.failures
    assert watch.memory_growth < FOR_A_BODY


def test_many_such_bodies_at_once_are_refused_beside_the_others(server: Server) -> None:
    content = BODIES["100,000 unknown fields"][1].encode()
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(httpx.post(server.url + SPEECH, content=content, headers=JSON, timeout=WAIT_S).status_code)

    threads = [threading.Thread(target=ask) for _ in range(32)]
    with server.watched() as watch:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(f"\n32 at once: {watch}")
    assert statuses == [400] * 32
    assert not watch.failures
    assert watch.memory_growth < FOR_A_BODY


@pytest.mark.parametrize(
    "message",
    [
        '{"type": "session.config", ' + many(1_500_000, '"f#": 0') + "}",
        '{"type": "input.text", "text": "' + "a" * 30_000_000 + '"}',
        '{"type": "input.text", "text": ' + "[" * 30_000_000,
    ],
    ids=["fields", "text", "brackets"],
)
def test_a_message_of_many_things_is_refused_beside_the_others(server: Server, message: str) -> None:
    def hear(socket: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(socket.recv(WAIT_S))
        return answer

    with server.watched() as watch, connect(server.url.replace("http", "ws") + f"{SPEECH}/stream") as socket:
        socket.send(json.dumps({"type": "session.config", "model": MODEL}))
        assert hear(socket)["type"] == "session.configured"
        socket.send(message)
        answer = hear(socket)
        assert answer["error"]["code"] in ("invalid_request", "input_too_long")
        socket.send('{"type": "input.done"}')
        assert hear(socket)["type"] == "session.done"
    print(f"\n{answer['error']['message'][:100]}: {watch}")
    assert not watch.failures
    assert watch.memory_growth < FOR_A_BODY
