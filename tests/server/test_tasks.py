"""Sounds, edits, transcriptions and chats, through tiny models of the families that can do them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from oscine.api import Result
from oscine.result import Timings
from oscine.server.hearing import ChatBody
from oscine.server.routes.answers import _completion

from .conftest import MODEL, decode, reference_wav, series

EDITS, SOUNDS = "/v1/audio/edits", "/v1/audio/generations"
TRANSCRIPTIONS = "/v1/audio/transcriptions"
PITCH = {"task": "pitch", "direction": "up", "semitones": "1"}


@pytest.fixture
def url(families_url: str) -> str:
    return families_url


@pytest.fixture
def web(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=300) as client:
        yield client


def refused(response: httpx.Response, status: int, param: str) -> None:
    assert response.status_code == status, response.text
    assert response.json()["error"]["param"] == param, response.text


def test_a_caption_becomes_a_sound(web: httpx.Client) -> None:
    fields = {"model": "audex", "input": "rain", "duration_s": 0.2, "seed": 1, "response_format": "wav"}
    whole = web.post(SOUNDS, json=fields | {"stream": False})
    assert whole.status_code == 200, whole.text
    samples, rate = decode(whole.content)
    assert len(samples) / rate == pytest.approx(0.2, abs=0.01)
    assert web.post(SOUNDS, json=fields).content[44:] == whole.content[44:]
    refused(web.post(SOUNDS, json=fields | {"model": MODEL}), 400, "task")
    refused(web.post(SOUNDS, json=fields | {"voice": "alloy"}), 400, "voice")
    refused(web.post(SOUNDS, json=fields | {"input": "a" * 100_001}), 400, "input")


def test_an_edit_as_json_and_as_a_form_is_the_same(web: httpx.Client) -> None:
    fields = {"model": "auk", "seed": 3, "num_steps": 2, "response_format": "pcm", "sample_rate": 48000, **PITCH}
    audio = reference_wav()
    by_json = web.post(EDITS, json=fields | {"audio": base64.b64encode(audio).decode()})
    assert by_json.status_code == 200, by_json.text
    assert len(by_json.content) == 2 * 48000
    by_form = web.post(EDITS, data=fields, files={"audio": ("a.wav", audio)})
    assert by_form.content == by_json.content


def test_what_an_edit_lacks_is_named(web: httpx.Client) -> None:
    audio = {"audio": base64.b64encode(reference_wav()).decode()}
    base = {"model": "auk", "num_steps": 2, **PITCH}
    refused(web.post(EDITS, json=base), 400, "audio")
    refused(web.post(EDITS, json=base | audio | {"semitones": "9"}), 400, "semitones")
    refused(web.post(EDITS, json=base | audio | {"colour": "red"}), 400, "colour")
    refused(web.post(EDITS, json=base | audio | {"direction": ["up"]}), 400, "direction")
    refused(web.post(EDITS, json=base | audio | {"task": "paint"}), 400, "task")
    refused(web.post(EDITS, json={"model": "auk", "colour": "red"} | audio), 400, "colour")
    refused(web.post(EDITS, json={"model": "auk"} | audio), 400, "task")
    refused(web.post(EDITS, json=base | {"audio": "http://127.0.0.1/x.wav"}), 400, "audio")
    refused(web.post(EDITS, json=base | audio | {"model": MODEL}), 400, "task")
    refused(web.post(EDITS, data=base, files={"sound": ("a.wav", b"x")}), 400, "sound")
    half = json.dumps(base | audio | {"direction": "\ud800"})  # JSON can say what no text can hold
    refused(web.post(EDITS, content=half, headers={"Content-Type": "application/json"}), 400, "direction")
    refused(web.post(EDITS, json=base | {"audio": "/etc/passwd"}), 400, "audio")
    assert web.post(EDITS, content=b"x").json()["error"]["code"] == "invalid_request"


def test_the_capability_record_says_what_each_edit_needs(web: httpx.Client) -> None:
    web.get("/v1/audio/voices", params={"model": "auk"})
    record = web.get("/v1/models/auk").json()["capabilities"]
    pitch = next(edit for edit in record["edits"] if edit["name"] == "pitch")
    assert [slot["name"] for slot in pitch["slots"]] == ["direction", "semitones"]
    assert pitch["slots"][0]["choices"] == ["up", "down"]


def test_a_recording_is_transcribed(url: str, web: httpx.Client) -> None:
    audio = ("a.wav", reference_wav())
    made = 'oscine_tokens_total{kind="output"}'
    before = series(web)[made]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as sdk:
        answer = sdk.audio.transcriptions.create(model="audex", file=audio, extra_body={"max_new_tokens": 8})
    assert isinstance(answer.text, str)
    assert series(web)[made] > before
    form = {"model": "audex", "max_new_tokens": "8", "response_format": "text", "language": "en"}
    response = web.post(TRANSCRIPTIONS, data=form, files={"file": audio})
    assert response.headers["content-type"].startswith("text/plain")
    assert response.text == answer.text + "\n"
    assert response.headers["x-finish-reason"] in ("stop", "length")
    srt = form | {"response_format": "srt"}
    french = form | {"language": "fr"}  # the model's one language may be named, another may not
    refused(web.post(TRANSCRIPTIONS, data=french, files={"file": audio}), 400, "language")
    refused(web.post(TRANSCRIPTIONS, data=form), 400, "file")
    refused(web.post(TRANSCRIPTIONS, data=srt, files={"file": audio}), 400, "response_format")
    refused(web.post(TRANSCRIPTIONS, data=form | {"model": MODEL}, files={"file": audio}), 400, "task")
    refused(web.post(TRANSCRIPTIONS, data=form, files={"file": ("a.wav", b"no audio")}), 422, "file")


def message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"model": "audex", "messages": [{"role": "user", "content": list(parts)}], "max_tokens": 8}


HEARD = {"type": "input_audio", "input_audio": {"data": base64.b64encode(reference_wav()).decode(), "format": "wav"}}
ASKED = {"type": "text", "text": "What is this?"}


def test_a_question_about_a_recording_is_answered(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as sdk:
        answer = sdk.chat.completions.create(**message(HEARD, ASKED))
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert isinstance(answer.choices[0].message.content, str)
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 8


def test_chats_that_no_model_can_serve_are_refused(web: httpx.Client) -> None:
    chat = "/v1/chat/completions"
    refused(web.post(chat, json=message(ASKED)), 400, "messages")
    refused(web.post(chat, json=message(HEARD)), 400, "messages")
    refused(web.post(chat, json=message(HEARD, ASKED) | {"modalities": ["text", "audio"]}), 400, "messages")
    refused(web.post(chat, json=message(HEARD, ASKED) | {"audio": {"format": "wav"}}), 400, "audio")
    spoken = message(HEARD) | {"modalities": ["text", "audio"], "stream": True}
    refused(web.post(chat, json=spoken), 400, "stream")
    refused(web.post(chat, json=message(HEARD, ASKED) | {"stream_options": {}}), 400, "stream_options")
    refused(web.post(chat, json=message(HEARD, ASKED) | {"stream": True, "model": MODEL}), 400, "task")
    refused(web.post(chat, json=message(HEARD, ASKED) | {"messages": []}), 400, "messages")
    refused(web.post(chat, json=message(HEARD, ASKED) | {"model": MODEL}), 400, "task")


def test_a_spoken_answer_has_the_shape_of_a_chat_completion() -> None:
    fields = message(HEARD) | {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "flac"}}
    audio = np.zeros(1600, np.float32)
    result = Result(
        audio=audio,
        sample_rate=16000,
        finish_reason="stop",
        seed=1,
        timings=Timings(queued_s=0, first_audio_s=0, total_s=1, audio_s=0.1),
        pieces=(),
        usage={"input_tokens": 3, "output_tokens": 5, "total_tokens": 8},
        text="Hello.",
    )
    completion = openai.types.chat.ChatCompletion.model_validate(
        _completion(ChatBody.model_validate(fields), "audex", result)
    )
    spoken = completion.choices[0].message.audio
    assert spoken is not None
    assert spoken.transcript == "Hello."
    assert len(decode(base64.b64decode(spoken.data))[0]) == 1600


def test_silence_instead_of_words_is_an_error_not_an_answer(web: httpx.Client) -> None:
    response = web.post("/v1/chat/completions", json=message(HEARD) | {"modalities": ["text", "audio"]})
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "generation_error"


def test_a_recording_beyond_the_limit_is_refused_by_its_length(web: httpx.Client) -> None:
    audio = {"audio": base64.b64encode(reference_wav(3.0)).decode()}
    refused(web.post(EDITS, json={"model": "auk", **PITCH} | audio), 422, "audio")
