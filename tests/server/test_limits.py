"""What a body may hold: each limit is told by name, in the form of every other error, before the body is validated."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from .conftest import MODEL, SPEECH, body
from .test_errors import check

BATCH = f"{SPEECH}/batch"
CHAT = "/v1/chat/completions"
EDITS = "/v1/audio/edits"
SOUNDS = "/v1/audio/generations"
MANY = {f"f{number}": number for number in range(5000)}
QUESTION = [{"type": "input_audio", "input_audio": {"data": "AAAA"}}, {"type": "text", "text": "a" * 6000}]

PARTS = [{"type": "text", "text": "a"}] * 65


@pytest.mark.parametrize("path", [SPEECH, BATCH, CHAT, SOUNDS])
def test_the_first_unknown_field_of_many_is_named(client: httpx.Client, path: str) -> None:
    check(client.post(path, json={"model": MODEL} | MANY), 400, "invalid_request", "f0", "unknown field 'f0'")


def test_an_edit_has_fields_of_its_task_but_not_that_many(client: httpx.Client) -> None:
    error = check(client.post(EDITS, json={"model": MODEL, "task": "pitch"} | MANY), 400, "invalid_request", "f2045")
    assert "2048 values" in error["message"]


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"metadata": {str(number): "" for number in range(17)}}, "16"),
        ({"metadata": {"a": "b" * 513}}, "512"),
        ({"metadata": {"a": {"b": {}}}}, "valid"),
        ({"metadata": MANY}, "2048 values"),
        ({"user": "u" * 257}, "256"),
        ({"safety_identifier": "u" * 257}, "256"),
        ({"model": "m" * 257}, "256"),
        ({"voice": "v" * 257}, "256"),
        ({"voice": {"id": "v" * 257}}, "voice"),
        ({"language": "e" * 65}, "64"),
        ({"instructions": "i" * 4097}, "4096"),
        ({"ref_audio": "AAAA", "ref_text": "t" * 4097}, "4096"),
        ({"input": "a" * 5001}, "5000"),
        ({"input": "a" * 200_000}, "5000"),
        ({"voice": [[[[[[[[1]]]]]]]]}, "8 levels"),
        ({"voice": [0] * 65}, "64 entries"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_too_long_is_refused_by_name(client: httpx.Client, fields: dict[str, Any], word: str) -> None:
    name = "input" if "input" in fields else next(reversed(fields))
    check(client.post(SPEECH, json=body(**fields)), 400, "invalid_request", name, word)


def test_metadata_of_the_size_that_openai_takes_is_accepted(client: httpx.Client) -> None:
    fields = {"metadata": {f"{number:064d}": "b" * 512 for number in range(16)}}
    assert client.post(SPEECH, json=body(**fields)).status_code == 200


def test_a_batch_is_counted_before_its_items_are_looked_at(client: httpx.Client) -> None:
    error = check(client.post(BATCH, json={"model": MODEL, "items": [0] * 33}), 400, "invalid_request", "items")
    assert "32 entries" in error["message"]
    error = check(client.post(BATCH, json={"model": MODEL, "items": [0] * 32}), 400, "invalid_request", "items")
    assert "items.0" in error["message"]


def test_the_texts_of_a_batch_are_limited_together(client: httpx.Client) -> None:
    items = [{"input": "a" * 4000}] * 6
    check(client.post(BATCH, json={"model": MODEL, "items": items}), 400, "invalid_request", "items", "24000", "20000")


def test_white_space_counts(client: httpx.Client) -> None:
    content = json.dumps(body()).encode() + b" " * 200_000
    response = client.post(SPEECH, content=content, headers={"Content-Type": "application/json"})
    check(response, 413, "input_too_long", None, "beside recordings")


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"messages": [{"role": "user", "content": QUESTION}]}, "messages"),
        (CHAT, {"messages": [{"role": "user", "content": PARTS}]}, "messages"),
        (EDITS, {"task": "pitch", "audio": "AAAA", "direction": "a" * 6000}, "direction"),
        (EDITS, {"task": "pitch", "audio": "AAAA", "ref_text": "a" * 6000}, "ref_text"),
    ],
    ids=["question", "parts", "slot", "ref_text"],
)
def test_other_texts_have_the_limit_of_a_text(
    client: httpx.Client, path: str, fields: dict[str, Any], param: str
) -> None:
    check(client.post(path, json={"model": MODEL} | fields), 400, "invalid_request", param)


def test_a_form_has_few_and_short_fields(client: httpx.Client) -> None:
    file = {"audio": ("a.wav", b"RIFF")}
    check(client.post(EDITS, data={"model": MODEL} | MANY, files=file), 400, "invalid_request", None, "64")
    long = {"model": MODEL, "ref_text": "a" * 30_000}
    check(client.post(EDITS, data=long, files=file), 400, "invalid_request", None, "size")
