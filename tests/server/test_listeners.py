"""Many clients at a time over real sockets, in the time of a clock that the model's steps move on.

What is asserted are frames, order and simulated seconds; how busy the machine is changes none of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from oscine.engine.engine import Engine, EngineOptions
from oscine.engine.pacing import Pace
from oscine.server.app import create_app
from oscine.server.models import ModelRegistry
from oscine.server.state import ServerSettings
from oscine.types import Job
from tests.simulated import Clock

from .conftest import SPEECH, body, make_registry, series, serving, wait_until

STEP_S = 0.008
"""What each job adds to a step: about five requests can be listened to, at 43 frames in two seconds of audio."""
STREAM = "/v1/audio/speech/stream"


class Slowed:
    """The tiny model on an engine whose steps take simulated time; `paces` are those of the requests, as they came."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.paces = Clock(), list[Pace]()
        options = EngineOptions(memory_bytes=1 << 30, max_waiting=None, decode_in_background=False)
        self.engine = Engine(options, self.clock)
        self.registry: ModelRegistry = make_registry(folder, engine=self.engine)
        self.most_together = 0

    def slow_down(self) -> None:
        """From now on steps take their time."""
        with self.registry.use(self.registry.default) as model:
            stepper = model._family.step_model()
        step, arrive = stepper.step, self.engine._admission.arrive

        def slowly(jobs: Sequence[Job]) -> Any:
            self.clock.now += STEP_S * len(jobs)
            self.most_together = max(self.most_together, len(self.engine._admission.listening))
            return step(jobs)

        def noted(pace: Pace, now: float) -> None:
            self.paces.append(pace)
            arrive(pace, now)

        stepper.step, self.engine._admission.arrive = slowly, noted  # type: ignore[method-assign]


@contextmanager
def slowed(folder: Path, **settings: Any) -> Iterator[tuple[Slowed, httpx.Client]]:
    made = Slowed(folder)
    app = create_app(made.registry, ServerSettings(**settings))
    limits = httpx.Limits(max_connections=None)
    with serving(app) as url, httpx.Client(base_url=url, timeout=90, limits=limits) as client:
        made.slow_down()
        yield made, client


def ask(client: httpx.Client, seed: int, **fields: Any) -> httpx.Response:
    wanted = body(seed=seed, response_format="pcm", max_new_tokens=43, input="Hello world, said the man.") | fields
    return client.post(SPEECH, json=wanted)


def test_many_listeners_hear_without_a_pause_what_they_would_hear_alone(tmp_path: Path) -> None:
    seeds = range(16)
    with slowed(tmp_path) as (made, client), ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda seed: ask(client, seed), seeds))
        assert {answer.status_code for answer in answers} == {200}
        listened = [pace for pace in made.paces if pace.live]
        assert len(listened) == 16
        assert [pace.paused_s for pace in listened] == [0.0] * 16
        assert 1 < made.most_together < 12
        for seed in seeds:
            assert ask(client, seed).content == answers[seed].content
        figures = series(client)
        assert figures["oscine_listeners"] == figures["oscine_listeners_waiting"] == 0
        assert figures['oscine_listener_places{model="ckpt_dense_a"}'] >= 2
        assert figures['oscine_audio_rate{model="ckpt_dense_a",requests="1"}'] > 2


def test_who_would_wait_too_long_gets_429_and_retry_after_and_is_served_then(tmp_path: Path) -> None:
    with slowed(tmp_path, max_wait_s=2.0) as (made, client), ThreadPoolExecutor(64) as pool:
        assert ask(client, 0).status_code == 200  # so that the rate is known
        answers = list(pool.map(lambda seed: ask(client, seed), range(40)))
        refused = [answer for answer in answers if answer.status_code != 200]
        assert 5 < len(refused) < 40
        for answer in refused:
            assert answer.status_code == 429
            assert answer.json()["error"]["code"] == "queue_full"
            assert "would wait about" in answer.json()["error"]["message"]
            assert 1 <= int(answer.headers["retry-after"]) < 60
        assert all(pace.paused_s == 0.0 for pace in made.paces if pace.complete)
        assert ask(client, 1).status_code == 200
        figures = series(client)
        assert figures[f'oscine_requests_total{{endpoint="{SPEECH}",outcome="rejected"}}'] == len(refused)


def test_what_nobody_listens_to_is_never_refused_and_never_in_the_way(tmp_path: Path) -> None:
    with slowed(tmp_path, max_wait_s=0.5) as (made, client), ThreadPoolExecutor(64) as pool:
        whole = [pool.submit(ask, client, seed, stream=False) for seed in range(12)]
        wait_until(lambda: len(made.paces) >= 12)
        heard = ask(client, 100)
        assert heard.status_code == 200
        assert {answer.result().status_code for answer in whole} == {200}
        (listener,) = (pace for pace in made.paces if pace.live)
        assert listener.paused_s == 0.0
        fields = {name: value for name, value in body().items() if name != "input"}
        items = [{"input": "Hello world.", "seed": seed} for seed in range(6)]
        batch = client.post(f"{SPEECH}/batch", json=fields | {"items": items}).json()
        assert (batch["succeeded"], batch["failed"]) == (6, 0)
    assert all(pace.complete for pace in made.paces)
    assert len([pace for pace in made.paces if pace.live]) == 1


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_one_who_waits_and_leaves_leaves_nothing_behind(tmp_path: Path, stream_format: str) -> None:
    with slowed(tmp_path) as (made, client), ThreadPoolExecutor(64) as pool:
        held = [pool.submit(ask, client, seed, max_new_tokens=400, input="Hello world. " * 60) for seed in range(6)]
        wait_until(lambda: len(made.paces) >= 6)
        late = httpx.Client(base_url=client.base_url, timeout=0.3)
        with pytest.raises(httpx.TimeoutException):
            ask(late, 7, stream_format=stream_format)
        late.close()
        wait_until(lambda: len(made.paces) < 7 or made.paces[-1].closed or made.paces[-1].over, 60)
        made.registry.close()
        for answer in held:
            answer.exception()
    assert made.engine.stats().running == 0


def test_the_sentences_of_a_session_are_heard_one_after_the_other_without_a_pause(tmp_path: Path) -> None:
    with slowed(tmp_path, max_wait_s=0.5) as (made, client), ThreadPoolExecutor(64) as pool:
        assert ask(client, 0).status_code == 200
        crowd = [pool.submit(ask, client, seed) for seed in range(20)]
        address = str(client.base_url).replace("http", "ws")
        with connect(address + STREAM, max_size=None) as socket:
            config = {"type": "session.config", "response_format": "pcm", "seed": 1, "max_new_tokens": 43}
            socket.send(json.dumps(config))
            assert json.loads(socket.recv(60))["type"] == "session.configured"
            before = len(made.paces)
            socket.send(json.dumps({"type": "input.text", "text": "The first one is here. The second one is too. "}))
            socket.send(json.dumps({"type": "input.done"}))
            kinds = []
            while "session.done" not in kinds:
                message = socket.recv(60)
                if isinstance(message, str):
                    told = json.loads(message)
                    kinds.append(told["type"])
                    refused_first = told["type"] == "error" and told.get("sentence_index") == 0
                    assert told["type"] != "error" or refused_first, told
        for answer in crowd:
            assert answer.result().status_code in (200, 429)
        own = [pace for pace in made.paces[before:] if pace.live and pace.live.max_wait_s is None]
        assert len(own) == 1, "only the second sentence waits as long as it takes"
