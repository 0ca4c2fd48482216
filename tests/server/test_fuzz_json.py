"""JSON bodies of any shape, seeded and bounded: the server serves them or says what is wrong, and goes on as before.

Bodies come from the server's own description of itself (schemathesis: fitting ones, and ones that break it in one
place), and from good bodies with values, names and bytes put in the place of others.
"""

from __future__ import annotations

import base64
import copy
import json
import random
import warnings
from collections.abc import Callable
from typing import Any

import httpx
import hypothesis
import pytest

from .conftest import MODEL, SPEECH, body, reference_wav
from .test_fuzz import WAIT_S, bounded, check_answer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of other packages, while they are imported
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

JSON = {"Content-Type": "application/json"}
RECORDING = base64.b64encode(reference_wav(0.6)).decode()
BODIES: dict[str, dict[str, Any]] = {
    SPEECH: body(
        voice={"id": "alloy"},
        speed=1.1,
        response_format="pcm",
        metadata={"a": "b"},
        user="u",
        ref_audio=None,
        stream=False,
    ),
    f"{SPEECH}/batch": {
        "model": MODEL,
        "seed": 7,
        "max_new_tokens": 4,
        "response_format": "pcm",
        "items": [{"input": "Hello."}, {"input": "Bye.", "speed": 1.5}],
    },
    "/v1/chat/completions": {
        "model": "audex",
        "max_tokens": 2,
        "modalities": ["text"],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "input_audio", "input_audio": {"data": RECORDING, "format": "wav"}},
                    {"type": "text", "text": "What is heard?"},
                ],
            }
        ],
    },
    "/v1/audio/edits": {
        "model": "auk",
        "task": "pitch",
        "direction": "up",
        "semitones": 1,
        "audio": RECORDING,
        "num_steps": 1,
        "response_format": "pcm",
    },
    "/v1/audio/generations": {"model": MODEL, "input": "rain", "duration_s": 0.2, "num_steps": 1},
}
ODD: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        1e308,
        -1e308,
        10**30,
        "",
        " ",
        "a",
        "🙂",
        "\u0000",
        "\ud83d",
        "../../x",
        "x" * 70_000,
    ),
    *([], {}, [[]], {"a": {}}, [None] * 70, {"id": "x"}, {"id": {}}, [[[[[[[[[]]]]]]]]], {"a" * 200: 1}),
]
BYTES = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\xff",
    b"\x00",
    b"\\ud800",
    b"\\u00",
    b"1e999",
    b"NaN",
    b"-",
    b" ",
]


@pytest.mark.parametrize("path", [path for path in BODIES if path != "/v1/audio/generations"])
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_no_body_by_its_description_makes_the_server_fail(base_url: str, path: str, mode: str) -> None:
    schema = schemathesis.openapi.from_url(f"{base_url}/openapi.json")
    operation = schema[path]["POST"]
    statuses = set()

    @hypothesis.given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode[mode]))
    @bounded(40)
    def check(case: schemathesis.Case) -> None:
        response = case.call()
        check_answer(httpx.Response(response.status_code, content=response.content))
        statuses.add(response.status_code)

    check()
    assert statuses & {400, 404, 413, 422}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("change", ["values", "bytes"])
def test_no_change_to_a_good_body_makes_the_server_fail(families_url: str, path: str, change: str) -> None:
    draw = random.Random(f"{path} {change}")
    good = json.dumps(BODIES[path]).encode()
    changed: Callable[[], bytes] = (
        (lambda: json.dumps(with_other_values(BODIES[path], draw)).encode())
        if change == "values"
        else (lambda: with_other_bytes(good, draw))
    )
    with httpx.Client(base_url=families_url, timeout=WAIT_S, headers=JSON) as client:
        before = client.post(path, content=good)
        check_answer(before)
        statuses = set()
        for _ in range(100):
            response = client.post(path, content=changed())
            check_answer(response)
            statuses.add(response.status_code)
        assert 400 in statuses
        after = client.post(path, content=good)
        assert after.status_code == before.status_code
        if path == SPEECH:
            assert after.content == before.content


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where there is something in a body, by the names and numbers that lead there."""
    found = [path] if path else []
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        found += places(inner, (*path, name))
    return found


def with_other_values(good: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(good))
    for _ in range(draw.randint(1, 3)):
        *way, last = draw.choice(places(changed))
        holder: Any = changed
        for name in way:
            holder = holder[name]
        kind = draw.random()
        if kind < 0.7:
            holder[last] = copy.deepcopy(draw.choice(ODD))
        elif isinstance(holder, list):
            holder.extend([holder[last]] * draw.choice([1, 40, 70]))
        else:
            holder[draw.choice(["colour", "input", "items", "ref_text", last + "x"])] = holder.pop(last)
        if not places(changed):
            break
    return changed


def with_other_bytes(good: bytes, draw: random.Random) -> bytes:
    data = bytearray(good)
    for _ in range(draw.randint(1, 4)):
        begin = draw.randrange(len(data)) if draw.random() < 0.5 else draw.randrange(min(len(data), 300))
        data[begin : begin + draw.randint(0, 3)] = draw.choice(BYTES) * draw.choice([1, 1, 1, 10, 3000])
    return bytes(data[: draw.randrange(len(data))] if draw.random() < 0.1 else data)
