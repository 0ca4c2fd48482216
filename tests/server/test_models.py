"""Several models in one server: loaded when asked for, unloaded when idle, within a budget; with stand-ins."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from oscine.cancellation import cancelled_when
from oscine.engine.engine import Engine, EngineOptions
from oscine.errors import (
    Cancelled,
    CheckpointError,
    EngineFailed,
    InvalidRequest,
    LoadFailed,
    NotReady,
    OscineError,
    UnknownModel,
)
from oscine.options import COMMON_OPTIONS
from oscine.server.app import create_app
from oscine.server.models import ModelRegistry, ModelSpec
from oscine.server.schemas import SpeechSettings
from oscine.server.state import ServerSettings, ServerState

from .conftest import SPEECH, body, make_registry, serving, wait_until


class Shelf:
    """Makes stand-in models and remembers what was loaded and closed."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def spec(self, name: str, num_bytes: int = 10) -> ModelSpec:
        def load() -> Any:
            self.gate.wait(10)
            self.log.append(f"+{name}")
            return SimpleNamespace(capabilities=name, close=lambda: self.log.append(f"-{name}"))

        return ModelSpec(id=name, load=load, num_bytes=num_bytes)

    def registry(self, *names: str, **options: Any) -> ModelRegistry:
        engine = Engine(EngineOptions(memory_bytes=1))
        return ModelRegistry([self.spec(name) for name in names], engine, **options)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def test_a_model_is_loaded_once_and_when_asked_for(shelf: Shelf) -> None:
    registry = shelf.registry("a", "b")
    assert shelf.log == []
    with registry.use("b") as one, registry.use("b") as two:
        assert one is two
    with registry.use("tts-1"):
        pass
    assert shelf.log == ["+b", "+a"]
    assert registry.capabilities("b") == "b"
    with pytest.raises(UnknownModel, match="served: a, b"), registry.use("c"):
        pass


def test_idle_models_make_room_the_longest_unused_first(shelf: Shelf) -> None:
    registry = shelf.registry("a", "b", "c", memory_bytes=25)
    with registry.use("a"), registry.use("b"), pytest.raises(NotReady, match="busy"), registry.use("c"):
        pass
    with registry.use("a"):
        pass
    with registry.use("c"):
        pass
    assert shelf.log == ["+a", "+b", "-b", "+c"]
    assert (registry.is_loaded("a"), registry.is_loaded("b")) == (True, False)
    with pytest.raises(InvalidRequest, match="budget"):
        shelf.registry("a", memory_bytes=5)


def test_only_what_nobody_uses_is_unloaded(shelf: Shelf) -> None:
    registry = shelf.registry("a", "b", idle_s=0.01)
    with registry.use("a"):
        with registry.use("b"):
            pass
        time.sleep(0.02)
        registry.unload_idle()
        assert shelf.log == ["+a", "+b", "-b"]
    time.sleep(0.02)
    registry.unload_idle()
    assert shelf.log[-1] == "-a"
    assert registry.capabilities("a") == "a"  # remembered


def test_requests_wait_for_a_model_that_is_loading_but_not_for_ever(shelf: Shelf) -> None:
    registry = shelf.registry("a", load_wait_s=0.05)
    shelf.gate.clear()
    results: list[Any] = []

    def use() -> None:
        with registry.use("a") as model:
            results.append(model)

    first = threading.Thread(target=use)
    first.start()
    time.sleep(0.02)
    with pytest.raises(NotReady, match="loading"), registry.use("a"):
        pass
    shelf.gate.set()
    first.join(10)
    assert len(results) == 1


def one_model(load: Callable[[], Any], **options: Any) -> ModelRegistry:
    spec = ModelSpec(id="a", load=load, num_bytes=1)
    return ModelRegistry([spec], Engine(EngineOptions(memory_bytes=1)), **options)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (CheckpointError("damaged"), CheckpointError),
        (MemoryError(), LoadFailed),
        (SystemExit(3), LoadFailed),
        (RuntimeError("secret"), LoadFailed),
    ],
    ids=repr,
)
def test_a_load_that_failed_is_tried_again_after_a_while_and_told_meanwhile(
    fault: BaseException, told: type[OscineError], caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    def load() -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise fault
        return SimpleNamespace(capabilities=None, close=lambda: None)

    registry = one_model(load, reload_s=1000)
    for _ in range(3):
        with pytest.raises(told) as raised, registry.use("a"):
            pass
        assert "secret" not in raised.value.message
    assert len(tries) == 1
    assert caplog.text.count("a cannot be loaded") == 1
    registry._slots["a"].retry_at = 0
    with registry.use("a"):
        pass
    registry.close()
    with pytest.raises(NotReady, match="shutting down"), registry.use("a"):
        pass


def test_names_must_differ(shelf: Shelf) -> None:
    with pytest.raises(InvalidRequest, match="one name"):
        shelf.registry("a", "a")
    with pytest.raises(InvalidRequest, match="at least one"):
        shelf.registry()


def test_two_models_over_http(tmp_path: Path) -> None:
    app = create_app(make_registry(tmp_path, "one", "two", idle_s=0.1))
    with serving(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        wait_until(lambda: not client.get("/v1/models/one").json()["loaded"])  # idle since the warm-up
        answer = client.post(SPEECH, json=body(model="two", response_format="pcm"))
        assert answer.status_code == 200
        assert client.post(SPEECH, json=body(model="tts-1", response_format="pcm")).content == answer.content
        listed = {model["id"]: model for model in client.get("/v1/models").json()["data"]}
        assert list(listed) == ["one", "two"]
        assert (listed["one"]["default"], listed["two"]["default"]) == (True, False)
        record = client.get("/v1/models/two").json()["capabilities"]
        assert record["tasks"] == ["speech"]
        assert record["options"]["top_k"]["type"] == "int"


def test_each_failed_load_is_waited_for_longer() -> None:
    def load() -> Any:
        raise MemoryError

    registry = one_model(load)
    waits = []
    for _ in range(8):
        registry._slots["a"].retry_at = 0
        with pytest.raises(LoadFailed), registry.use("a"):
            pass
        waits.append(round(registry.retry_s("a")))
    assert waits == [30, 60, 120, 240, 480, 600, 600, 600]


def test_whoever_leaves_does_not_wait_for_a_load_and_the_next_finds_it_done(shelf: Shelf) -> None:
    registry = shelf.registry("a")
    shelf.gate.clear()
    with pytest.raises(Cancelled), cancelled_when(lambda: registry._loading is not None), registry.use("a"):
        pass
    shelf.gate.set()
    with registry.use("a", patient=True):
        pass
    assert shelf.log == ["+a"]


@pytest.mark.parametrize(
    ("fault", "code", "word"),
    [
        (CheckpointError("damaged"), "checkpoint_error", "damaged"),
        (MemoryError(), "load_failed", "MemoryError"),
        (SystemExit(3), "load_failed", "SystemExit"),
        (RuntimeError("secret"), "load_failed", "RuntimeError"),
    ],
    ids=repr,
)
def test_the_default_model_that_cannot_be_loaded_leaves_the_server_unready(
    fault: BaseException, code: str, word: str
) -> None:
    def load() -> Any:
        raise fault

    app = create_app(one_model(load))

    async def ask() -> tuple[httpx.Response, httpx.Response]:
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                while "cannot be loaded" not in app.state.server.unready:
                    await asyncio.sleep(0.005)
                return await client.get("/ready"), await client.post(SPEECH, json=body(model="a"))

    ready, spoken = asyncio.run(ask())
    assert ready.status_code == 503
    assert word in ready.json()["error"]["message"]
    assert spoken.status_code == 500
    assert spoken.json()["error"]["code"] == code
    assert "secret" not in ready.text + spoken.text


def test_a_server_whose_model_loads_at_last_becomes_ready(tmp_path: Path) -> None:
    registry = make_registry(tmp_path, reload_s=0.05)
    slot = registry._slots[registry.default]
    load, tries = slot.spec.load, []

    def at_last() -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise MemoryError
        return load()

    slot.spec = replace(slot.spec, load=at_last)
    with serving(create_app(registry)) as url:
        assert httpx.get(f"{url}/ready", timeout=60).status_code == 200
    assert len(tries) == 3


def test_a_model_that_cannot_say_its_first_words_is_not_ready(tmp_path: Path) -> None:
    registry = make_registry(tmp_path)

    def fault(*args: Any, **options: Any) -> Any:
        raise RuntimeError("secret")

    async def ask() -> httpx.Response:
        with registry.use("tts-1") as model:
            model.generate = fault  # type: ignore[method-assign]
        app = create_app(registry)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                while not app.state.server.warm_up_fault:
                    await asyncio.sleep(0.005)
                return await client.get("/ready")

    answer = asyncio.run(ask())
    assert answer.status_code == 503
    assert "failed to speak: RuntimeError" in answer.json()["error"]["message"]
    assert "secret" not in answer.text


def test_a_broken_engine_is_told_at_once(tmp_path: Path) -> None:
    registry = make_registry(tmp_path)

    def leave() -> None:
        raise SystemExit(3)

    with serving(create_app(registry)) as url:
        with pytest.raises(EngineFailed):
            registry._engine.call(leave).result(10)
        ready = httpx.get(f"{url}/ready", timeout=60)
        spoken = httpx.post(url + SPEECH, json=body(), timeout=60)
        assert httpx.get(f"{url}/health", timeout=60).status_code == 200
    assert (ready.status_code, spoken.status_code) == (503, 500)
    assert "SystemExit" in ready.json()["error"]["message"]
    assert spoken.json()["error"]["code"] == "engine_failed"


def test_while_it_loads_a_server_says_when_to_come_back(tmp_path: Path) -> None:
    gate = threading.Event()
    registry = make_registry(tmp_path, load_wait_s=0.1)
    slot = registry._slots[registry.default]
    load = slot.spec.load
    slot.spec = replace(slot.spec, load=lambda: (gate.wait(100), load())[1])
    app = create_app(registry)

    async def ask() -> None:
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            while registry._loading is None:
                await asyncio.sleep(0.01)
            for response in await client.get("/ready"), await client.post(SPEECH, json=body()):
                assert response.status_code == 503
                assert response.json()["error"]["code"] == "not_ready"
                assert int(response.headers["retry-after"]) >= 1
            assert (await client.get("/health")).status_code == 200
            gate.set()
            while (await client.get("/ready")).status_code != 200:
                await asyncio.sleep(0.01)
            assert (await client.post(SPEECH, json=body())).status_code == 200

    asyncio.run(ask())


def test_the_warm_up_waits_for_a_request_that_came_first_however_long_it_loads(tmp_path: Path) -> None:
    """The server once never became ready when a request had begun to load the model before its own warm-up."""
    registry = make_registry(tmp_path, load_wait_s=0.01)
    slot = registry._slots[registry.default]
    load = slot.spec.load
    slot.spec = replace(slot.spec, load=lambda: (time.sleep(0.2), load())[1])
    state = ServerState(registry, ServerSettings())

    def use() -> None:
        with registry.use("tts-1"):
            pass

    first = threading.Thread(target=use)
    first.start()
    wait_until(lambda: registry._loading is not None)
    state.warm_up()
    assert state.ready
    first.join(60)
    registry.close()


def test_http_offers_every_common_option() -> None:
    assert COMMON_OPTIONS.keys() <= SpeechSettings.model_fields.keys()
