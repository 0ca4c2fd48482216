"""The very bodies that clients send, and what each of them reads of the answer."""

from __future__ import annotations

import base64
import io
import json
import wave
from concurrent.futures import ThreadPoolExecutor

import httpx

from ..conftest import SPEECH, body, decode

SHORT = {"max_new_tokens": 12}
KEY = {"Authorization": "Bearer sk-whatever"}


def test_open_webui_speaks_lists_and_sends_many_at_once(client: httpx.Client) -> None:
    models = client.get("/v1/audio/models", headers=KEY).json()
    assert all(model["id"] and model["name"] for model in models["models"])
    assert client.get("/v1/models", headers=KEY).json()["data"]
    voices = client.get("/v1/audio/voices", headers=KEY).json()["voices"]
    assert {voice["id"]: voice["name"] for voice in voices}  # what it makes of the list

    def say(number: int) -> httpx.Response:
        fields = {"input": f"Sentence number {number}.", "voice": "alloy", "model": "tts-1"}
        return client.post(SPEECH, json=fields | SHORT, headers=KEY)

    with ThreadPoolExecutor(6) as pool:
        for response in pool.map(say, range(6)):
            assert response.status_code == 200
            assert response.headers["content-type"] == "audio/mpeg"
            assert len(decode(response.content)[0])


def test_sillytavern(client: httpx.Client) -> None:
    fields = {"input": "Hello.", "response_format": "mp3", "voice": "alloy", "speed": 1, "model": "tts-1"}
    response = client.post(SPEECH, json=fields | SHORT)
    assert response.headers["content-type"] == "audio/mpeg"
    assert len(decode(response.content)[0])


def test_livekit_prewarms_and_reads_mp3_out_of_events(client: httpx.Client) -> None:
    assert client.get("/v1/").status_code == 200
    fields = {
        "input": "Hello.",
        "model": "gpt-4o-mini-tts",
        "voice": "ash",
        "response_format": "mp3",
        "speed": 1.0,
        "stream_format": "sse",
    }
    audio, usage = b"", None
    headers = {"Accept": "application/octet-stream"}
    with client.stream("POST", SPEECH, json=fields | SHORT, headers=headers) as response:
        for line in response.iter_lines():
            if not line.startswith("data: "):
                continue
            event = json.loads(line[6:])
            if event["type"] == "speech.audio.delta":
                audio += base64.b64decode(event["audio"])
            elif event["type"] == "speech.audio.done":
                usage = event["usage"]
    assert len(decode(audio)[0])
    assert usage is not None
    assert usage["input_tokens"] > 0 < usage["output_tokens"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_pipecat_takes_24_khz_for_granted(client: httpx.Client) -> None:
    fields = {"input": "Hello.", "model": "gpt-4o-mini-tts", "voice": "shimmer", "response_format": "pcm"}
    response = client.post(SPEECH, json=fields | SHORT | {"seed": 7})
    own_rate = client.post(SPEECH, json=body(input="Hello.", response_format="wav", stream=False))
    with wave.open(io.BytesIO(own_rate.content)) as file:
        seconds = file.getnframes() / file.getframerate()
    assert abs(len(response.content) / 2 / 24000 - seconds) < 1e-3


def test_wyoming_bridge_parses_the_first_chunk_with_wave(client: httpx.Client) -> None:
    def say(number: int) -> tuple[int, int, int, bytes]:
        fields = {"input": "Hello.", "model": "tts-1", "voice": "alloy", "response_format": "wav"}
        with client.stream("POST", SPEECH, json=fields | SHORT | {"seed": number}) as response:
            chunks = response.iter_bytes(2048)
            first = next(chunks)
            assert len(first) <= 2048
            with wave.open(io.BytesIO(first)) as header:
                shape = (header.getframerate(), header.getsampwidth(), header.getnchannels())
                audio = header.readframes(header.getnframes())
            return *shape, audio + b"".join(chunks)

    with ThreadPoolExecutor(3) as pool:
        for rate, width, channels, audio in pool.map(say, range(3)):
            assert (rate, width, channels) == (44100, 2, 1)
            assert len(audio) >= 2 * 2048  # a frame of the model
