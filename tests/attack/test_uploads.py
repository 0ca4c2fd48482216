"""Uploads that want more than to be decoded: files, sockets, memory."""

from __future__ import annotations

import threading
import wave
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import recordings
from tests.recordings import base64_of, by_sndfile, flac, good, m4a
from tests.server.conftest import AUDEX, CHECKPOINT, SPEECH, body, wait_until

from .harness import Server, server_process

VOICES, TRANSCRIPTIONS = "/v1/audio/voices", "/v1/audio/transcriptions"
SPEAKS, HEARS = CHECKPOINT.name, AUDEX.name
BUDGET_GB = 0.1
DECODERS = 4 * (80 << 20)
"""What the processes that decode take when they are new."""
FOR_A_RECORDING = 64 << 20
"""What may be taken beside the budget: bodies, blocks, mel frames."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("uploads")
    arguments = ("--audio-memory", str(BUDGET_GB), "--max-audio-s", "700", "--decode-timeout-s", "100")
    with server_process(folder, *arguments, models=(str(CHECKPOINT), str(AUDEX))) as server:
        for fields in (transcribed(good()["WAV-PCM_16"]), spoken_like(good()["m4a-aac"])):
            assert ask(server, fields).status_code == 200  # everything is loaded
        yield server


def transcribed(data: bytes, model: str = HEARS) -> dict[str, Any]:
    fields = {"model": model, "max_new_tokens": "2"}
    return {"url": TRANSCRIPTIONS, "files": {"file": data}, "data": fields}


def spoken_like(data: bytes) -> dict[str, Any]:
    return {"url": SPEECH, "json": body(model=SPEAKS, ref_audio=base64_of(data), ref_text="A tone.")}


def stored(data: bytes) -> dict[str, Any]:
    return {"url": VOICES, "files": {"audio_sample": data}, "data": {"name": "mine", "ref_text": "A tone."}}


def ask(server: Server, fields: dict[str, Any]) -> httpx.Response:
    with httpx.Client(base_url=server.url, timeout=100, trust_env=False) as client:
        return client.post(**fields)


def ask_at_once(server: Server, requests: Sequence[dict[str, Any]]) -> Counter[int]:
    """How often each status was answered."""
    answers: list[int] = []
    threads = [threading.Thread(target=lambda f=f: answers.append(ask(server, f).status_code)) for f in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == len(requests)
    return Counter(answers)


@pytest.mark.parametrize("way", [transcribed, spoken_like, stored])
def test_a_playlist_reads_nothing_and_tells_nothing(server: Server, tmp_path: Path, way: Any) -> None:
    there = tmp_path / "some.wav"
    there.write_bytes(by_sndfile("WAV", "PCM_16"))
    with server.watched() as watch:
        messages = set()
        for path in (there, tmp_path / "none.wav"):
            for data in recordings.playlists(str(path)).values():
                answer = ask(server, way(data))
                assert answer.status_code == (400 if way is stored else 422)
                messages.add(answer.json()["error"]["message"])
    assert len(messages) == 1
    assert "some.wav" not in str(messages)
    assert not watch.failures
    assert watch.memory_growth < FOR_A_RECORDING


def test_a_movie_does_not_get_at_the_file_it_refers_to(server: Server, tmp_path: Path) -> None:
    there = tmp_path / "some.wav"
    with wave.open(str(there), "wb") as file:
        file.setparams((1, 2, recordings.RATE, 0, "NONE", ""))
        file.writeframes(bytes(range(256)) * 1000)
    answers = []
    for path in (there, tmp_path / "none.wav"):
        reference = recordings.alias(str(path))
        answers.append(ask(server, transcribed(m4a(60_000, data=b"", reference=reference, place=44))))
    assert [answer.status_code for answer in answers] == [422, 422]
    assert answers[0].json() == answers[1].json()


def test_bombs_are_refused_by_the_task_and_by_the_header(server: Server) -> None:
    bomb = flac(48_000, 8, 600)
    with server.watched() as watch:
        for fields, status, words in (
            (transcribed(bomb, SPEAKS), 400, "cannot do 'transcribe'"),
            (transcribed(flac(655_350, 8, 60)), 422, "655350 Hz; from 4000 to 384000"),
            (transcribed(flac(48_000, 8, 1800)), 422, "the limit is 700 s"),
            (stored(bomb), 400, "the limit is 60 s"),
            (spoken_like(bomb), 422, "the limit is 60 s"),
            (transcribed(by_sndfile("WAV", "PCM_16", num_channels=200)), 422, "200 channels; from 1 to 16"),
            (transcribed(bomb), 413, "all recordings together have 107 MB"),
        ):
            answer = ask(server, fields)
            assert answer.status_code == status, answer.text
            assert words in answer.json()["error"]["message"]
    assert not watch.failures
    assert watch.memory_growth < FOR_A_RECORDING


def test_tables_of_a_few_bytes_that_claim_millions_of_packets_take_no_memory(server: Server) -> None:
    bomb = m4a(50_000_000)
    assert len(bomb) < 5000
    with server.watched() as watch:
        assert set(ask_at_once(server, [transcribed(bomb)] * 6)) == {422}
    assert not watch.failures
    assert watch.memory_growth < DECODERS + FOR_A_RECORDING
    assert ask(server, spoken_like(good()["webm-opus"])).status_code == 200


def test_long_recordings_share_one_budget_whatever_their_headers_state(server: Server) -> None:
    """Each takes 77 MB decoded, so that two at a time are too many; half of them state no length."""
    each = [transcribed(flac(48_000, 8, 400, stated=stated)) for stated in (None, 0)]
    with server.watched() as watch:
        answers = ask_at_once(server, each * 4)
    assert set(answers) <= {413, 429}  # for the miniature model it is too long in the end
    assert not watch.failures
    assert watch.memory_growth < BUDGET_GB * 2**30 + DECODERS + 3 * FOR_A_RECORDING
    assert ask(server, spoken_like(good()["webm-opus"])).status_code == 200


def test_the_processes_that_decode_end_with_the_server(tmp_path: Path) -> None:
    with server_process(tmp_path) as server:
        assert ask(server, spoken_like(good()["WAV-PCM_16"])).status_code == 200
        (decoder,) = server.children()
        server.process.kill()
        server.process.wait(60)
        wait_until(lambda: _has_ended(decoder))


def _has_ended(process: int) -> bool:
    """Whether it has; who adopts it may leave it as a zombie."""
    status = Path(f"/proc/{process}/stat")
    return not status.exists() or status.read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
