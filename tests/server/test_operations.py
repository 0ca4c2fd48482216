"""Running it: leaving clients, limits, health under load, metrics, keys, broken streams, shutting down."""

from __future__ import annotations

import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from oscine.engine.admission import PacingStats
from oscine.errors import GenerationError
from oscine.server.app import create_app
from oscine.server.loading import engine_for
from oscine.server.metrics import FRAMES_WINDOW_S, Metrics
from oscine.server.state import ServerSettings, ServerState

from .conftest import CHECKPOINT, SPEECH, body, make_registry, series, serving, wait_until

LONG = " ".join(f"Sentence number {n} is here, and it goes on for a little while longer." for n in range(60))
FRAMES = "oscine_frames_total"
ENDLESS = {"input": LONG, "max_new_tokens": 200, "response_format": "pcm"}


def busy(state: ServerState) -> bool:
    stats = state.models.stats()
    return bool(stats.running or stats.waiting)


@pytest.fixture
def state(app: Any) -> ServerState:
    return app.state.server


@pytest.fixture(scope="module")
def frames_of_all(client: httpx.Client) -> float:
    """How many frames a client that stays gets."""
    before = series(client)[FRAMES]
    assert client.post(SPEECH, json=body(**ENDLESS), timeout=600).status_code == 200
    return series(client)[FRAMES] - before


@pytest.mark.parametrize("fields", [{}, {"stream_format": "sse"}, {"stream": False}], ids=["raw", "sse", "whole"])
def test_a_client_that_leaves_ends_its_jobs(
    client: httpx.Client, state: ServerState, frames_of_all: float, fields: dict[str, Any]
) -> None:
    wait_until(lambda: not busy(state))
    before = series(client)
    if fields.get("stream") is False:  # leaves before there is a response
        with pytest.raises(httpx.ReadTimeout):
            client.post(SPEECH, json=body(**ENDLESS, **fields), timeout=0.5)
    else:
        with client.stream("POST", SPEECH, json=body(**ENDLESS, **fields)) as response:
            chunks = response.iter_raw()  # held: an iterator that is dropped closes the connection
            next(chunks)
            assert busy(state)
    wait_until(lambda: not busy(state))
    wait_until(lambda: state.active == 0)
    assert series(client)[FRAMES] - before[FRAMES] < frames_of_all / 2
    name = f'oscine_requests_total{{endpoint="{SPEECH}",outcome="cancelled"}}'
    wait_until(lambda: series(client).get(name, 0) == before.get(name, 0) + 1)


def test_more_requests_than_may_be_are_told_when_to_come_back(voices_dir: Path) -> None:
    app = create_app(make_registry(voices_dir), ServerSettings(max_requests=1))
    with serving(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        with client.stream("POST", SPEECH, json=body(**ENDLESS)) as response:
            chunks = response.iter_raw()  # held: an iterator that is dropped closes the connection
            next(chunks)
            refused = client.post(SPEECH, json=body())
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.json()["error"]["code"] == "queue_full"
        wait_until(lambda: app.state.server.active == 0)
        assert client.post(SPEECH, json=body()).status_code == 200


def test_openai_sdk_comes_back_when_it_was_told_to(voices_dir: Path) -> None:
    app = create_app(make_registry(voices_dir), ServerSettings(max_requests=1))
    fields: dict[str, Any] = {"model": "tts-1", "voice": "alloy", "input": "Hi.", "extra_body": {"max_new_tokens": 8}}

    def rejected() -> int:
        return app.state.server.metrics._requests.get((SPEECH, "rejected"), 0)

    with (
        serving(app) as url,
        httpx.Client(base_url=url, timeout=60) as client,
        openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=2, timeout=60) as sdk,
        ThreadPoolExecutor(1) as pool,
    ):
        sdk.audio.speech.create(**fields)  # it imports a lot the first time
        with client.stream("POST", SPEECH, json=body(**ENDLESS)) as response:
            chunks = response.iter_raw()  # held: an iterator that is dropped closes the connection
            next(chunks)
            answer = pool.submit(sdk.audio.speech.create, **fields)
            wait_until(lambda: answer.done() or rejected())
            assert not answer.done(), answer.result()
        assert answer.result(60).response.headers["content-type"] == "audio/mpeg"


def test_what_has_been_let_in_never_lacks_room(tmp_path: Path) -> None:
    """A batch speaks several texts at a time, each several pieces ahead: more than the engine's queue once held."""
    engine = engine_for([str(CHECKPOINT)], device="cpu", offline=True)
    app = create_app(make_registry(tmp_path, engine=engine), ServerSettings(max_requests=1, batch_parallel=8))
    text = " ".join(f"Sentence number {n} is here, and it goes on for a little while longer." for n in range(12))
    fields = {"model": "tts-1", "max_new_tokens": 2, "response_format": "pcm", "items": [{"input": text}] * 8}
    with serving(app) as url:
        answer = httpx.post(f"{url}{SPEECH}/batch", json=fields, timeout=100).json()
    assert (answer["succeeded"], answer["failed"]) == (8, 0), answer["results"][-1].get("error")


def test_a_key_is_asked_for_where_it_matters(voices_dir: Path) -> None:
    app = create_app(make_registry(voices_dir), ServerSettings(api_key="s3cret", websocket_idle_s=0.5))
    with serving(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}):
            response = client.post(SPEECH, json=body(), headers=headers)
            assert response.status_code == 401
            assert response.json()["error"]["code"] == "invalid_api_key"
            assert client.get("/v1/models", headers=headers).status_code == 401
        for header in ("Bearer s3cret", "bearer s3cret", "BEARER  s3cret"):  # RFC 9110, 11.1
            assert client.post(SPEECH, json=body(), headers={"Authorization": header}).status_code == 200
        assert client.get("/health").status_code == client.get("/").status_code == 200
        address = url.replace("http", "ws") + f"{SPEECH}/stream"
        with pytest.raises(InvalidStatus, match="403"), connect(address):
            pass
        with connect(address, additional_headers={"Authorization": "Bearer s3cret"}) as socket:
            idle = json.loads(socket.recv(timeout=60))  # the settings allow half a second of silence
            assert (idle["type"], idle["error"]["code"]) == ("error", "invalid_request")
            with pytest.raises(ConnectionClosed, match="1008"):
                socket.recv(timeout=60)


def test_pages_of_other_web_sites_may_not_use_it(client: httpx.Client) -> None:
    refused = client.post(SPEECH, json=body(), headers={"Sec-Fetch-Site": "cross-site"})
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "cross_site_request"
    assert client.post(SPEECH, json=body(), headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert "access-control-allow-origin" not in refused.headers


def test_metrics_count_what_happened(client: httpx.Client) -> None:
    before = series(client)
    client.post(SPEECH, json=body())
    client.post(SPEECH, json=body(colour="red"))
    client.post(SPEECH, json=body(voice="nobody"))  # which only the model can tell
    client.get("/no/such/page")
    after = series(client)

    failed = f'oscine_requests_total{{endpoint="{SPEECH}",outcome="failed"}}'

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert grown(f'oscine_requests_total{{endpoint="{SPEECH}",outcome="ok"}}') == 1
    assert grown(f'oscine_requests_total{{endpoint="{SPEECH}",outcome="invalid"}}') == 2
    assert after.get(failed, 0) == before.get(failed, 0)
    assert grown('oscine_requests_total{endpoint="other",outcome="invalid"}') == 1
    assert [grown(f"oscine_{name}_count") for name in ("ttfa_seconds", "rtf", "underrun_seconds")] == [1, 1, 1]
    assert grown("oscine_frames_total") == grown('oscine_tokens_total{kind="output"}') > 0
    assert grown('oscine_tokens_total{kind="input"}') > 0
    assert after["oscine_resident_memory_bytes"] > 1e7
    gauges = {"queue_depth", "running", "requests_active", "frames_per_second"}
    assert {f"oscine_{name}" for name in gauges} <= after.keys()


def test_frames_a_second_are_those_of_the_last_seconds() -> None:
    metrics = Metrics()
    metrics.made(70)
    metrics._recent[0] = (time.monotonic() - 2 * FRAMES_WINDOW_S, 70)
    metrics.made(30)
    metrics.made(20)
    pacing = PacingStats(listening=0, waiting=0, lead_s=None, wait_s=0.0, places={}, rates={})
    text = metrics.render(queue_depth=0, running=0, active=0, pacing=pacing)
    assert f"\noscine_frames_per_second {50 / FRAMES_WINDOW_S:g}\n" in text
    assert "\noscine_frames_total 120\n" in text


def test_one_log_line_a_request_without_its_text(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "oscine.server")
    response = client.post(SPEECH, json=body(input="Confidential words."))
    wait_until(lambda: caplog.records)
    (record,) = caplog.records
    words = dict(word.split("=", 1) for word in record.getMessage().removeprefix("request ").split(" "))
    assert words["id"] == response.headers["x-request-id"]
    assert (words["status"], words["outcome"], words["chars"], words["seed"]) == ("200", "ok", "19", "7")
    assert {"model", "audio_s", "ttfa_ms", "rtf", "finish_reason"} <= words.keys()
    assert "onfidential" not in caplog.text


class BreaksOff:
    """A stand-in for a stream that fails after its first chunks, or stalls there until it is cancelled."""

    def __init__(self, stream: Any, *, stalls: bool = False) -> None:
        self._stream, self._given, self._stalls = stream, 0, stalls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __next__(self) -> Any:
        self._given += 1
        if self._given > 2 and self._stalls:
            self._stream.plan.jobs[0].cancelled.wait(60)
            raise StopIteration
        if self._given > 2:
            self._stream.cancel()
            raise GenerationError("the model broke")
        return next(self._stream)

    def __iter__(self) -> BreaksOff:
        return self


def test_a_stream_that_breaks_has_no_clean_end(voices_dir: Path) -> None:
    registry = make_registry(voices_dir)
    with serving(create_app(registry)) as url, httpx.Client(base_url=url, timeout=60) as client:
        with registry.use("tts-1") as model:
            whole = model.stream
            model.stream = lambda *args, **fields: BreaksOff(whole(*args, **fields))  # type: ignore[method-assign]
        got: list[bytes] = []
        with client.stream("POST", SPEECH, json=body(**ENDLESS)) as response:
            assert response.status_code == 200
            with pytest.raises(httpx.RemoteProtocolError):
                got.extend(response.iter_raw())
        assert got
        text = client.post(SPEECH, json=body(**ENDLESS, stream_format="sse")).text
        last = json.loads(text.strip().split("\n\n")[-1].removeprefix("data: "))
        assert last["type"] == "speech.audio.error"
        assert last["error"]["code"] == "generation_error"
        assert "speech.audio.done" not in text


def test_a_fault_of_ours_is_told_as_such_and_nothing_more(voices_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    registry = make_registry(voices_dir)

    def fault(*args: Any, **fields: Any) -> Any:
        raise RuntimeError("secret")

    with serving(create_app(registry)) as url:
        with registry.use("tts-1") as model:
            model.stream = fault  # type: ignore[method-assign]
        response = httpx.post(url + SPEECH, json=body(), timeout=60)
        assert response.status_code == 500
        assert response.headers["x-request-id"].startswith("req_")
        assert response.json()["error"]["code"] == "internal_error"
        with connect(url.replace("http", "ws") + f"{SPEECH}/stream") as socket:
            socket.send(json.dumps({"type": "session.config"}))
            socket.send(json.dumps({"type": "input.text", "text": "Hello."}))
            socket.send(json.dumps({"type": "input.done"}))
            events = [json.loads(socket.recv(timeout=60)) for _ in range(2)]
            assert events[1]["error"]["code"] == "internal_error"
            with pytest.raises(ConnectionClosed, match="1011"):
                socket.recv(timeout=60)
        assert "secret" not in response.text + str(events)
    assert caplog.text.count("RuntimeError: secret") == 2  # the log does say it


def test_shutting_down_lets_short_requests_finish_and_breaks_off_long_ones(voices_dir: Path) -> None:
    registry = make_registry(voices_dir)
    outcomes: dict[str, Any] = {}
    begun = threading.Barrier(3)

    def ask(client: httpx.Client, name: str, fields: dict[str, Any]) -> None:
        with client.stream("POST", SPEECH, json=fields) as response:
            data = response.iter_raw()
            next(data)
            begun.wait(60)
            try:
                outcomes[name] = sum(len(part) for part in data) > 0
            except httpx.RemoteProtocolError:
                outcomes[name] = "broken off"

    with httpx.Client(timeout=60) as client:
        with serving(create_app(registry), timeout_graceful_shutdown=4) as url:
            with registry.use("tts-1") as model:
                whole = model.stream
                model.stream = lambda text, **fields: (  # type: ignore[method-assign,assignment]
                    BreaksOff(whole(text, **fields), stalls=True) if text == "Stall." else whole(text, **fields)
                )
            client.base_url = httpx.URL(url)
            jobs = {"short": body(response_format="pcm"), "long": body(**ENDLESS | {"input": "Stall."})}
            threads = [threading.Thread(target=ask, args=(client, *job)) for job in jobs.items()]
            for thread in threads:
                thread.start()
            begun.wait(60)
        for thread in threads:
            thread.join(30)
    assert outcomes == {"short": True, "long": "broken off"}
