"""A model that cannot be loaded and an engine that has ended: told at once, logged, and the process ends if it must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.conftest import SPEECH, body, wait_until

from .harness import Server, server_process

FAULTS = ("SystemExit", "MemoryError")
ASK: dict[str, Any] = {"timeout": 60, "trust_env": False}


def faulty(place: str, fault: str) -> dict[str, Any]:
    return {"command": ("-m", "tests.attack.faulty", place, fault)}


def reason(server: Server) -> str:
    answer = httpx.get(f"{server.url}/ready", **ASK)
    assert answer.status_code == 503
    return str(answer.json()["error"]["message"])


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_breaks_off_a_load_is_told_and_the_server_answers_on(tmp_path: Path, fault: str) -> None:
    with server_process(tmp_path, **faulty("load", fault), wait_ready=False) as server:
        wait_until(lambda: fault in reason(server))
        with server.watched() as watch:
            for _ in range(3):
                refused = httpx.post(server.url + SPEECH, json=body(model="tts-1"), **ASK)
                assert refused.status_code == 500
                assert refused.json()["error"]["code"] == "load_failed"
                assert "on purpose" not in refused.text
        assert not watch.failures
        assert server.process.poll() is None
        assert server.log_text().count("ckpt_dense_a cannot be loaded") == 1
        assert f"{fault}: on purpose" in server.log_text()


@pytest.mark.parametrize("fault", FAULTS)
def test_an_engine_that_has_ended_ends_the_process_once_everybody_has_been_told(tmp_path: Path, fault: str) -> None:
    with server_process(tmp_path, **faulty("engine", fault)) as server:
        for _ in range(2):  # the one whose job it was, and one that comes later
            refused = httpx.post(server.url + SPEECH, json=body(model="tts-1"), **ASK)
            assert refused.status_code == 500
            assert refused.json()["error"]["code"] == "engine_failed"
        assert fault in reason(server)
        assert server.process.wait(60) == 1
        assert f"{fault}: on purpose" in server.log_text()
