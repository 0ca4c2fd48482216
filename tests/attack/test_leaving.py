"""A client that leaves is noticed at once, whatever is being done for it; a server that stops breaks off cleanly."""

from __future__ import annotations

import io
import json
import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile as sf

from tests.server.conftest import AUDEX, SPEECH, body, wait_until

from .harness import Server, server_process

LONG = " ".join(f"Sentence {n} costs $12.50, and Dr. Smith said 3/4 of it on 1999-01-02." for n in range(1250))
TRANSCRIPTIONS = "/v1/audio/transcriptions"


def active(server: Server) -> int:
    found = re.search(r"^oscine_requests_active (\d+)$", httpx.get(f"{server.url}/metrics", timeout=60).text, re.M)
    assert found is not None
    return int(found[1])


def leave_once_begun(server: Server, request: bytes) -> str:
    """The log line of a request whose client leaves as soon as it holds a place."""
    with server.connect() as plug:
        plug.sendall(request)
        wait_until(lambda: active(server) == 1)
    wait_until(lambda: active(server) == 0)
    wait_until(lambda: "outcome=cancelled" in server.log_text())
    (line,) = [line for line in server.log_text().splitlines() if "outcome=cancelled" in line]
    return line


def read_on(plug: socket.socket) -> None:
    """Reads until the server closes the connection."""
    with suppress(OSError):
        while plug.recv(1 << 16):
            pass


def as_request(path: str, kind: str, data: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def noise(seconds: int) -> bytes:
    """A recording that is small to send and long to decode."""
    out, rng = io.BytesIO(), np.random.default_rng(0)
    with sf.SoundFile(out, "w", 48000, 1, format="OGG", subtype="VORBIS") as file:
        for _ in range(seconds):
            file.write(0.1 * rng.standard_normal(48000).astype(np.float32))
    return out.getvalue()


def test_while_its_text_is_planned(tmp_path: Path) -> None:
    with server_process(tmp_path, "--max-requests", "1") as server, server.watched() as watch:
        data = json.dumps(body(model="tts-1", input=LONG)).encode()
        line = leave_once_begun(server, as_request(SPEECH, "application/json", data))
        assert "seed=" not in line, "the speech had begun: planning had come to its end"
        assert httpx.post(server.url + SPEECH, json=body(model="tts-1"), timeout=60).status_code == 200
    assert not watch.failures


def test_while_its_recording_is_decoded(tmp_path: Path) -> None:
    if not AUDEX.is_dir():
        pytest.skip(f"no miniature Audex checkpoint in {AUDEX.parent}")
    part = 'Content-Disposition: form-data; name="{}"\r\n\r\n'
    form = f'--x\r\n{part.format("model")}tts-1\r\n--x\r\n{part.format("file")[:-4]}; filename="a"\r\n\r\n'.encode()
    form += noise(900) + b"\r\n--x--\r\n"
    with server_process(tmp_path, "--max-requests", "1", models=(str(AUDEX),)) as server, server.watched() as watch:
        line = leave_once_begun(server, as_request(TRANSCRIPTIONS, "multipart/form-data; boundary=x", form))
        assert "seed=" not in line, "the answer had begun: decoding had come to its end"
    assert not watch.failures


def test_requests_that_a_stopping_server_breaks_off_are_counted_as_such(tmp_path: Path) -> None:
    endless: dict[str, Any] = {"input": LONG[:5000], "max_new_tokens": 400, "response_format": "pcm"}
    with server_process(tmp_path, "--shutdown-s", "1") as server, ExitStack() as stack:
        for number in range(3):  # one that has its answer under way, and two that have not
            plug = stack.enter_context(server.connect())
            fields = body(model="tts-1") | endless | ({"stream": False} if number else {})
            plug.sendall(as_request(SPEECH, "application/json", json.dumps(fields).encode()))
            assert number or plug.recv(15) == b"HTTP/1.1 200 OK"
            stack.enter_context(ThreadPoolExecutor(1)).submit(read_on, plug)
        wait_until(lambda: active(server) == 3)
        before = len(server.log_text().splitlines())
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        lines = server.log_text().splitlines()[before:]
    assert sum("outcome=cancelled" in line and "shutdown=True" in line for line in lines) == 3, lines
    assert not any("outcome=ok" in line or "Traceback" in line for line in lines), lines
    assert len(lines) < 10
