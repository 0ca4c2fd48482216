"""The OpenAPI document, fuzzed for a bounded time: nothing a client can send makes the server fail."""

from __future__ import annotations

import warnings

import hypothesis
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of other packages, while they are imported
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

from hypothesis import HealthCheck

OPERATIONS = [
    ("/v1/audio/speech", "POST"),
    ("/v1/audio/speech/batch", "POST"),
    ("/v1/audio/voices", "GET"),
    ("/v1/audio/voices/{voice_id}", "DELETE"),
    ("/v1/audio/generations", "POST"),
    ("/v1/chat/completions", "POST"),
    ("/v1/models/{model}", "GET"),
]


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_no_request_makes_the_server_fail(base_url: str, path: str, method: str) -> None:
    schema = schemathesis.openapi.from_url(f"{base_url}/openapi.json")
    operation = schema[path][method]

    @hypothesis.given(case=operation.as_strategy())
    @hypothesis.settings(
        max_examples=15,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    def check(case: schemathesis.Case) -> None:
        response = case.call()
        assert response.status_code < 500, (case.as_curl_command(), response.text)
        if response.status_code >= 400:
            error = response.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}

    check()
