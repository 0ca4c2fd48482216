"""Voices over HTTP: listed, stored, kept over a restart, deleted; and the table of OpenAI's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from oscine.checkpoint.voice_names import DEFAULT_VOICE, OPENAI_VOICES
from oscine.server.app import create_app
from oscine.server.voices import openai_table
from oscine.types import Gender, Voice

from .conftest import MODEL, SPEECH, body, make_registry, reference_wav, serving

VOICES = "/v1/audio/voices"


def post(client: httpx.Client, audio: bytes, **fields: Any) -> httpx.Response:
    data = {"name": "tone", "ref_text": "A tone."} | fields
    return client.post(VOICES, data=data, files={"audio_sample": ("a.wav", audio)})


def listed(client: httpx.Client) -> dict[str, Any]:
    return {voice["id"]: voice for voice in client.get(VOICES).json()["voices"]}


def test_a_voice_is_stored_survives_a_restart_and_is_deleted(tmp_path: Path, reference: bytes) -> None:
    with serving(create_app(make_registry(tmp_path))) as url, httpx.Client(base_url=url, timeout=60) as client:
        made = post(client, reference, speaker_description="a tone", consent="c1", model=MODEL)
        assert made.status_code == 200, made.text
        assert made.json().items() >= {"object": "audio.voice", "id": "tone", "name": "tone"}.items()
        assert isinstance(made.json()["created_at"], int)
        assert listed(client)["tone"]["kind"] == "stored"
        assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".safetensors"]
        spoken = client.post(SPEECH, json=body(voice="tone", response_format="pcm")).content
        again = post(client, reference)
        assert again.status_code == 409
        assert again.json()["error"]["code"] == "voice_exists"
    with serving(create_app(make_registry(tmp_path))) as url, httpx.Client(base_url=url, timeout=60) as client:
        assert listed(client)["tone"]["description"] == "a tone"
        assert client.post(SPEECH, json=body(voice={"id": "tone"}, response_format="pcm")).content == spoken
        assert client.delete(f"{VOICES}/tone").json()["deleted"] is True
        gone = client.delete(f"{VOICES}/tone")
        assert gone.status_code == 404
        assert gone.json()["error"]["code"] == "voice_not_found"
        assert client.post(SPEECH, json=body(voice="tone")).status_code == 404


@pytest.mark.parametrize(
    ("audio", "fields", "param"),
    [
        (b"no audio at all", {}, "audio_sample"),
        (b"", {}, "audio_sample"),
        (reference_wav(0.1), {}, "audio_sample"),
        (reference_wav(), {"name": "../../x"}, "name"),
        (reference_wav(), {"name": ""}, "name"),
        (reference_wav(), {"name": "default"}, "name"),
        (reference_wav(), {"name": "Alloy"}, "name"),
        (reference_wav(), {"ref_text": ""}, "ref_text"),
        (reference_wav(), {"colour": "red"}, "colour"),
    ],
)
def test_what_cannot_become_a_voice_is_refused_by_name(
    client: httpx.Client, audio: bytes, fields: dict[str, Any], param: str
) -> None:
    response = post(client, audio, **fields)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
    assert "tone" not in listed(client)


def test_the_list_suits_every_client_and_shows_the_table(client: httpx.Client) -> None:
    answer = client.get(VOICES).json()
    assert answer["object"] == "list"
    assert answer["voices"] == answer["data"]
    assert all(isinstance(voice["id"], str) and voice["name"] for voice in answer["voices"])
    assert answer["openai_voices"] == dict.fromkeys(OPENAI_VOICES, DEFAULT_VOICE)  # this model has no voices of its own
    assert client.get(VOICES, params={"model": "no-such"}).status_code == 404


def test_openai_names_mean_voices_of_their_kind_and_yield_to_one_of_that_name() -> None:
    def voice(name: str, gender: Gender) -> Voice:
        return Voice(name=name, family="toy", speaker=0, gender=gender)

    table = openai_table([voice("ann", "female"), voice("bob", "male"), voice("cat", "female"), voice("echo", "")])
    assert list(table) == list(OPENAI_VOICES)
    women = [table[name] for name, gender in OPENAI_VOICES.items() if gender == "female"]
    assert women == ["ann", "cat", "ann", "cat", "ann", "cat"]
    assert {table[name] for name, gender in OPENAI_VOICES.items() if gender == "male"} == {"bob", "echo"}
    assert table["echo"] == "echo"


def test_a_model_without_a_kind_of_voice_speaks_with_all_it_has() -> None:
    own = [Voice(name=name, family="toy", speaker=0) for name in ("ann", "bob")]
    assert list(openai_table(own).values())[:4] == ["ann", "ann", "bob", "ann"]
    assert set(openai_table([]).values()) == {DEFAULT_VOICE}
