"""Connections that send half of something, too slowly, too much, or nothing at all, on a real server."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from oscine.server.app import create_app
from oscine.server.budget import SMALL
from oscine.server.connections import SPARE_CONNECTIONS
from oscine.server.http_connection import AHEAD_BYTES
from oscine.server.run import affordable_connections
from oscine.server.state import ServerSettings, ServerState

from .conftest import SPEECH, body, make_registry, serving, wait_until
from .test_operations import ENDLESS

SOON_S = 0.3
"""How long a client may take where the tests wait for the end of it."""
MUCH = 1 << 20
HEAD = "Host: localhost\r\n"


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), 60) as plug:
        yield plug


def post(path: str, fields: dict[str, Any], *, sent: int | None = None, more: str = "") -> bytes:
    """A request as bytes, its body cut to the first `sent`; `more` are further headers."""
    data = json.dumps(fields).encode()
    head = f"POST {path} HTTP/1.1\r\n{HEAD}{more}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data[:sent]


def padded(num_bytes: int) -> dict[str, Any]:
    """A request that is refused for its reference, once all its bytes have arrived."""
    return body(ref_audio="A" * num_bytes)


def answers(plug: socket.socket) -> list[bytes]:
    """The status lines of all answers until the server closes the connection."""
    data = b""
    with suppress(ConnectionResetError):
        while part := plug.recv(1 << 16):
            data += part
    return re.findall(rb"HTTP/1\.1 [^\r]+", data)


def whole_answer(plug: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and JSON body of the one answer on a connection that the server closes."""
    data = b""
    with suppress(ConnectionResetError):
        while part := plug.recv(1 << 16):
            data += part
    head, _, rest = data.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(rest)


@contextmanager
def served(folder: Path, *, max_connections: int = 512, **settings: Any) -> Iterator[tuple[str, ServerState]]:
    app = create_app(make_registry(folder), ServerSettings(**settings))
    with serving(app, max_connections=max_connections) as url:
        yield url, app.state.server


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ServerState]]:
    """A server that waits for little."""
    folder = tmp_path_factory.mktemp("voices")
    with served(folder, receive_timeout_s=SOON_S, max_held_bytes=4 * MUCH) as found:
        yield found


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ServerState]]:
    """A server that waits as usual, with one place for requests."""
    with served(tmp_path_factory.mktemp("voices"), max_requests=1) as found:
        yield found


# Too slow


def test_a_header_that_never_ends_is_answered_and_the_connection_closed(hurried: tuple[str, ServerState]) -> None:
    with connected(hurried[0]) as plug:
        plug.sendall(b"POST /v1/audio/speech HTTP/1.1\r\nX-Part: ")
        status, told = whole_answer(plug)
    assert status == 408
    assert told["error"]["code"] == "request_timeout"


def test_a_connection_over_which_nothing_comes_is_closed(hurried: tuple[str, ServerState]) -> None:
    with connected(hurried[0]) as plug:
        assert plug.recv(1) == b""


def drip(plug: socket.socket, data: bytes) -> None:
    """Sends byte by byte until the server has had enough; fails if it takes them all."""
    with suppress(ConnectionError):
        for byte in data:
            plug.sendall(bytes([byte]))
            time.sleep(SOON_S / 10)
            plug.settimeout(0.001)
            with suppress(TimeoutError):
                if plug.recv(1, socket.MSG_PEEK) == b"":
                    break
            plug.settimeout(60)
        else:
            raise AssertionError("the server took everything")
    plug.settimeout(60)


def test_neither_a_header_nor_what_follows_an_answer_may_drip_for_ever(hurried: tuple[str, ServerState]) -> None:
    with connected(hurried[0]) as plug:
        drip(plug, b"GET /health HTTP/1.1\r\nX-Part: " + b"a" * 500)
    with connected(hurried[0]) as plug:
        plug.sendall(post("/no/such/page", padded(MUCH), sent=10))
        drip(plug, b"a" * 500)


@pytest.mark.parametrize("num_bytes", [100, 200_000])
def test_a_body_that_stops_is_told_so(hurried: tuple[str, ServerState], num_bytes: int) -> None:
    with connected(hurried[0]) as plug:
        plug.sendall(post(SPEECH, padded(MUCH), sent=num_bytes))
        status, told = whole_answer(plug)
    assert status == 408
    assert told["error"]["code"] == "request_timeout"
    assert hurried[1].held.used == 0


def test_a_body_that_keeps_its_pace_is_waited_for(hurried: tuple[str, ServerState]) -> None:
    request = post(SPEECH, padded(8 * SMALL))
    with connected(hurried[0]) as plug:
        began = time.monotonic()
        for begin in range(0, len(request), SMALL):
            plug.sendall(request[begin : begin + SMALL])
            time.sleep(SOON_S / 3)
        assert plug.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 422")  # for what is in it
        assert time.monotonic() - began > SOON_S


# Too many


def test_the_oldest_that_wait_make_room(tmp_path: Path) -> None:
    with served(tmp_path, max_connections=4) as (url, _), ExitStack() as stack:
        plugs = [stack.enter_context(connected(url)) for _ in range(4)]
        for plug in plugs:
            plug.sendall(b"POST / HTTP/1.1\r\nX-Part: ")
            time.sleep(0.01)
        assert httpx.get(f"{url}/health", timeout=60).status_code == 200
        assert answers(plugs[0]) == []
        for plug in plugs[1:]:
            plug.sendall(f"a\r\n{HEAD}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
        assert [answers(plug) for plug in plugs[1:]] == [[b"HTTP/1.1 405 Method Not Allowed"]] * 3


def test_what_is_being_served_stays_and_the_spare_ones_are_for_those_who_look_after_it(tmp_path: Path) -> None:
    with served(tmp_path, max_connections=2) as (url, state), ExitStack() as stack:
        served_ones = [stack.enter_context(connected(url)) for _ in range(2)]
        for plug, fields in zip(served_ones, ({}, {"stream": False}), strict=True):
            plug.sendall(post(SPEECH, body(**ENDLESS, **fields)))
        assert served_ones[0].recv(15) == b"HTTP/1.1 200 OK"
        wait_until(lambda: state.active == 2)
        for _ in range(2 * SPARE_CONNECTIONS):
            stack.enter_context(connected(url)).sendall(b"GET")
        for path in ("/health", "/ready", "/metrics"):
            answer = httpx.get(url + path, timeout=60)
            assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        refused = httpx.post(url + SPEECH, json=body(), timeout=60)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "too_many_connections"
        assert int(refused.headers["retry-after"]) >= 1
        assert state.active == 2
        assert served_ones[0].recv(1)


def test_connections_leave_files_for_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert affordable_connections(100, 8) == 100
    with pytest.raises(Exception, match="--max-connections"):
        affordable_connections(files, 8)
    with pytest.raises(Exception, match="ulimit"):
        affordable_connections(None, files)


# Too much


def test_requests_sent_ahead_are_answered_in_turn(patient: tuple[str, ServerState]) -> None:
    with connected(patient[0]) as plug:
        plug.sendall(f"GET /health HTTP/1.1\r\n{HEAD}\r\n".encode() * 3)
        plug.sendall(f"GET /ready HTTP/1.1\r\n{HEAD}Connection: close\r\n\r\n".encode())
        assert answers(plug) == [b"HTTP/1.1 200 OK"] * 4


@pytest.mark.parametrize("ahead", [b"GET /health HTTP/1.1\r\n", b"x" * 3 * AHEAD_BYTES], ids=["little", "much"])
def test_a_client_that_sends_ahead_is_seen_to_leave(patient: tuple[str, ServerState], ahead: bytes) -> None:
    """Nothing more was once read of a client while it was being served, its leaving neither."""
    url, state = patient
    with connected(url) as plug:
        plug.sendall(post(SPEECH, body(**ENDLESS, stream=False)))
        wait_until(lambda: state.active == 1)
        with suppress(ConnectionError):
            plug.sendall(ahead)
    wait_until(lambda: state.active == 0)


@pytest.mark.parametrize("rubbish", [b"nonsense\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n\r\n"])
def test_what_is_no_request_has_an_answer_like_any_other(patient: tuple[str, ServerState], rubbish: bytes) -> None:
    with connected(patient[0]) as plug:
        plug.sendall(rubbish + b"\r\n" * 4)
        status, told = whole_answer(plug)
    assert status == 400
    assert set(told["error"]) == {"message", "type", "param", "code"}


def test_a_header_has_its_limit(patient: tuple[str, ServerState]) -> None:
    with connected(patient[0]) as plug, suppress(ConnectionError):
        plug.sendall(f"GET /health HTTP/1.1\r\n{HEAD}X-Long: {'a' * MUCH}".encode())
        assert answers(plug) in ([b"HTTP/1.1 400 Bad Request"], [])


def test_a_body_that_is_no_body_ends_its_request(
    patient: tuple[str, ServerState], caplog: pytest.LogCaptureFixture
) -> None:
    url, state = patient
    with connected(url) as plug:
        plug.sendall(f"POST {SPEECH} HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\nnonsense\r\n".encode())
        assert answers(plug) in ([b"HTTP/1.1 400 Bad Request"], [])
    assert "Traceback" not in caplog.text
    wait_until(lambda: state.held.used == 0)


def test_bodies_have_one_budget_and_small_ones_are_free(tmp_path: Path) -> None:
    with served(tmp_path, max_held_bytes=MUCH, max_body_bytes=2 * MUCH) as (url, state), ExitStack() as stack:
        for _ in range(3):
            plug = stack.enter_context(connected(url))
            plug.sendall(post(SPEECH, padded(MUCH), sent=MUCH // 3 + SMALL))
        wait_until(lambda: state.held.used == 3 * (MUCH // 3))
        refused = httpx.post(url + SPEECH, json=padded(MUCH), timeout=60)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "queue_full"
        assert httpx.post(url + SPEECH, json=body(input="Hi. " * 1000, max_new_tokens=1), timeout=60).status_code == 200
        stack.close()
        wait_until(lambda: state.held.used == 0)
        assert httpx.post(url + SPEECH, json=padded(MUCH // 2), timeout=60).status_code == 422


def test_an_old_body_makes_room_for_a_new_one(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_held_bytes": MUCH, "max_body_bytes": 2 * MUCH, "receive_timeout_s": SOON_S}
    with served(tmp_path, **settings) as (url, state), connected(url) as plug:
        request = post(SPEECH, padded(MUCH))
        plug.sendall(request[: MUCH // 2])
        began = time.monotonic()
        for begin in range(MUCH // 2, MUCH // 2 + 8, 1):  # quick enough at first
            plug.sendall(request[begin : begin + 1])
            time.sleep(SOON_S / 4)
        assert time.monotonic() - began > SOON_S
        assert state.held.used > MUCH // 3
        assert httpx.post(url + SPEECH, json=padded(MUCH * 3 // 4), timeout=60).status_code == 422
        assert whole_answer(plug)[0] == 429


def test_a_large_body_is_not_asked_for_when_there_is_no_place(patient: tuple[str, ServerState]) -> None:
    url, state = patient
    with connected(url) as first, connected(url) as second:
        first.sendall(post(SPEECH, body(**ENDLESS)))
        assert first.recv(15) == b"HTTP/1.1 200 OK"
        second.sendall(post(SPEECH, padded(MUCH), sent=0, more="Expect: 100-continue\r\nConnection: close\r\n"))
        status, told = whole_answer(second)  # and no 100 Continue before it
    assert status == 429
    assert told["error"]["code"] == "queue_full"
    wait_until(lambda: state.active == 0)


def test_what_was_sent_in_vain_is_read_so_that_the_answer_is_seen(patient: tuple[str, ServerState]) -> None:
    headers = {"Origin": "http://evil.example"}
    assert httpx.post(patient[0] + SPEECH, json=padded(8 * MUCH), headers=headers, timeout=60).status_code == 403
    assert patient[1].held.used == 0
