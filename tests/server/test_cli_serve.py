"""`oscine serve` as a process: it answers, stops cleanly, and says what is wrong before it listens."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import httpx
import pytest

from oscine.cli.main import main

from .conftest import CHECKPOINT, SPEECH, body, decode, ready, wait_until


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "oscine", "serve", str(CHECKPOINT), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(
        [*command, "--voices-dir", str(tmp_path), "--threads", "1", "--max-requests", "4"],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def address(stderr: IO[str]) -> str:
    for line in stderr:
        if found := re.search(r"listening on (http://\S+)", line):
            return found.group(1)
    raise AssertionError("it never listened")


def test_it_serves_until_it_is_told_to_stop(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    url = address(process.stderr)
    wait_until(lambda: ready(url), 60)
    response = httpx.post(url + SPEECH, json=body(model="tts-1"), timeout=60)
    assert response.headers["content-type"] == "audio/mpeg"
    assert len(decode(response.content)[0])
    assert httpx.get(url).text.startswith("<!doctype html>")
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=30)
    assert process.returncode == 0, rest
    assert f"endpoint={SPEECH} status=200 outcome=ok" in rest
    assert "Traceback" not in rest


def test_health_answers_at_once_while_speech_is_made(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    url = address(process.stderr)
    wait_until(lambda: ready(url), 60)
    with httpx.Client(base_url=url, timeout=60) as client:
        # 50 ms, or what a machine that is busy with other things makes of it; a blocked event loop takes far longer.
        allowed = max(0.05, 2.5 * median_s(client))
    stop = threading.Event()

    def keep_busy() -> None:
        with httpx.Client(base_url=url, timeout=60) as client:
            while not stop.is_set():
                client.post(SPEECH, json=body(input="Some words, spoken again and again. " * 20, max_new_tokens=80))

    speaker = threading.Thread(target=keep_busy)
    speaker.start()
    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            wait_until(lambda: "oscine_running 0" not in client.get("/metrics").text)
            assert any(median_s(client) < allowed for _ in range(5))
    finally:
        stop.set()
        speaker.join(60)


def median_s(client: httpx.Client) -> float:
    times = []
    for _ in range(9):
        started = time.perf_counter()
        assert client.get("/health").json()["status"] == "ok"
        times.append(time.perf_counter() - started)
    return sorted(times)[len(times) // 2]


def test_an_address_in_use_is_an_error_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(CHECKPOINT), "--port", str(port), "--device", "cpu"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"oscine: error: cannot listen on 127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["no/such/folder"], "no/such/folder"),
        ([str(CHECKPOINT), str(CHECKPOINT)], "one name"),
        ([str(CHECKPOINT), "--max-requests", "0"], "--max-requests"),
        ([str(CHECKPOINT), "--model-memory", "0.0001"], "budget"),
        ([str(CHECKPOINT), "--api-key", "schlüssel"], "ASCII"),
    ],
)
def test_what_cannot_be_served_is_said_before_listening(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--offline", "--device", "cpu", *arguments]) == 2
    assert word in capsys.readouterr().err
