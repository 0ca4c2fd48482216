"""The speech endpoint: every format, raw and as events, streamed and whole, and what its headers say."""

from __future__ import annotations

import base64
import io
import json
import wave
from typing import Any

import httpx
import numpy as np
import pytest

import oscine
from oscine.audio.encode import encode
from oscine.audio.resample import resample, resampled_length

from .conftest import SPEECH, body, decode

FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm;rate=24000;channels=1",
}
PADDING = {"mp3": 1105 + 1152, "aac": 1024 + 2 * 1024}
"""Samples that decoding may give beyond the exact length: the codec's delay and the rest of its last frame."""
MODES: dict[str, dict[str, Any]] = {"raw": {}, "sse": {"stream_format": "sse"}, "whole": {"stream": False}}


def events(response: httpx.Response) -> list[dict[str, Any]]:
    blocks = response.text.split("\n\n")
    assert blocks.pop() == ""
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


def audio_of(response: httpx.Response) -> bytes:
    if not response.headers["content-type"].startswith("text/event-stream"):
        return response.content
    *deltas, done = events(response)
    assert [event["type"] for event in deltas] == ["speech.audio.delta"] * len(deltas)
    assert done["type"] == "speech.audio.done"
    return b"".join(base64.b64decode(event["audio"], validate=True) for event in deltas)


@pytest.fixture(scope="module")
def expected(direct: oscine.Model) -> np.ndarray:
    return direct.generate("Hello world.", seed=7, max_new_tokens=12).audio


@pytest.mark.parametrize(
    ("mode", "rate"), [("raw", None), ("raw", 16000), ("sse", None), ("whole", None), ("whole", 48000)]
)
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_and_mode_brings_the_same_speech(
    client: httpx.Client, expected: np.ndarray, name: str, mode: str, rate: int | None
) -> None:
    if name == "opus" and rate == 16000:
        rate = None  # opus is always 48 kHz, see below
    response = client.post(SPEECH, json=body(response_format=name, sample_rate=rate, **MODES[mode]))
    assert response.status_code == 200, response.text
    target = rate or {"pcm": 24000, "opus": 48000}.get(name, 44100)
    kind = TYPES[name].replace("24000", str(target))
    assert response.headers["content-type"] == ("text/event-stream; charset=utf-8" if mode == "sse" else kind)
    assert response.headers["x-sample-rate"] == str(target)
    assert response.headers["x-seed"] == "7"
    data = audio_of(response)
    if name == "pcm":
        samples, got = np.frombuffer(data, "<i2").astype(np.float32) / 32768, target
    else:
        samples, got = decode(data)
    assert got == target
    want = resample(expected, 44100, target)
    assert 0 <= len(samples) - len(want) <= PADDING.get(name, 0)
    if name in ("wav", "pcm", "flac"):
        np.testing.assert_allclose(samples, np.clip(want, -1, 1), atol=1 / 32768)
    else:
        alone, _ = decode(encode(name, expected, 44100, target_rate=target))
        assert np.sqrt(np.mean(samples**2)) == pytest.approx(np.sqrt(np.mean(alone**2)), rel=0.1)


def test_stream_is_ignored_beside_a_stream_format(client: httpx.Client) -> None:
    raw = client.post(SPEECH, json=body(response_format="wav", stream_format="audio", stream=False))
    assert "content-length" not in raw.headers
    assert raw.content == client.post(SPEECH, json=body(response_format="wav", stream=True)).content
    sse = client.post(SPEECH, json=body(response_format="wav", stream_format="sse", stream=False))
    assert audio_of(sse) == raw.content


@pytest.mark.parametrize("name", FORMATS)
def test_events_carry_the_very_bytes_of_the_raw_stream(client: httpx.Client, name: str) -> None:
    raw = client.post(SPEECH, json=body(response_format=name)).content
    sse = audio_of(client.post(SPEECH, json=body(response_format=name, stream_format="sse")))
    assert sse == raw


def test_a_streamed_wav_has_one_header_of_unknown_length_and_a_whole_one_its_exact_length(
    client: httpx.Client, expected: np.ndarray
) -> None:
    streamed = client.post(SPEECH, json=body(response_format="wav"))
    assert "content-length" not in streamed.headers
    assert "x-finish-reason" not in streamed.headers
    assert streamed.content[4:8] == streamed.content[40:44] == b"\xff\xff\xff\xff"
    assert streamed.content.count(b"RIFF") == 1
    whole = client.post(SPEECH, json=body(response_format="wav", stream=False))
    assert int(whole.headers["content-length"]) == len(whole.content) == 44 + 2 * len(expected)
    assert whole.headers["x-finish-reason"] in ("stop", "length")
    with wave.open(io.BytesIO(whole.content)) as file:
        assert (file.getnframes(), file.getframerate(), file.getnchannels()) == (len(expected), 44100, 1)
    assert whole.content[44:] == streamed.content[44:]


def test_done_tells_usage_and_reason(client: httpx.Client, direct: oscine.Model) -> None:
    result = direct.generate("Hello world.", seed=7, max_new_tokens=12)
    done = events(client.post(SPEECH, json=body(stream_format="sse")))[-1]
    assert done == {"type": "speech.audio.done", "usage": result.usage, "finish_reason": result.finish_reason}


@pytest.mark.parametrize(("mode", "speed"), [("raw", 0.5), ("sse", 1.7), ("whole", 1.7)])
@pytest.mark.parametrize("name", FORMATS)
def test_speed_is_honoured_in_every_format_and_mode(
    client: httpx.Client, expected: np.ndarray, name: str, mode: str, speed: float
) -> None:
    data = audio_of(client.post(SPEECH, json=body(response_format=name, speed=speed, **MODES[mode])))
    rate = {"pcm": 24000, "opus": 48000}.get(name, 44100)
    num_samples = len(data) // 2 if name == "pcm" else len(decode(data)[0])
    want = resampled_length(round(len(expected) / speed), 44100, rate)
    assert 0 <= num_samples - want <= PADDING.get(name, 0)


def test_long_text_is_spoken_to_the_end_in_a_stream(client: httpx.Client, direct: oscine.Model) -> None:
    text = " ".join(f"Sentence number {n} is here, and it goes on for a little while longer." for n in range(8))
    result = direct.generate(text, seed=3, max_new_tokens=8)
    assert len(result.pieces) > 3
    data = client.post(SPEECH, json=body(input=text, seed=3, max_new_tokens=8, response_format="flac")).content
    assert len(decode(data)[0]) == len(result.audio)


def test_no_seed_is_a_fresh_one_that_the_header_reports(client: httpx.Client) -> None:
    first = client.post(SPEECH, json=body(seed=None, response_format="pcm"))
    second = client.post(SPEECH, json=body(seed=None, response_format="pcm"))
    assert first.headers["x-seed"] != second.headers["x-seed"]
    again = client.post(SPEECH, json=body(seed=int(first.headers["x-seed"]), response_format="pcm"))
    assert again.content == first.content


def test_cloning_by_base64_and_by_data_uri(client: httpx.Client, reference: bytes) -> None:
    encoded = base64.b64encode(reference).decode()
    fields = {"ref_text": "A tone.", "response_format": "pcm"}
    plain = client.post(SPEECH, json=body(ref_audio=encoded, **fields))
    uri = client.post(SPEECH, json=body(ref_audio=f"data:audio/wav;base64,{encoded}", **fields))
    assert plain.status_code == 200, plain.text
    assert plain.content == uri.content != client.post(SPEECH, json=body(response_format="pcm")).content


@pytest.mark.parametrize("voice", ["alloy", "verse", {"id": "nova"}, "default", "", None])
def test_openai_names_and_the_default_always_work(client: httpx.Client, voice: Any) -> None:
    assert client.post(SPEECH, json=body(voice=voice)).status_code == 200


@pytest.mark.parametrize("model", ["tts-1", "tts-1-hd", "gpt-4o-mini-tts"])
def test_openai_models_mean_the_default_one(client: httpx.Client, model: str) -> None:
    assert client.post(SPEECH, json=body(model=model)).status_code == 200


def test_harmless_and_empty_fields_are_accepted(client: httpx.Client) -> None:
    extra = {"user": "u1", "metadata": {"a": 1}, "safety_identifier": "x", "instructions": "", "language": ""}
    assert client.post(SPEECH, json=body(**extra, speed=None, stream=True)).status_code == 200
