"""Sessions that send half a message, too many bytes, pings without end, or nothing; and what they count as."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.websockets import WebSocketDisconnect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect

from oscine.server.app import create_app
from oscine.server.inbox import Inbox
from oscine.server.state import ServerSettings, ServerState

from .conftest import SPEECH, body, make_registry, serving, wait_until
from .test_operations import ENDLESS
from .test_websocket import configure, hear, sentence, tell

SOON_S = 0.5
MUCH = 1 << 20
PINGS = 250_000


@contextmanager
def served(folder: Path, **settings: Any) -> Iterator[tuple[str, ServerState]]:
    app = create_app(make_registry(folder), ServerSettings(**settings))
    with serving(app) as url:
        yield url, app.state.server


def session(url: str) -> Any:
    return connect(url.replace("http", "ws") + f"{SPEECH}/stream", compression=None)


@contextmanager
def raw_session(url: str, headers: str = "") -> Iterator[socket.socket]:
    """A session whose frames are written by hand."""
    parts = urlsplit(url)
    key = base64.b64encode(os.urandom(16)).decode()
    head = f"GET {SPEECH}/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{headers}"
    with socket.create_connection((parts.hostname, parts.port), 60) as plug:
        plug.sendall(f"{head}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += plug.recv(1)
        assert answer.startswith(b"HTTP/1.1 101"), answer
        assert b"Sec-WebSocket-Extensions" not in answer
        yield plug


def closing_code(plug: socket.socket) -> int:
    """The code that the server closes the session with; other messages are passed over."""
    with plug.makefile("rb") as reader:
        while True:
            head = reader.read(2)
            opcode, length = head[0] & 15, head[1]
            if length >= 126:
                length = int.from_bytes(reader.read(2 if length == 126 else 8), "big")
            data = reader.read(length)
            if opcode == Opcode.CLOSE:
                return int.from_bytes(data[:2], "big")


def test_sessions_are_counted_apart_and_hold_no_place_for_requests(tmp_path: Path) -> None:
    with served(tmp_path, max_requests=1, max_sessions=3) as (url, state), ExitStack() as stack:
        for _ in range(3):
            configure(stack.enter_context(session(url)))
        assert (state.active, state.num_sessions) == (0, 3)
        assert httpx.post(url + SPEECH, json=body(), timeout=60).status_code == 200
        refused = stack.enter_context(session(url))
        assert hear(refused)["error"]["code"] == "queue_full"
        with pytest.raises(ConnectionClosed, match="1013"):
            refused.recv(timeout=60)
        stack.close()
        wait_until(lambda: state.num_sessions == 0)


def test_a_sentence_waits_for_a_place_and_the_session_does_not_lose_it(tmp_path: Path) -> None:
    with served(tmp_path, max_requests=1) as (url, state), session(url) as socket_:
        configure(socket_)
        with httpx.stream("POST", url + SPEECH, json=body(**ENDLESS), timeout=60) as response:
            chunks = response.iter_raw()  # held: an iterator that is dropped closes the connection
            next(chunks)
            tell(socket_, "input.text", text="Hello. ")
            tell(socket_, "input.done")
            tell(socket_, "input.text", text="Too ")
            wait_until(lambda: len(state._vacant._waiters) == 1)
            assert state.active == 1
        assert sentence(socket_)[2]["total_bytes"] > 0
        assert hear(socket_) == {"type": "session.done", "total_sentences": 1}
        wait_until(lambda: state.active == 0)


def test_a_session_that_waits_for_a_place_can_be_left(tmp_path: Path) -> None:
    with served(tmp_path, max_requests=1) as (url, state):
        with httpx.stream("POST", url + SPEECH, json=body(**ENDLESS), timeout=60) as response:
            chunks = response.iter_raw()  # held: an iterator that is dropped closes the connection
            next(chunks)
            with session(url) as socket_:
                configure(socket_)
                tell(socket_, "input.text", text="Hello. ")
                tell(socket_, "input.done")
                wait_until(lambda: len(state._vacant._waiters) == 1)
            wait_until(lambda: state.num_sessions == 0)
            assert not state._vacant._waiters
        wait_until(lambda: state.active == 0)


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ServerState]]:
    """A server that waits for little, and holds little."""
    settings = {"receive_timeout_s": SOON_S, "max_held_bytes": MUCH, "max_body_bytes": 2 * MUCH}
    with served(tmp_path_factory.mktemp("voices"), **settings) as found:
        yield found


def consume(messages: Iterator[Any]) -> None:
    for _ in messages:
        pass


def bytes_taken(plug: socket.socket, data: memoryview) -> int:
    """How many bytes of `data` the other side takes before it reads no more."""
    sent = 0
    with suppress(TimeoutError):
        while sent < len(data):
            sent += plug.send(data[sent:])
    return sent


def expect_end(socket_: ClientConnection, code: str) -> None:
    with pytest.raises(ConnectionClosed, match=code):
        consume(iter(lambda: socket_.recv(timeout=60), None))


def test_a_session_that_never_says_what_it_wants_ends(hurried: tuple[str, ServerState]) -> None:
    with session(hurried[0]) as socket_:
        expect_end(socket_, "1008")


def test_a_session_with_settings_may_be_silent_for_longer(hurried: tuple[str, ServerState]) -> None:
    with session(hurried[0]) as socket_:
        configure(socket_)
        with pytest.raises(TimeoutError):
            socket_.recv(timeout=3 * SOON_S)
        tell(socket_, "input.done")
        assert hear(socket_) == {"type": "session.done", "total_sentences": 0}


def test_half_a_message_is_not_waited_for(hurried: tuple[str, ServerState]) -> None:
    url, state = hurried
    config = json.dumps({"type": "session.config"}).encode()
    with raw_session(url) as plug:
        plug.sendall(Frame(Opcode.TEXT, config).serialize(mask=True))  # so that it is not for saying nothing
        plug.sendall(Frame(Opcode.TEXT, b"a" * MUCH).serialize(mask=True)[: MUCH // 2])
        wait_until(lambda: state.held.used > 0)
        assert closing_code(plug) == 1008
    wait_until(lambda: state.held.used == 0)


@pytest.mark.parametrize("empty", [False, True], ids=["large", "empty"])
def test_messages_have_room_together_with_bodies(hurried: tuple[str, ServerState], empty: bool) -> None:
    """A message in parts may never end, and its parts may be empty: they take room all the same."""
    url, state = hurried
    parts = [Frame(Opcode.TEXT, b"a" * (0 if empty else MUCH), fin=False), Frame(Opcode.CONT, b"a" * MUCH, fin=False)]
    if empty:
        parts[1:] = [Frame(Opcode.CONT, b"", fin=False)] * (MUCH // 256)
    with raw_session(url) as plug:
        plug.sendall(b"".join(part.serialize(mask=True) for part in parts))
        assert closing_code(plug) in (1009, 1013)
    wait_until(lambda: state.held.used == 0)


def test_a_message_gives_its_room_back_once_it_has_been_handled(hurried: tuple[str, ServerState]) -> None:
    url, state = hurried
    with session(url) as socket_:
        for _ in range(4):
            socket_.send("a" * (MUCH // 2))
            assert hear(socket_)["error"]["code"] == "invalid_request"
        wait_until(lambda: state.held.used == 0)


def test_compression_is_not_offered(hurried: tuple[str, ServerState]) -> None:
    with raw_session(hurried[0], "Sec-WebSocket-Extensions: permessage-deflate\r\n"):
        pass  # raw_session looks at the answer


def test_pongs_that_nobody_reads_do_not_pile_up(tmp_path: Path) -> None:
    """The server reads on only when its answers are read."""
    ping = Frame(Opcode.PING, b"a" * 125).serialize(mask=True)
    with served(tmp_path) as (url, _), raw_session(url) as plug:
        pings = memoryview(ping * PINGS)
        plug.settimeout(1.0)
        sent = bytes_taken(plug, pings)
        assert sent < len(pings)
        with ThreadPoolExecutor(1) as pool:
            plug.settimeout(60)
            pool.submit(plug.sendall, pings[sent:])
            left = PINGS * (len(ping) - 4)
            while left:  # once they are read, everything goes on
                left -= len(plug.recv(min(left, 1 << 16)))


def test_a_client_that_leaves_is_noticed_while_its_message_is_handled() -> None:
    async def left_meanwhile() -> bool:
        messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        inbox = Inbox(SimpleNamespace(receive=messages.get))  # type: ignore[arg-type]
        listening = asyncio.create_task(inbox.listen())
        messages.put_nowait({"type": "websocket.receive", "text": "{}"})
        assert await inbox.next(lambda: 60.0) == "{}"
        messages.put_nowait({"type": "websocket.disconnect", "code": 1001})  # and nobody asks for another message
        with pytest.raises(WebSocketDisconnect):
            await listening
        return inbox.left

    assert asyncio.run(left_meanwhile())
