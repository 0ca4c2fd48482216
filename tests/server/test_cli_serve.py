"""`oscine serve` as a process: it answers, stops cleanly, and says what is wrong before it listens."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import httpx
import pytest

from oscine.cli.main import build_parser, main
from oscine.cli.serve import _api_key

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
    wait_until(lambda: ready(url), 100)
    response = httpx.post(url + SPEECH, json=body(model="tts-1"), timeout=60)
    assert response.headers["content-type"] == "audio/mpeg"
    assert len(decode(response.content)[0])
    assert httpx.get(url).text.startswith("<!doctype html>")
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=30)
    assert process.returncode == 0, rest
    assert f"endpoint={SPEECH} status=200 outcome=ok" in rest
    assert "Traceback" not in rest


def test_an_address_in_use_is_an_error_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(CHECKPOINT), "--port", str(port), "--device", "cpu"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"oscine: error: cannot listen on 127.0.0.1:{port}")


def test_the_blanks_around_a_key_are_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header loses them, so that such a key could never be sent."""
    parse = build_parser().parse_args
    monkeypatch.delenv("OSCINE_API_KEY", raising=False)
    assert _api_key(parse(["serve"])) is None
    assert _api_key(parse(["serve", "--api-key", " s3 cret\n"])) == "s3 cret"
    monkeypatch.setenv("OSCINE_API_KEY", "fr0m-file\n")
    assert _api_key(parse(["serve"])) == "fr0m-file"
    monkeypatch.setenv("OSCINE_API_KEY", "")  # as compose.yaml leaves it
    assert _api_key(parse(["serve"])) is None


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["no/such/folder"], "no/such/folder"),
        ([str(CHECKPOINT), str(CHECKPOINT)], "one name"),
        ([str(CHECKPOINT), "--max-requests", "0"], "--max-requests"),
        ([str(CHECKPOINT), "--model-memory", "0.0001"], "budget"),
        ([str(CHECKPOINT), "--api-key", "schlüssel"], "ASCII"),
        ([str(CHECKPOINT), "--api-key", " "], "blank"),
        ([str(CHECKPOINT), "--api-key", ""], "blank"),
        ([str(CHECKPOINT), "--api-key", "two\nlines"], "printable"),
        ([str(CHECKPOINT), "--allow-path", "no/such/folder"], "--allow-path"),
        ([str(CHECKPOINT), "--allow-host", "http://nas.lan"], "no host"),
        ([str(CHECKPOINT), "--allow-origin", "*"], "no origin"),
        ([str(CHECKPOINT), "--max-sessions", "0"], "--max-sessions"),
        ([str(CHECKPOINT), "--max-connections", "0"], "--max-connections"),
        ([str(CHECKPOINT), "--max-connections", "100000000"], "ulimit"),
        ([str(CHECKPOINT), "--max-held-mb", "5"], "--max-body-mb"),
    ],
)
def test_what_cannot_be_served_is_said_before_listening(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--offline", "--device", "cpu", *arguments]) == 2
    assert word in capsys.readouterr().err
