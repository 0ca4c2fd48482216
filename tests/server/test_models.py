"""Several models in one server: loaded when asked for, unloaded when idle, within a budget; with stand-ins."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from oscine.engine.engine import Engine, EngineOptions
from oscine.errors import CheckpointError, InvalidRequest, NotReady, UnknownModel
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


def test_a_model_that_fails_to_load_can_be_tried_again() -> None:
    tries: list[int] = []

    def load() -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise CheckpointError("damaged")
        return SimpleNamespace(capabilities=None, close=lambda: None)

    registry = ModelRegistry([ModelSpec(id="a", load=load, num_bytes=1)], Engine(EngineOptions(memory_bytes=1)))
    with pytest.raises(CheckpointError), registry.use("a"):
        pass
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


def test_the_default_model_that_cannot_be_loaded_leaves_the_server_unready(tmp_path: Path) -> None:
    def load() -> Any:
        raise CheckpointError("damaged")

    registry = ModelRegistry([ModelSpec(id="a", load=load, num_bytes=1)], Engine(EngineOptions(memory_bytes=1)))
    app = create_app(registry)

    async def ask() -> tuple[httpx.Response, httpx.Response]:
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
                while not app.state.server.load_error:
                    await asyncio.sleep(0.005)
                return await client.get("/ready"), await client.post(SPEECH, json=body(model="a"))

    ready, spoken = asyncio.run(ask())
    assert ready.status_code == 503
    assert "damaged" in ready.json()["error"]["message"]
    assert spoken.status_code == 500
    assert spoken.json()["error"]["code"] == "checkpoint_error"


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
            httpx.AsyncClient(transport=transport, base_url="http://app") as client,
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
