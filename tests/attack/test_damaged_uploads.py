"""Seeded damages to recordings in every container: each is read or refused, and costs nobody anything."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from oscine.audio.limits import SILENCE_DBFS
from oscine.errors import BadAudio, InputTooLong
from oscine.server.uploads import Uploads
from tests.recordings import good, mutated
from tests.server.conftest import AUDEX

from .harness import Server, server_process

NUM_DAMAGES = 2500
SHARE = 250
"""Of them, in the run by default over HTTP."""
TRANSCRIPTIONS = "/v1/audio/transcriptions"
MEMORY = 500 << 20
"""More than four decoders, their libraries and a recording take; less than they may."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server_process(tmp_path_factory.mktemp("damaged"), "--max-audio-s", "10", models=(str(AUDEX),)) as server:
        yield server


@pytest.mark.parametrize("part", range(5))
def test_a_damaged_recording_is_decoded_or_refused(part: int) -> None:
    uploads = Uploads(memory_bytes=1 << 26, max_bytes=1 << 20, timeout_s=100.0, wait_s=100.0, at_a_time=1)
    outcomes = {"read": 0, "refused": 0}
    try:
        for seed in range(part, NUM_DAMAGES, 5):
            name, data = mutated(seed)
            refusal: BadAudio | InputTooLong | None = None
            try:
                audio = uploads.decode(data, name, max_seconds=10)
            except (BadAudio, InputTooLong) as error:
                refusal = error
            outcomes["refused" if refusal else "read"] += 1
            if refusal is not None:
                assert refusal.param == name
                assert len(refusal.message) < 300
                continue
            assert np.isfinite(audio.samples).all()
            assert np.ptp(audio.samples) / 2 >= 10 ** (SILENCE_DBFS / 20)
            assert len(audio.samples) <= 10 * audio.sample_rate
            del audio
        gc.collect()
        assert uploads.memory.used == 0
    finally:
        uploads.close()
    assert min(outcomes.values()) > 100  # the damages are of both kinds


@pytest.mark.parametrize(
    "damages",
    [
        pytest.param(range(0, NUM_DAMAGES, NUM_DAMAGES // SHARE), id="share"),
        pytest.param(range(NUM_DAMAGES), id="all", marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
)
def test_a_damaged_upload_is_answered_or_refused(server: Server, damages: range, tmp_path: Path) -> None:
    fields = {"model": AUDEX.name, "max_new_tokens": "1"}
    with httpx.Client(base_url=server.url, timeout=100, trust_env=False) as client, server.watched() as watch:
        for seed in damages:
            name, data = mutated(seed)
            answer = client.post(TRANSCRIPTIONS, files={"file": data}, data=fields)
            assert answer.status_code in (200, 413, 422), (seed, name, answer.text)
            if answer.status_code != 200:
                assert answer.json()["error"]["param"] == "file", (seed, name)
        assert client.post(TRANSCRIPTIONS, files={"file": good()["amr"]}, data=fields).status_code == 200
    assert not watch.failures
    assert watch.memory_growth < MEMORY
