"""Which names the server goes by and which pages may use it; DNS rebinding is a foreign name."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from oscine.errors import InvalidRequest
from oscine.server.app import create_app
from oscine.server.origins import OriginPolicy
from oscine.server.state import ServerSettings

from .conftest import SPEECH, body, make_registry, serving

APP = "https://app.example.org"


@pytest.mark.parametrize(
    ("bind", "hosts", "header", "allowed"),
    [
        ("127.0.0.1", (), "127.0.0.1:8000", True),
        ("127.0.0.1", (), "localhost", True),
        ("127.0.0.1", (), "LocalHost.:80", True),
        ("127.0.0.1", (), "speech.localhost:8000", True),
        ("127.0.0.1", (), "[::1]:8000", True),
        ("127.0.0.1", (), "127.8.9.1", True),
        ("127.0.0.1", (), None, True),
        ("127.0.0.1", (), "evil.example", False),
        ("127.0.0.1", (), "localhost.evil.example", False),
        ("127.0.0.1", (), "127.0.0.1.evil.example:8000", False),
        ("127.0.0.1", (), "evil.example:8000@localhost", False),
        ("127.0.0.1", (), "192.168.1.5:8000", False),
        ("127.0.0.1", (), "0.0.0.0:8000", False),
        ("127.0.0.1", (), "2130706433", False),
        ("127.0.0.1", (), "", False),
        ("127.0.0.1", (), "localhost:8000, evil.example", False),
        ("localhost", (), "192.168.1.5", False),
        ("::1", (), "[::1]", True),
        ("0.0.0.0", (), "192.168.1.5:8000", True),
        ("0.0.0.0", (), "[fe80::1]:8000", True),
        ("0.0.0.0", (), "evil.example", False),
        ("::", (), "10.0.0.1", True),
        ("192.168.1.5", (), "192.168.1.5", True),
        ("nas.lan", (), "NAS.lan:8000", True),
        ("0.0.0.0", ("nas.lan",), "nas.lan", True),
        ("0.0.0.0", ("nas.lan",), "evil.nas.lan", False),
        ("127.0.0.1", ("Speech.Example.org",), "speech.example.org:443", True),
        ("127.0.0.1", ("*",), "evil.example", True),
    ],
)
def test_hosts(bind: str, hosts: tuple[str, ...], header: str | None, allowed: bool) -> None:
    assert OriginPolicy(bind, hosts).allows_host(header) is allowed


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        (None, "localhost:8000", True),
        ("http://localhost:8000", "localhost:8000", True),
        ("HTTP://LOCALHOST:8000", "localhost:8000", True),
        ("http://localhost", "localhost:80", True),
        ("https://speech.example.org", "speech.example.org", True),
        ("https://speech.example.org", "speech.example.org:443", True),
        ("http://localhost:3000", "localhost:8000", False),
        ("http://127.0.0.1:8000", "localhost:8000", False),
        ("http://localhost:8000", None, False),
        ("http://evil.example", "localhost:8000", False),
        ("http://localhost:8000.evil.example", "localhost:8000", False),
        ("null", "localhost:8000", False),
        ("", "localhost:8000", False),
        ("file://", "localhost:8000", False),
        ("chrome-extension://localhost:8000", "localhost:8000", False),
        (APP, "localhost:8000", True),
        (f"{APP}:443", "localhost:8000", True),
        ("http://app.example.org", "localhost:8000", False),
        ("tauri://localhost", "localhost:8000", True),
    ],
)
def test_origins(origin: str | None, host: str | None, allowed: bool) -> None:
    assert OriginPolicy("127.0.0.1", (), (APP, "tauri://localhost")).allows_origin(origin, host) is allowed


@pytest.mark.parametrize("host", ["", "a b", "nas.lan:8000", "http://nas.lan", "nas.lan/x"])
def test_a_host_that_is_none_is_refused(host: str) -> None:
    with pytest.raises(InvalidRequest, match="no host"):
        OriginPolicy("127.0.0.1", (host,))


@pytest.mark.parametrize(
    "origin", ["*", "null", "app.example.org", "https://app.example.org/", "https://a b", "https://"]
)
def test_an_origin_that_is_none_is_refused(origin: str) -> None:
    with pytest.raises(InvalidRequest, match="no origin"):
        OriginPolicy("127.0.0.1", (), (origin,))


@pytest.fixture(scope="module")
def open_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that a page of `APP` may use, with a key."""
    settings = ServerSettings(origins=(APP,), api_key="s3cret", max_body_bytes=100_000)
    with serving(create_app(make_registry(tmp_path_factory.mktemp("voices")), settings)) as url:
        yield url


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/health"),
        ("GET", "/v1/audio/voices"),
        ("POST", SPEECH),
        ("DELETE", "/v1/audio/voices/a"),
        ("OPTIONS", SPEECH),
        ("GET", "/no/such/page"),
    ],
)
def test_a_page_whose_name_points_here_reaches_nothing(client: httpx.Client, method: str, path: str) -> None:
    headers = {"Host": "evil.example", "Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}
    refused = client.request(method, path, headers=headers, json=body() if method == "POST" else None)
    assert refused.status_code == 421
    assert refused.json()["error"]["code"] == "host_not_allowed"
    assert "--allow-host" in refused.json()["error"]["message"]


@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS", "PUT"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1"])
def test_another_sites_page_changes_nothing(client: httpx.Client, method: str, origin: str) -> None:
    refused = client.request(method, SPEECH, headers={"Origin": origin, "Access-Control-Request-Method": "POST"})
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "cross_site_request"
    assert "access-control-allow-origin" not in refused.headers


def test_the_servers_own_page_may_use_it(client: httpx.Client, base_url: str) -> None:
    headers = {"Origin": base_url, "Sec-Fetch-Site": "same-origin"}
    answer = client.post(SPEECH, json=body(), headers=headers)
    assert answer.status_code == 200
    assert "vary" not in answer.headers


def test_a_session_may_be_opened_by_the_servers_own_page_alone(base_url: str) -> None:
    address = base_url.replace("http", "ws") + f"{SPEECH}/stream"
    with connect(address, origin=base_url) as session:  # type: ignore[arg-type]
        session.send(json.dumps({"type": "session.config", "seed": 1}))
        assert json.loads(session.recv(timeout=60))["type"] == "session.configured"
    foreign: list[dict[str, Any]] = [{"origin": "http://evil.example"}, {"origin": "null"}]
    foreign.append({"additional_headers": {"Sec-Fetch-Site": "cross-site"}})
    for fields in foreign:
        with pytest.raises(InvalidStatus, match="403"), connect(address, **fields):
            pass
    port = int(base_url.rsplit(":", 1)[1])
    rebound: Any = f"http://evil.example:{port}"
    with socket.create_connection(("127.0.0.1", port)) as plug, pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://evil.example:{port}{SPEECH}/stream", sock=plug, origin=rebound).__enter__()


def test_a_page_that_was_let_in_asks_first_and_reads_the_answer(open_url: str) -> None:
    asks = {
        "Origin": APP,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
        "Access-Control-Request-Private-Network": "true",
    }
    told = httpx.options(open_url + SPEECH, headers=asks, timeout=60)  # without the key, as browsers ask
    assert told.status_code == 204
    assert told.headers["access-control-allow-origin"] == APP
    assert told.headers["vary"] == "Origin"
    assert "POST" in told.headers["access-control-allow-methods"]
    assert told.headers["access-control-allow-headers"] == asks["Access-Control-Request-Headers"]
    assert told.headers["access-control-allow-private-network"] == "true"
    assert not told.content
    sent = {"Origin": APP, "Sec-Fetch-Site": "cross-site"}
    key = {"Authorization": "Bearer s3cret"}
    for headers, status in ((sent | key, 200), (sent, 401)):
        answer = httpx.post(open_url + SPEECH, json=body(), headers=headers, timeout=60)
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == APP
        assert "X-Seed" in answer.headers["access-control-expose-headers"]
    listed = httpx.get(f"{open_url}/v1/models", headers=sent | key, timeout=60)
    assert listed.headers["access-control-allow-origin"] == APP
    address = open_url.replace("http", "ws") + f"{SPEECH}/stream"
    with connect(address, origin=APP, additional_headers=key):  # type: ignore[arg-type]
        pass


def test_letting_in_one_page_lets_in_no_other(open_url: str) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    refused = httpx.options(open_url + SPEECH, headers=headers, timeout=60)
    assert refused.status_code == 403
    assert "access-control-allow-origin" not in refused.headers
    rebound = {"Host": "evil.example", "Origin": APP, "Access-Control-Request-Method": "POST"}
    assert httpx.options(open_url + SPEECH, headers=rebound, timeout=60).status_code == 421


def test_without_an_origin_that_was_let_in_nothing_of_cors_is_said(client: httpx.Client) -> None:
    answer = client.options(SPEECH)
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_app_alone_is_for_this_machine(tmp_path: Path) -> None:
    """Whoever runs it under a server of their own says by what names it goes."""
    with serving(create_app(make_registry(tmp_path))) as url:
        assert httpx.get(f"{url}/health", headers={"Host": "speech.example.org"}).status_code == 421
    with serving(create_app(make_registry(tmp_path), ServerSettings(hosts=("speech.example.org",)))) as url:
        assert httpx.get(f"{url}/health", headers={"Host": "speech.example.org"}).status_code == 200
