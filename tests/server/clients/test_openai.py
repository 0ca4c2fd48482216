"""The official `openai` package against the app in process and against a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from ..conftest import MODEL, decode

EXTRA = {"seed": 7, "max_new_tokens": 12}


@pytest.fixture
def sdk(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key="anything", timeout=60) as sdk:
        yield sdk


@pytest.fixture
async def in_process(app: Any, base_url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    """The same app without a socket; `base_url` has started it."""
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        yield openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="k", http_client=http, max_retries=0)


def test_no_response_format_means_mp3(sdk: openai.OpenAI) -> None:
    response = sdk.audio.speech.create(model="tts-1", input="Hello world.", voice="alloy", extra_body=EXTRA)
    assert response.response.headers["content-type"] == "audio/mpeg"
    samples, rate = decode(response.read())
    assert len(samples) / rate > 0.2


def test_streaming_to_a_file(sdk: openai.OpenAI, tmp_path: Any) -> None:
    target = tmp_path / "speech.wav"
    with sdk.audio.speech.with_streaming_response.create(
        model=MODEL, input="Hello world.", voice="nova", response_format="wav", speed=1.25, extra_body=EXTRA
    ) as response:
        response.stream_to_file(target)
    assert len(decode(target.read_bytes())[0]) > 4000


def test_events_through_the_sdk(sdk: openai.OpenAI) -> None:
    with sdk.audio.speech.with_streaming_response.create(
        model=MODEL, input="Hello world.", voice="nova", stream_format="sse", extra_body=EXTRA
    ) as response:
        lines = [line for line in response.iter_lines() if line]
    assert "speech.audio.delta" in lines[0]
    assert "speech.audio.done" in lines[-1]


def test_models(sdk: openai.OpenAI) -> None:
    assert [model.id for model in sdk.models.list()] == [MODEL]
    assert sdk.models.retrieve(MODEL).owned_by == "oscine"


def test_errors_are_the_sdks_own(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        sdk.audio.speech.create(model=MODEL, input="Hello.", voice="alloy", instructions="whisper")
    assert (bad.value.code, bad.value.param, bad.value.type) == (
        "unsupported_feature",
        "instructions",
        "invalid_request_error",
    )
    with pytest.raises(openai.NotFoundError, match="no model"):
        sdk.audio.speech.create(model="nope", input="Hello.", voice="alloy")


@pytest.mark.anyio
async def test_in_process(in_process: openai.AsyncOpenAI, sdk: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"model": "tts-1", "input": "Hello world.", "voice": "alloy", "response_format": "pcm"}
    response = await in_process.audio.speech.create(**fields, extra_body=EXTRA)
    samples = np.frombuffer(response.content, "<i2")
    assert len(samples) > 4000
    assert sdk.audio.speech.create(**fields, extra_body=EXTRA).content == response.content
    with pytest.raises(openai.NotFoundError):
        await in_process.audio.speech.create(model="tts-1", input="Hello.", voice="nobody")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
