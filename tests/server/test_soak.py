"""Many short requests, a third of them broken off: nothing leaks, nothing is cut, nobody hears what another asked for.

The long storm is marked slow; OSCINE_SOAK_REQUESTS says how many requests it makes.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.sync.client import connect

import oscine
from oscine.engine.entry import Entry
from oscine.server.metrics import resident_bytes
from oscine.server.session import SpeechSession
from oscine.server.state import ServerState
from oscine.server.stream import AudioRun, Delivery
from oscine.stream import SpeechStream

from .conftest import MODEL, SPEECH, serving, wait_until

REQUESTS = int(os.environ.get("OSCINE_SOAK_REQUESTS", "3000"))
ROUNDS = 6
CLIENTS = 8
TEXTS = [f"Text number {number}." for number in range(6)]
FIELDS = {"model": MODEL, "max_new_tokens": 10, "response_format": "pcm", "sample_rate": 44100}
MODES = ("raw", "sse", "whole", "batch", "socket")
OURS = (Entry, AudioRun, Delivery, SpeechStream, SpeechSession)
"""What belongs to one request; idle threads may hold on to the last few they worked on."""
FEW = 2 * CLIENTS
NOISE_BYTES, BYTES_A_REQUEST = 8 << 20, 1024
"""How much resident memory may grow in the second half: what allocators keep, and next to nothing a request."""
NOISE_OBJECTS, OBJECTS_A_REQUEST = 1000, 0.5
LIGHT: dict[str, Any] = {"timeout": 100, "verify": False, "trust_env": False}
"""A client that does not read the certificates of the world each time: it lives in the process that is measured."""


@pytest.fixture(scope="module")
def expected(direct: oscine.Model) -> list[bytes]:
    """What each text must sound like, with its number as the seed."""
    audios = [direct.generate(text, seed=n, max_new_tokens=10).audio for n, text in enumerate(TEXTS)]
    return [np.clip(np.rint(audio * 32768), -32768, 32767).astype("<i2").tobytes() for audio in audios]


def over_http(url: str, fields: dict[str, Any]) -> Iterator[bytes]:
    with httpx.Client(**LIGHT) as client, client.stream("POST", url + SPEECH, json=fields) as response:
        assert response.status_code == 200
        yield from response.iter_raw()


def as_events(url: str, fields: dict[str, Any]) -> Iterator[bytes]:
    ended = False
    with (
        httpx.Client(**LIGHT) as client,
        client.stream("POST", url + SPEECH, json=fields | {"stream_format": "sse"}) as response,
    ):
        assert response.status_code == 200
        for line in response.iter_lines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                yield base64.b64decode(event.get("audio", ""))
                ended = event["type"] == "speech.audio.done"
    assert ended, "the events ended without the last one"


def over_socket(url: str, fields: dict[str, Any]) -> Iterator[bytes]:
    settings = {name: value for name, value in fields.items() if name != "input"}
    with connect(url.replace("http", "ws") + f"{SPEECH}/stream", open_timeout=100, close_timeout=100) as socket:
        socket.send(json.dumps({"type": "session.config"} | settings))
        socket.send(json.dumps({"type": "input.text", "text": fields["input"]}))
        socket.send(json.dumps({"type": "input.done"}))
        while True:
            message = socket.recv(timeout=100)
            if isinstance(message, bytes):
                yield message
            elif (event := json.loads(message))["type"] == "session.done":
                return
            else:
                assert event.get("error") is None, event


def as_batch(url: str, fields: dict[str, Any]) -> Iterator[bytes]:
    """The text twice in one batch, whose audio comes whole."""
    settings = {name: value for name, value in fields.items() if name != "input"}
    items = [{"input": fields["input"]}] * 2
    with httpx.Client(**LIGHT) as client:
        answer = client.post(f"{url}{SPEECH}/batch", json=settings | {"items": items}).json()
    first, second = (base64.b64decode(result["audio_data"]) for result in answer["results"])
    assert first == second
    yield first


def ask(url: str, mode: str, fields: dict[str, Any]) -> Iterator[bytes]:
    """The PCM of one request as it comes, over one of the ways there are."""
    if mode == "sse":
        return as_events(url, fields)
    if mode == "batch":
        return as_batch(url, fields)
    if mode == "socket":
        return over_socket(url, fields)
    return over_http(url, fields | ({"stream": False} if mode == "whole" else {}))


def storm(url: str, expected: Sequence[bytes], count: int, seed: int, modes: Sequence[str] = MODES) -> Counter[str]:
    """`count` requests by eight clients at a time; each is checked, or left at a random point, some before any byte."""

    def one(number: int) -> str:
        draw = random.Random(f"{seed}-{number}")
        which, mode = draw.randrange(len(TEXTS)), draw.choice(modes)
        fields: dict[str, Any] = FIELDS | {"input": TEXTS[which], "seed": which}
        leaves = draw.random() < 1 / 3
        if leaves and draw.random() < 1 / 3:
            path, sent = SPEECH, fields
            if mode == "batch":
                path, sent = f"{SPEECH}/batch", FIELDS | {"items": [{"input": text} for text in TEXTS[:3]]}
            with suppress(httpx.ReadTimeout), httpx.Client(**LIGHT) as client:
                client.post(url + path, json=sent, timeout=httpx.Timeout(100, read=draw.random() / 20))
            return "left early"
        enough = draw.randrange(len(expected[which])) if leaves else None
        got = b""
        with closing(ask(url, mode, fields)) as parts:
            for data in parts:
                got += data
                if enough is not None and len(got) >= enough:
                    break
        whole = expected[which]
        assert got == whole if not leaves else whole.startswith(got), f"request {number} ({mode}) got other audio"
        return "left" if leaves else mode

    with ThreadPoolExecutor(CLIENTS) as pool:
        return Counter(pool.map(one, range(count)))


def settle(state: ServerState) -> None:
    """Returns once the server is idle and nothing of any request is left; fails if that never comes."""
    wait_until(lambda: idle(state))
    wait_until(lambda: sum(alive().values()) <= FEW)


def idle(state: ServerState) -> bool:
    stats = state.models.stats()
    users = state.models._slots[MODEL].users
    return not (stats.running or stats.waiting or state.active or users) and stats.memory_reserved == 0


def alive() -> Counter[str]:
    """Objects of single requests that are still there."""
    gc.collect()
    return Counter(kind.__name__ for kind in map(type, gc.get_objects()) if kind in OURS)


def check_flat(values: Sequence[int], requests: int, noise: float, each: float) -> None:
    """Fails if `values` grew by more than `noise` and `each` for each of the `requests` between their ends."""
    growth = min(values[-2:]) - values[0]
    assert growth < noise + each * requests, f"grew by {growth} in {requests} requests: {values}"


def test_a_short_storm(base_url: str, expected: list[bytes], app: Any) -> None:
    tally = storm(base_url, expected, 24, 1)
    assert sum(tally.values()) == 24
    assert set(tally) == {*MODES, "left", "left early"}
    settle(app.state.server)


@pytest.mark.slow
@pytest.mark.timeout(14400)
def test_a_long_storm_leaks_nothing(base_url: str, expected: list[bytes], app: Any) -> None:
    resident, objects, files, threads = [], [], [], []
    for number in range(ROUNDS):
        storm(base_url, expected, REQUESTS // ROUNDS, number)
        settle(app.state.server)
        resident.append(resident_bytes())
        objects.append(len(gc.get_objects()))
        files.append(len(os.listdir("/proc/self/fd")))
        threads.append(threading.active_count())
        counts = f"{objects[-1]} objects, {files[-1]} files, {threads[-1]} threads"
        print(f"round {number}: {resident[-1] >> 10} KiB, {counts}, {dict(alive())}", flush=True)
    half = ROUNDS // 2 - 1  # the first half warms up: buffers, threads and their arenas
    later = REQUESTS // ROUNDS * (ROUNDS - 1 - half)
    check_flat(resident[half:], later, NOISE_BYTES, BYTES_A_REQUEST)
    check_flat(objects[half:], later, NOISE_OBJECTS, OBJECTS_A_REQUEST)
    assert files[-1] <= files[0] + FEW
    assert threads[-1] <= threads[0] + FEW


# That the storm would notice

WRONG: dict[str, Callable[[Sequence[bytes], int], bytes]] = {
    "of another": lambda expected, which: expected[(which + 1) % len(expected)],
    "cut off with a clean end": lambda expected, which: expected[which][:-2],
    "with a hole": lambda expected, which: expected[which][:1000] + expected[which][1002:],
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_storm_notices_wrong_audio(expected: list[bytes], fault: str) -> None:
    async def wrong(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(scope["type"])
        sent, data = await receive(), b"ok"
        if scope["path"] == SPEECH:
            data = WRONG[fault](expected, TEXTS.index(json.loads(sent["body"])["input"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": data})

    with serving(wrong) as url, pytest.raises(AssertionError, match="other audio"):
        storm(url, expected, 6, 1, modes=("raw",))


def test_a_leak_is_noticed(direct: oscine.Model) -> None:
    check_flat([100 << 20, 112 << 20, 101 << 20], 2000, NOISE_BYTES, BYTES_A_REQUEST)
    with pytest.raises(AssertionError, match="in 2000 requests"):
        check_flat([100 << 20, 106 << 20, 112 << 20, 118 << 20], 2000, NOISE_BYTES, BYTES_A_REQUEST)
    with pytest.raises(AssertionError, match="in 150 requests"):  # eight objects a request
        check_flat([90_000, 90_400, 90_800, 91_200], 150, NOISE_OBJECTS - 300, OBJECTS_A_REQUEST)
    before = alive()["SpeechStream"]
    kept = [direct.stream("Hello.", seed=1, max_new_tokens=2) for _ in range(3)]
    assert alive()["SpeechStream"] == before + 3
    del kept
    assert alive()["SpeechStream"] == before
