"""A real server on the loopback interface over a tiny checkpoint, and what the tests read its audio with."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile as sf
import uvicorn

import oscine
from oscine.engine.engine import Engine, EngineOptions
from oscine.server.app import create_app
from oscine.server.models import ModelRegistry, ModelSpec
from oscine.server.state import ServerSettings

CHECKPOINT = Path(__file__).parents[1] / "golden" / "data" / "audio8" / "ckpt_dense_a"
MODEL = "ckpt_dense_a"
SPEECH = "/v1/audio/speech"


def make_registry(voices_dir: Path, *names: str, **options: Any) -> ModelRegistry:
    """The tiny checkpoint under each of `names`, on one engine."""
    engine = Engine(EngineOptions(memory_bytes=1 << 30))
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
def serving(app: Any, **options: Any) -> Iterator[str]:
    """The base URL of a real uvicorn that serves `app` until the block is left."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        port = listener.getsockname()[1]
        options = {"timeout_graceful_shutdown": 2} | options
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        base = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: ready(base), 60)
            yield base
        finally:
            server.should_exit = True
            thread.join(20)
        assert not thread.is_alive()


def ready(base: str) -> bool:
    try:
        return httpx.get(f"{base}/ready").status_code == 200
    except httpx.TransportError:
        return False


def wait_until(condition: Any, seconds: float = 10.0) -> None:
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
    return create_app(make_registry(voices_dir), ServerSettings(max_input_chars=5000, max_body_bytes=1 << 20))


@pytest.fixture(scope="session")
def base_url(app: Any) -> Iterator[str]:
    with serving(app) as url:
        yield url


@pytest.fixture(scope="session")
def client(base_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base_url, timeout=60) as client:
        yield client


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
        from oscine.audio.pyav import decode as decode_with_ffmpeg

        samples, rate, _ = decode_with_ffmpeg(io.BytesIO(data), max_seconds=None)
        return samples, rate
    with file:
        blocks = []
        while len(block := file.read(4096, dtype="float32")):
            blocks.append(block)
        return np.concatenate(blocks), file.samplerate


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
