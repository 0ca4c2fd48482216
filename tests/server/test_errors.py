"""What is refused, how, and when: always before the first byte, with one shape of body."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest

from oscine import errors as tree
from oscine.server.errors import body_of, error_response

from .conftest import MODEL, SPEECH, body


def check(response: httpx.Response, status: int, code: str, param: str | None, *words: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"].startswith("req_")
    error = response.json()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert (error["code"], error["param"]) == (code, param), error
    for word in words:
        assert word in error["message"], error
    return error


REFUSED: list[tuple[dict[str, Any], int, str, str | None, str]] = [
    ({"model": "no-such"}, 404, "model_not_found", "model", MODEL),
    ({"model": "../../etc"}, 404, "model_not_found", "model", "served"),
    ({"voice": "nobody"}, 404, "voice_not_found", "voice", "OpenAI"),
    ({"voice": {"id": "nobody"}}, 404, "voice_not_found", "voice", "nobody"),
    ({"voice": {"name": "alloy"}}, 400, "invalid_request", "voice", "voice"),
    ({"input": ""}, 400, "invalid_request", "input", "empty"),
    ({"input": " \n"}, 400, "invalid_request", "input", "empty"),
    ({"input": "🙂 ** --"}, 400, "invalid_request", "input", "spoken"),
    ({"input": "a" * 5001}, 400, "invalid_request", "input", "5000"),
    ({"input": None}, 400, "invalid_request", "input", "string"),
    ({"input": 5}, 400, "invalid_request", "input", "string"),
    ({"instructions": "a" * 4097}, 400, "invalid_request", "instructions", "4096"),
    ({"instructions": "whisper"}, 400, "unsupported_feature", "instructions", "instructions"),
    ({"language": "fr"}, 400, "unsupported_feature", "language", "language"),
    ({"cfg_scale": 2.0}, 400, "unsupported_feature", "cfg_scale", "cfg_scale"),
    ({"num_steps": 4}, 400, "unsupported_feature", "num_steps", "num_steps"),
    ({"duration_s": 4.0}, 400, "unsupported_feature", "duration_s", "duration_s"),
    ({"response_format": "wma"}, 400, "invalid_request", "response_format", "mp3"),
    ({"stream_format": "ws"}, 400, "invalid_request", "stream_format", "sse"),
    ({"speed": 0.1}, 400, "invalid_request", "speed", "0.25"),
    ({"speed": 4.5}, 400, "invalid_request", "speed", "4"),
    ({"speed": "fast"}, 400, "invalid_request", "speed", "number"),
    ({"sample_rate": 7000}, 400, "invalid_request", "sample_rate", "8000"),
    ({"sample_rate": 23000}, 400, "invalid_request", "sample_rate", "mp3"),
    ({"sample_rate": 24000, "response_format": "opus"}, 400, "invalid_request", "sample_rate", "opus"),
    ({"seed": -1}, 400, "invalid_request", "seed", "0"),
    ({"seed": "7"}, 400, "invalid_request", "seed", "integer"),
    ({"temperature": True}, 400, "invalid_request", "temperature", "number"),
    ({"top_p": 1.5}, 400, "invalid_request", "top_p", "1"),
    ({"top_k": 10**30}, 400, "invalid_request", "top_k", "1000000"),
    ({"max_new_tokens": 100_000}, 400, "invalid_request", "max_new_tokens", "640"),
    ({"colour": "red"}, 400, "invalid_request", "colour", "unknown field 'colour'"),
    ({"ref_text": "Hello."}, 400, "invalid_request", "ref_text", "ref_audio"),
    ({"ref_audio": "AAAA"}, 422, "bad_audio", "ref_audio", "ref_audio"),
    ({"ref_audio": "/etc/passwd"}, 400, "invalid_request", "ref_audio", "base64"),
    ({"ref_audio": "AA==AAAA"}, 400, "invalid_request", "ref_audio", "base64"),
    ({"ref_audio": "http://127.0.0.1/a.wav"}, 400, "unsupported_feature", "ref_audio", "URL"),
    ({"ref_audio": "file:///etc/passwd"}, 400, "unsupported_feature", "ref_audio", "URL"),
]


@pytest.mark.parametrize(("fields", "status", "code", "param", "word"), REFUSED, ids=lambda v: str(v)[:40])
def test_what_cannot_be_served_is_refused_by_name(
    client: httpx.Client, fields: dict[str, Any], status: int, code: str, param: str | None, word: str
) -> None:
    check(client.post(SPEECH, json=body(**fields)), status, code, param, word)
    check(client.post(SPEECH, json=body(stream_format="sse") | fields), status, code, param, word)


def test_a_reference_needs_its_transcript(client: httpx.Client, reference: bytes) -> None:
    encoded = base64.b64encode(reference).decode()
    check(client.post(SPEECH, json=body(ref_audio=encoded)), 400, "invalid_request", "ref_text")


def test_missing_fields_are_named(client: httpx.Client) -> None:
    check(client.post(SPEECH, json={"input": "Hello."}), 400, "invalid_request", "model", "required")
    check(client.post(SPEECH, json={"model": MODEL}), 400, "invalid_request", "input", "required")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b'"text"', b"\xff\xfe", b"[" * 50_000, b'{"input": "\\ud800", "model": "tts-1"}']
)
def test_bodies_that_are_no_request(client: httpx.Client, content: bytes) -> None:
    response = client.post(SPEECH, content=content, headers={"Content-Type": "application/json"})
    check(response, 400, "invalid_request", "input" if b"ud800" in content else None)


@pytest.mark.parametrize("path", ["/v1/audio/edits", "/v1/chat/completions", f"{SPEECH}/batch"])
def test_json_without_end_is_refused(client: httpx.Client, path: str) -> None:
    headers = {"Content-Type": "application/json"}
    check(client.post(path, content=b'{"a":' * 50_000, headers=headers), 400, "invalid_request", "a")


def test_a_body_that_is_not_called_json_is_told_so(client: httpx.Client) -> None:
    response = client.post(SPEECH, content=json.dumps(body()).encode())
    check(response, 400, "invalid_request", None, "application/json")


def test_every_status_has_the_same_body(client: httpx.Client) -> None:
    check(client.get("/nothing/here"), 404, "not_found", None)
    check(client.get(SPEECH), 405, "method_not_allowed", None)
    check(client.get("/v1/models/no-such"), 404, "model_not_found", "model")


def test_a_large_body_is_refused_by_its_stated_length_and_by_its_real_one(client: httpx.Client) -> None:
    large = json.dumps(body(input="a" * (1 << 20))).encode()
    headers = {"Content-Type": "application/json"}
    check(client.post(SPEECH, content=large, headers=headers), 413, "input_too_long", None, str(1 << 20))
    chunks = (large[i : i + 65536] for i in range(0, len(large), 65536))
    check(client.post(SPEECH, content=chunks, headers=headers), 413, "input_too_long", None, str(1 << 20))


def leaves(kind: type[tree.OscineError]) -> list[type[tree.OscineError]]:
    return [kind, *(leaf for child in kind.__subclasses__() for leaf in leaves(child))]


@pytest.mark.parametrize("kind", leaves(tree.OscineError)[1:], ids=lambda kind: kind.__name__)
def test_each_class_has_its_status_and_code(kind: type[tree.OscineError]) -> None:
    response = error_response(kind("what is wrong"))
    error = json.loads(response.body)["error"]
    assert response.status_code == kind.status
    assert (error["message"], error["code"], error["param"]) == ("what is wrong", kind.code, None)
    assert error["type"] == (
        "server_error"
        if kind.status >= 500
        else {404: "not_found_error", 429: "rate_limit_error"}.get(kind.status, "invalid_request_error")
    )
    assert ("retry-after" in response.headers) == (kind.status in (429, 503))


def test_what_is_not_ours_says_nothing_of_itself() -> None:
    error = body_of(RuntimeError("secret"))["error"]
    assert error["code"] == "internal_error"
    assert "secret" not in str(error)
