"""Uploads share one budget of decoded audio, and are not decoded for a model that has no use for them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from oscine.errors import BadAudio, InputTooLong, QueueFull
from oscine.server.app import create_app
from oscine.server.state import ServerSettings
from oscine.server.uploads import MAX_CHANNELS, AudioMemory, Uploads
from tests.recordings import base64_of, by_sndfile, flac, good, playlists

from .conftest import MODEL, SPEECH, body, make_registry, serving

WAV = good()["WAV-PCM_16"]
WAV_BYTES = 11_200 * 4
TRANSCRIPTIONS, EDITS, CHAT, VOICES = (
    "/v1/audio/transcriptions",
    "/v1/audio/edits",
    "/v1/chat/completions",
    "/v1/audio/voices",
)


def make(memory_bytes: int = 1 << 30, wait_s: float = 100.0) -> Uploads:
    return Uploads(memory_bytes=memory_bytes, max_bytes=1 << 20, timeout_s=100.0, wait_s=wait_s, at_a_time=1)


@pytest.fixture
def uploads() -> Iterator[Uploads]:
    uploads = make()
    yield uploads
    uploads.close()


def test_the_budget_is_held_for_as_long_as_the_samples_are(uploads: Uploads) -> None:
    first = uploads.decode(WAV, "file")
    second = uploads.decode(good()["FLAC-PCM_16"], "file")
    assert uploads.memory.used == 2 * WAV_BYTES
    view = first.samples[100:200]
    del first
    gc.collect()
    assert uploads.memory.used == 2 * WAV_BYTES  # what is looked at is still there
    del view, second
    gc.collect()
    assert uploads.memory.used == 0


def test_what_was_refused_holds_nothing(uploads: Uploads) -> None:
    for data in (b"no audio", WAV[:300], flac(16_000, 1, 100), flac(16_000, 1, 4, stated=16_000 * 40)):
        with pytest.raises(BadAudio):
            uploads.decode(data, "file")
    gc.collect()
    assert uploads.memory.used == 0


def test_a_recording_that_finds_no_room_waits_for_it_and_is_refused_in_the_end() -> None:
    uploads = make(memory_bytes=WAV_BYTES * 3 // 2, wait_s=0.05)
    try:
        held = [uploads.decode(WAV, "file")]
        with pytest.raises(QueueFull, match="other requests") as error:
            uploads.decode(WAV, "file")
        assert error.value.retry_after_s > 0
        held.clear()
        gc.collect()
        assert len(uploads.decode(WAV, "file").samples) == 11_200
    finally:
        uploads.close()


def test_a_recording_that_never_fits_is_told_so_by_its_header_or_on_the_way() -> None:
    uploads = make(memory_bytes=WAV_BYTES)
    try:
        for stated in (None, 0):  # a length of 0 states none
            with pytest.raises(InputTooLong, match="all recordings together have 0 MB") as error:
                uploads.decode(flac(16_000, 1, 20, stated=stated), "file")
            assert error.value.param == "file"
        gc.collect()
        assert uploads.memory.used == 0
        assert len(uploads.decode(WAV, "file").samples) == 11_200
    finally:
        uploads.close()


def test_a_waiting_recording_goes_on_when_there_is_room() -> None:
    memory = AudioMemory(100, 100.0)
    first, second = memory.lease("a"), memory.lease("b")
    first.cover(20)
    samples = np.zeros(10, np.float32)
    first.last_as_long_as(samples)
    assert memory.used == 40
    second.cover(15)
    assert memory.used == 100
    del samples
    gc.collect()
    assert memory.used == 60
    second.release()
    second.release()
    assert memory.used == 0


# Over HTTP


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the tiny model of speech and room for two seconds at 48 kHz of decoded audio."""
    settings = ServerSettings(audio_memory_bytes=2 * 48_000 * 4, upload_wait_s=0.1)
    with serving(create_app(make_registry(tmp_path_factory.mktemp("voices")), settings)) as url:
        yield url


def test_limits_are_told_with_their_status_and_field(small: str) -> None:
    def speak(data: bytes) -> httpx.Response:
        return httpx.post(small + SPEECH, json=body(ref_audio=base64_of(data), ref_text="A tone."), timeout=60)

    assert speak(WAV).status_code == 200
    for data, status, words in (
        (flac(655_350, 1, 1), 422, "655350 Hz"),
        (flac(48_000, 8, 5), 413, "decoded it takes"),
        (by_sndfile("WAV", "PCM_16", num_channels=MAX_CHANNELS + 1), 422, "17 channels; from 1 to 16"),
        (flac(48_000, 1, 100), 422, "the limit is 60 s"),
        *((data, 422, "none of wav") for data in playlists("tests").values()),
    ):
        response = speak(data)
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (status, "ref_audio"), error
        assert words in error["message"]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (TRANSCRIPTIONS, {"files": {"file": b"no audio"}, "data": {"model": MODEL}}),
        (EDITS, {"files": {"audio": b"no audio"}, "data": {"model": MODEL, "instructions": "louder"}}),
        (EDITS, {"json": {"model": MODEL, "instructions": "louder", "audio": "AAAA"}}),
        (
            CHAT,
            {
                "json": {
                    "model": MODEL,
                    "messages": [
                        {
                            "role": "user",
                            "content": [
                                {"type": "input_audio", "input_audio": {"data": "AAAA"}},
                                {"type": "text", "text": "What is it?"},
                            ],
                        }
                    ],
                }
            },
        ),
    ],
)
def test_no_recording_is_looked_at_for_a_model_without_the_task(small: str, path: str, fields: dict[str, Any]) -> None:
    response = httpx.post(small + path, timeout=60, **fields)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "unsupported_feature"


def test_no_recording_is_looked_at_for_a_model_that_cannot_clone(families_url: str) -> None:
    with httpx.Client(base_url=families_url, timeout=60) as client:
        fields = {"model": "audex", "input": "Hi.", "ref_audio": "AAAA", "ref_text": "A tone."}
        spoken = client.post(SPEECH, json=fields)
        made = client.post(
            VOICES, data={"model": "audex", "name": "mine", "ref_text": "x"}, files={"audio_sample": b"x"}
        )
    for response, param in ((spoken, "ref_audio"), (made, "audio_sample")):
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["param"]) == (400, "unsupported_feature", param)


def test_a_voice_is_made_from_what_a_phone_records(small: str) -> None:
    for number, name in enumerate(("m4a-aac", "webm-opus", "OGG-OPUS")):
        fields = {"name": f"phone-{number}", "ref_text": "A tone."}
        made = httpx.post(small + VOICES, data=fields, files={"audio_sample": good()[name]}, timeout=60)
        assert made.status_code == 200, made.text
    damaged = httpx.post(small + VOICES, data=fields | {"name": "other"}, files={"audio_sample": b"x"}, timeout=60)
    assert (damaged.status_code, damaged.json()["error"]["param"]) == (400, "audio_sample")


def test_the_server_leaves_no_decoder_behind(tmp_path: Path) -> None:
    app = create_app(make_registry(tmp_path))
    with serving(app) as url:
        data = {"name": "phone", "ref_text": "A tone."}
        assert httpx.post(url + VOICES, data=data, files={"audio_sample": WAV}, timeout=60).status_code == 200
        (decoder,) = app.state.server.uploads._decoders._idle
        assert decoder._process.poll() is None
    assert decoder._process.returncode is not None
