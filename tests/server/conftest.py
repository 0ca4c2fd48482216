"""A real server on the loopback interface over a tiny checkpoint, and what the tests read its audio with."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile as sf
import uvicorn
from fastapi import FastAPI

import oscine
from oscine.audio.limits import ReadLimits
from oscine.audio.recording import open_recording
from oscine.engine.engine import Engine, EngineOptions
from oscine.server.app import create_app
from oscine.server.models import ModelRegistry, ModelSpec
from oscine.server.run import config_for
from oscine.server.state import ServerSettings
from tests.unit.auk_factory import write_released

CHECKPOINT = Path(__file__).parents[1] / "golden" / "data" / "audio8" / "ckpt_dense_a"
AUDEX = CHECKPOINT.parents[1] / "audex" / "tiny_audex"
MODEL = "ckpt_dense_a"
SPEECH = "/v1/audio/speech"
UNTOLD_S = 600.0
"""No progress is told for so long: what events come does not depend on how busy the machine is."""


def make_registry(voices_dir: Path, *names: str, engine: Engine | None = None, **options: Any) -> ModelRegistry:
    """The tiny checkpoint under each of `names`, on one engine."""
    engine = engine or Engine(EngineOptions(memory_bytes=1 << 30, max_waiting=None))
    specs = [
        ModelSpec(
            id=name,
            load=lambda: oscine.load(CHECKPOINT, device="cpu", voices_dir=voices_dir, engine=engine),
            num_bytes=1 << 20,
        )
        for name in names or (MODEL,)
    ]
    return ModelRegistry(specs, engine, **options)


@contextlib.contextmanager
def serving(app: Any, *, send_buffer: int | None = None, **options: Any) -> Iterator[str]:
    """The base URL of a real uvicorn that serves `app`, as `oscine serve` does, until the block is left.

    `send_buffer` bounds the bytes that the kernel takes for a connection whose client does not read.
    """
    with socket.socket() as listener:
        if send_buffer:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        port = listener.getsockname()[1]
        options = {"timeout_graceful_shutdown": 2, "log_level": "critical"} | options
        config = config_for(app, **options) if isinstance(app, FastAPI) else uvicorn.Config(app, **options)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        base = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: ready(base), 100)
            yield base
        finally:
            server.should_exit = True
            thread.join(20)
        assert not thread.is_alive()


def ready(base: str) -> bool:
    try:
        return httpx.get(f"{base}/ready", timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    """Returns once `condition()` holds; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


@pytest.fixture(scope="session")
def voices_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server_voices")


@pytest.fixture(scope="session")
def app(voices_dir: Path) -> Any:
    settings = ServerSettings(max_input_chars=5000, max_body_bytes=1 << 20, progress_s=UNTOLD_S)
    return create_app(make_registry(voices_dir), settings)


@pytest.fixture(scope="session")
def base_url(app: Any) -> Iterator[str]:
    with serving(app) as url:
        yield url


@pytest.fixture(scope="session")
def client(base_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base_url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def families_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a tiny model of each family; recordings of two seconds at most, progress told all the time."""
    if not AUDEX.is_dir():
        pytest.skip(f"no miniature Audex checkpoint in {AUDEX.parent}")
    engine = Engine(EngineOptions(memory_bytes=1 << 30, max_waiting=None))
    folders = {MODEL: CHECKPOINT, "audex": AUDEX, "auk": write_released(tmp_path_factory.mktemp("auk"))}
    options: dict[str, Any] = {"device": "cpu", "voices_dir": tmp_path_factory.mktemp("voices"), "engine": engine}
    specs = [
        ModelSpec(id=name, load=partial(oscine.load, folder, **options), num_bytes=1)
        for name, folder in folders.items()
    ]
    with serving(create_app(ModelRegistry(specs, engine), ServerSettings(max_audio_s=2.0, progress_s=0.001))) as url:
        yield url


@pytest.fixture(scope="session")
def direct(voices_dir: Path) -> Iterator[oscine.Model]:
    """The same checkpoint without a server, to compare with."""
    with oscine.load(CHECKPOINT, device="cpu", voices_dir=voices_dir) as model:
        yield model


def body(**fields: Any) -> dict[str, Any]:
    """A short request to the tiny model, quick and repeatable."""
    return {"model": MODEL, "input": "Hello world.", "seed": 7, "max_new_tokens": 12} | fields


class _FrontToBack(sf.SoundFile):  # a streamed flac states no length, so it cannot be sought in
    def seekable(self) -> bool:
        return False


def decode(data: bytes) -> tuple[np.ndarray, int]:
    """Samples and rate of an encoded body; aac through PyAV."""
    try:
        file = _FrontToBack(io.BytesIO(data))
    except sf.LibsndfileError:
        with open_recording(io.BytesIO(data), ReadLimits(max_seconds=None)) as recording:
            return np.concatenate([block.mean(axis=1) for block in recording.blocks]), recording.rate
    with file:
        blocks = []
        while len(block := file.read(4096, dtype="float32")):
            blocks.append(block)
        return np.concatenate(blocks), file.samplerate


def series(client: httpx.Client) -> dict[str, float]:
    """What `/metrics` says, by name with labels."""
    lines = client.get("/metrics").text.splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def reference_wav(seconds: float = 1.0) -> bytes:
    """A tone with some noise as a WAV file of 24 kHz."""
    rng = np.random.default_rng(3)
    moment = np.arange(int(24000 * seconds)) / 24000
    tone = 0.3 * np.sin(2 * np.pi * 220 * moment) + 0.01 * rng.standard_normal(len(moment))
    out = io.BytesIO()
    sf.write(out, tone.astype(np.float32), 24000, format="WAV")
    return out.getvalue()


@pytest.fixture(scope="session")
def reference() -> bytes:
    return reference_wav()
