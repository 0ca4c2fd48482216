"""Several texts in one request."""

from __future__ import annotations

import base64
from typing import Any

import httpx

from .conftest import MODEL, SPEECH, body

BATCH = f"{SPEECH}/batch"


def batch(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "seed": 7, "max_new_tokens": 12, "response_format": "wav", "items": list(items)} | fields


def test_each_item_is_what_it_would_be_alone(client: httpx.Client) -> None:
    answer = client.post(
        BATCH, json=batch({"input": "Hello world."}, {"input": "Good day.", "seed": 9, "response_format": "flac"})
    ).json()
    assert (answer["total"], answer["succeeded"], answer["failed"]) == (2, 2, 0)
    assert answer["id"]
    for result, fields in zip(
        answer["results"],
        [{"response_format": "wav"}, {"input": "Good day.", "seed": 9, "response_format": "flac"}],
        strict=True,
    ):
        alone = client.post(SPEECH, json=body(stream=False, **fields))
        assert base64.b64decode(result["audio_data"]) == alone.content
        assert result["status"] == "success"
        assert result["media_type"] == alone.headers["content-type"]
        assert result["finish_reason"] == alone.headers["x-finish-reason"]
        assert result["usage"]["output_tokens"] > 0
    assert [result["index"] for result in answer["results"]] == [0, 1]


def test_an_item_that_fails_fails_alone(client: httpx.Client) -> None:
    items = [{"input": "Hello."}, {"input": "🙂"}, {"input": "Hello.", "voice": "nobody"}, {"input": "Bye."}]
    answer = client.post(BATCH, json=batch(*items)).json()
    assert (answer["succeeded"], answer["failed"]) == (2, 2)
    assert [result["status"] for result in answer["results"]] == ["success", "error", "error", "success"]
    assert answer["results"][1]["error"]["param"] == "input"
    assert answer["results"][2]["error"]["code"] == "voice_not_found"


def test_a_batch_is_refused_as_a_whole_for_what_concerns_it_as_a_whole(client: httpx.Client) -> None:
    cases = [
        (batch(*[{"input": "a"}] * 33), 400, "items"),
        (batch(), 400, "items"),
        (batch({"input": "a"}, model="no-such"), 404, "model"),
        (batch({"input": "a", "colour": "red"}), 400, "items"),
        (batch({"input": "a"}, colour="red"), 400, "colour"),
        (batch({"input": "a"}, stream_format="sse"), 400, "stream_format"),
    ]
    for fields, status, param in cases:
        response = client.post(BATCH, json=fields)
        assert response.status_code == status, response.text
        assert response.json()["error"]["param"] == param
