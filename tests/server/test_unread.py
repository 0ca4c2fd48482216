"""A client that never reads holds its place for `send_timeout_s`, not for ever; one that reads slowly is waited for."""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.frames import Frame, Opcode

from oscine.server.app import create_app
from oscine.server.state import ServerSettings, ServerState

from .conftest import SPEECH, body, make_registry, serving, wait_until

BUFFER = 4096
"""Bytes that the kernel is asked to hold at each end, so that a few seconds of audio fill everything."""
BUFFERED = 48_000
"""More bytes than the kernels hold; the server itself holds more on their way."""
TEXT = " ".join(f"Sentence number {n} is here, and it goes on for a little while longer." for n in range(4))
FIELDS: dict[str, Any] = {
    "input": TEXT,
    "seed": 7,
    "max_new_tokens": 60,
    "response_format": "pcm",
    "sample_rate": 48000,
}
MODES: tuple[dict[str, Any], ...] = ({}, {"stream_format": "sse"}, {"stream": False})
SETTINGS = ServerSettings(send_timeout_s=0.5, max_requests=1)


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    """A connection whose kernel holds little."""
    parts = urlsplit(url)
    with socket.socket() as plug:
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        plug.settimeout(60)
        plug.connect((parts.hostname, parts.port))
        yield plug


def post(plug: socket.socket, fields: dict[str, Any]) -> None:
    data = json.dumps(fields).encode()
    head = f"POST {SPEECH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(data)}\r\n\r\n"
    plug.sendall(head.encode() + data)


def upgrade(plug: socket.socket, *messages: dict[str, Any]) -> None:
    """Opens a session and says everything at once."""
    key = base64.b64encode(os.urandom(16)).decode()
    head = f"GET {SPEECH}/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    plug.sendall(f"{head}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += plug.recv(1)
    assert answer.startswith(b"HTTP/1.1 101")
    for message in messages:
        plug.sendall(Frame(Opcode.TEXT, json.dumps(message).encode()).serialize(mask=True))


def rest_of(plug: socket.socket) -> bytes:
    """What there is still to read of a connection that is then closed, one way or the other."""
    data = b""
    with suppress(ConnectionResetError):
        while part := plug.recv(1 << 16):
            data += part
    return data


def outcomes(state: ServerState, endpoint: str = SPEECH) -> dict[str, int]:
    return {outcome: n for (path, outcome), n in state.metrics._requests.items() if path == endpoint}


def free(state: ServerState) -> bool:
    stats = state.models.stats()
    return not (state.active or stats.running or stats.waiting or stats.memory_reserved)


def test_a_client_that_never_reads_loses_its_place(voices_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "oscine.server.gate")
    app = create_app(make_registry(voices_dir), SETTINGS)
    state: ServerState = app.state.server
    with serving(app, send_buffer=BUFFER) as url:
        for number, fields in enumerate(MODES, 1):
            with connected(url) as plug:
                post(plug, body(**FIELDS, **fields))
                wait_until(lambda number=number: outcomes(state) == {"cancelled": number})
                wait_until(lambda: free(state))
                rest = rest_of(plug)
                assert len(rest) < BUFFERED
                assert not rest.endswith(b"\r\n0\r\n\r\n")
        with connected(url) as other:  # the only place is free
            post(other, body(response_format="pcm"))
            assert other.recv(15) == b"HTTP/1.1 200 OK"
    unread = [line for line in caplog.text.splitlines() if "unread=True" in line]
    assert len(unread) == len(MODES)
    assert all("outcome=cancelled" in line for line in unread)


def test_any_server_of_the_app_frees_the_place(voices_dir: Path) -> None:
    """One that cannot end a connection at once keeps what is on its way for whoever may still read it."""
    app = create_app(make_registry(voices_dir), SETTINGS)
    state: ServerState = app.state.server
    with serving(app, send_buffer=BUFFER, http="auto", ws="auto") as url, connected(url) as plug:
        post(plug, body(**FIELDS))
        wait_until(lambda: outcomes(state) == {"cancelled": 1})
        wait_until(lambda: free(state))
        assert len(rest_of(plug)) > BUFFERED


def test_a_session_whose_client_never_reads_ends(voices_dir: Path) -> None:
    app = create_app(make_registry(voices_dir), SETTINGS)
    state: ServerState = app.state.server
    config = {"type": "session.config", **{name: value for name, value in FIELDS.items() if name != "input"}}
    with serving(app, send_buffer=BUFFER) as url, connected(url) as plug:
        upgrade(plug, config, {"type": "input.text", "text": TEXT}, {"type": "input.done"})
        wait_until(lambda: state.active)
        wait_until(lambda: free(state))
        assert outcomes(state, f"{SPEECH}/stream")["cancelled"] == 1
        assert len(rest_of(plug)) < BUFFERED


def test_a_client_that_reads_slowly_gets_everything(voices_dir: Path) -> None:
    """What it takes in all may take longer than the limit: that is for each part that is sent."""
    settings = ServerSettings(send_timeout_s=5)
    app = create_app(make_registry(voices_dir), settings)
    state: ServerState = app.state.server
    with serving(app, send_buffer=BUFFER) as url, connected(url) as plug:
        post(plug, body(**FIELDS | {"input": f"{TEXT} {TEXT}"}))
        data, size, began = b"", 0, time.monotonic()
        while part := plug.recv(4096):
            data, size = data[-10:] + part, size + len(part)
            if data.endswith(b"\r\n0\r\n\r\n"):
                break
            time.sleep(0.05)
        assert part, "the connection ended before the stream"
        assert time.monotonic() - began > settings.send_timeout_s
        assert size > BUFFERED
        wait_until(lambda: outcomes(state) == {"ok": 1})
