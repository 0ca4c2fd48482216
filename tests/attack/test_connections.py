"""Connections by the hundred: /health answers, memory and log stay small, and everything is given back."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import ExitStack, suppress

import httpx
import pytest

from tests.server.conftest import SPEECH, body, wait_until

from .harness import Server, Watch, server_process

MIB = 1 << 20
SLACK = 48 * MIB
"""What a process of this kind grows by anyhow while it is busy."""
QUIET = 20_000
"""Bytes of log that nobody minds."""


def all_closed(plugs: list[socket.socket]) -> bool:
    """Whether the server has closed every one of them; reads what there is."""
    for plug in select.select(plugs, [], [], 0)[0]:
        with suppress(ConnectionError):
            if plug.recv(1 << 16):
                continue
        plugs.remove(plug)
        plug.close()
    return not plugs


def harmless(watch: Watch, memory: int) -> None:
    print(watch)
    assert watch.num_probes
    assert not watch.failures
    assert watch.memory_growth < memory + SLACK
    assert watch.log_growth < QUIET


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    limits = ("--max-requests", "8", "--receive-timeout-s", "3", "--max-body-mb", "8", "--max-held-mb", "16")
    with server_process(tmp_path_factory.mktemp("server"), *limits, max_files=256) as server:
        yield server


@pytest.mark.parametrize("begin", [b"", b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nX-Part: "])
def test_connections_that_send_nothing_or_half_a_header(server: Server, begin: bytes) -> None:
    files = server.num_files()
    with ExitStack() as stack, server.watched() as watch:
        plugs = []
        for _ in range(600):
            plug = stack.enter_context(server.connect())
            with suppress(ConnectionError):
                plug.sendall(begin)
            plugs.append(plug)
            assert server.num_files() < 256
        wait_until(lambda: all_closed(plugs))
    harmless(watch, 0)
    wait_until(lambda: server.num_files() <= files + 2)


def test_bodies_that_never_end_beside_requests_that_do(server: Server) -> None:
    head = f"POST {SPEECH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = f'{head}Content-Length: {8 * MIB}\r\n\r\n{{"ref_audio": "'.encode() + b"A" * (7 * MIB)
    with ExitStack() as stack, server.watched() as watch:
        plugs = [stack.enter_context(server.connect()) for _ in range(30)]

        def send(plug: socket.socket) -> None:
            with suppress(ConnectionError):
                plug.sendall(request)

        threads = [threading.Thread(target=send, args=(plug,)) for plug in plugs]
        for thread in threads:
            thread.start()
        assert httpx.post(server.url + SPEECH, json=body(model="tts-1"), timeout=60).status_code == 200
        for thread in threads:
            thread.join()
        wait_until(lambda: all_closed(plugs))
    harmless(watch, 16 * MIB)


def test_bodies_in_tiny_chunks_keep_nobody_waiting(server: Server) -> None:
    request = f"POST {SPEECH} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with server.watched() as watch, server.connect() as plug:
        plug.sendall(request + b"1\r\nA\r\n" * 300_000 + b"0\r\n\r\n")
        assert plug.recv(12) == b"HTTP/1.1 400"
    harmless(watch, 0)
