"""Thousands of short requests, a third of them broken off: nothing leaks, nothing is mixed up."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

import oscine
from oscine.server.metrics import resident_bytes
from oscine.server.state import ServerState

from .conftest import MODEL, SPEECH, wait_until

TEXTS = [f"Text number {number}." for number in range(6)]
FIELDS = {"model": MODEL, "max_new_tokens": 10, "response_format": "pcm", "sample_rate": 44100}
GROWTH = 1.15
"""How much resident memory may grow from the end of the first quarter on."""


@pytest.fixture(scope="module")
def expected(direct: oscine.Model) -> list[bytes]:
    """What each text must sound like, with its number as the seed."""
    audios = [direct.generate(text, seed=n, max_new_tokens=10).audio for n, text in enumerate(TEXTS)]
    return [np.clip(np.rint(audio * 32768), -32768, 32767).astype("<i2").tobytes() for audio in audios]


def storm(client: httpx.Client, expected: list[bytes], count: int, seed: int) -> dict[str, int]:
    """`count` requests by eight clients; each is checked, or left at a random point."""
    tally = {"whole": 0, "left": 0}
    lock = threading.Lock()

    def one(number: int) -> None:
        draw = random.Random(f"{seed}-{number}")
        which = draw.randrange(len(TEXTS))
        body: dict[str, Any] = FIELDS | {"input": TEXTS[which], "seed": which}
        leaves = draw.random() < 1 / 3
        got = b""
        with client.stream("POST", SPEECH, json=body) as response:
            assert response.status_code == 200
            keep = draw.randrange(len(expected[which])) if leaves else None
            for data in response.iter_raw():
                got += data
                if keep is not None and len(got) >= keep:
                    break
        if leaves:
            assert expected[which].startswith(got)
        else:
            assert got == expected[which], f"request {number} got other audio"
        with lock:
            tally["left" if leaves else "whole"] += 1

    with ThreadPoolExecutor(8) as pool:
        for outcome in [pool.submit(one, number) for number in range(count)]:
            outcome.result()
    return tally


def test_a_short_storm(client: httpx.Client, expected: list[bytes], app: Any) -> None:
    tally = storm(client, expected, 24, 1)
    assert sum(tally.values()) == 24
    assert min(tally.values()) > 3
    wait_until(lambda: idle(app.state.server))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_long_storm_leaks_nothing(client: httpx.Client, expected: list[bytes], app: Any) -> None:
    resident = []
    for quarter in range(4):
        storm(client, expected, 750, quarter)
        wait_until(lambda: idle(app.state.server))
        resident.append(resident_bytes())
    assert resident[-1] < GROWTH * resident[0], resident


def idle(state: ServerState) -> bool:
    stats = state.models.stats()
    return not (stats.running or stats.waiting or state.active) and stats.memory_reserved == 0
