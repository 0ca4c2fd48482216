"""Recordings that come in a field: nothing is fetched or read from disk without permission, and only what it covers."""

from __future__ import annotations

import base64
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from oscine.errors import BadAudio, InputTooLong, InvalidRequest, OscineError, UnsupportedFeature
from oscine.server.app import create_app
from oscine.server.fetching import fetch
from oscine.server.recordings import Recordings
from oscine.server.state import ServerSettings

from .conftest import SPEECH, body, make_registry, reference_wav, serving

DATA = bytes(range(256)) * 20
LIMIT = 6000
FILES = {"/a.wav": DATA, "/large": DATA * 2, "/tone.wav": reference_wav()}
ASKED: list[str] = []


class WebSite(BaseHTTPRequestHandler):
    """Has `FILES`, two that are elsewhere, one that is nowhere, and some that do not come to an end."""

    def do_GET(self) -> None:
        ASKED.append(self.path)
        port = self.server.server_address[1]
        if self.path in ("/slow-headers", "/slow-body"):
            return self._dribble(b"HTTP/1.0 200 Fine\r\n" + b"\r\n" * (self.path == "/slow-body"))
        place = {"/moved": "/a.wav", "/away": f"http://localhost:{port}/a.wav", "/round": "/round"}.get(self.path)
        self.send_response(302 if place else 200 if self.path.partition("?")[0] in FILES else 418, "Secret")
        if place:
            self.send_header("Location", place)
        if self.path == "/a.wav?cut":
            self.send_header("Content-Length", str(len(DATA) + 1))
        self.end_headers()
        self.wfile.write(FILES.get(self.path.partition("?")[0], b""))

    def _dribble(self, start: bytes) -> None:
        """A byte now and then, for as long as anybody listens."""
        with contextlib.suppress(OSError):
            self.wfile.write(start)
            while True:
                self.wfile.write(b"a")
                time.sleep(0.02)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), WebSite) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def refused(recordings: Recordings, value: str) -> OscineError:
    with pytest.raises(OscineError) as error:
        recordings.read(value, "ref_audio")
    assert error.value.param == "ref_audio"
    return error.value


def test_base64_and_data_uris_are_read_whole_however_long() -> None:
    recordings = Recordings(max_bytes=LIMIT)
    data = DATA * 600  # more than one slice
    encoded = base64.b64encode(data).decode()
    assert recordings.read(encoded, "ref_audio") == data
    assert recordings.read(f"data:audio/wav;base64,{encoded}", "ref_audio") == data
    for wrong in (encoded[:-1], "AA==" + encoded, encoded[:-4] + "\n", "not base64", "é" * 8, "data:audio/wav,abcd"):
        assert type(refused(recordings, wrong)) is InvalidRequest


def test_without_permission_nothing_is_fetched_or_read(site: str, tmp_path: Path) -> None:
    recordings = Recordings(max_bytes=LIMIT)
    file = tmp_path / "a.wav"
    file.write_bytes(DATA)
    ASKED.clear()
    for url in (f"{site}/a.wav", f"file://{file}", "ftp://127.0.0.1/a", "gopher://x/"):
        assert isinstance(refused(recordings, url), UnsupportedFeature)
    for path in (str(file), "../a.wav", "/etc/passwd"):
        assert "not read" in refused(recordings, path).message
    assert ASKED == []


def test_with_permission_only_the_hosts_named_are_fetched_from(site: str) -> None:
    recordings = Recordings(max_bytes=LIMIT, hosts=["127.0.0.1"])
    assert recordings.read(f"{site}/a.wav", "ref_audio") == DATA
    assert recordings.read(f"{site}/moved", "ref_audio") == DATA
    port = site.rsplit(":", 1)[1]
    elsewhere = (f"http://localhost:{port}/a.wav", f"{site}/away", "file:///etc/passwd", "http://[::1/", "http:///a")
    for url in elsewhere:
        assert type(refused(recordings, url)) in (InvalidRequest, UnsupportedFeature)
    assert isinstance(refused(recordings, f"{site}/none"), BadAudio)
    assert isinstance(refused(recordings, "http://127.0.0.1:1/a.wav"), BadAudio)
    assert isinstance(refused(recordings, f"{site}/large"), InputTooLong)
    assert recordings.read(f"{site}/a.wav?x=ü [1]", "ref_audio") == DATA
    assert Recordings(max_bytes=LIMIT, hosts=["*"]).read(f"{site}/away", "ref_audio") == DATA


def test_what_cannot_be_fetched_is_refused_with_one_message(site: str) -> None:
    recordings = Recordings(max_bytes=LIMIT, hosts=["127.0.0.1", "a..b", "\ud800"])
    for url in (
        f"{site}/none",
        f"{site}/round",
        f"{site}/a.wav?cut",
        "http://127.0.0.1:1/",
        "http://a..b/",
        "http://\ud800/",
    ):
        error = refused(recordings, url)
        assert type(error) is BadAudio
        assert error.message == "ref_audio: the URL cannot be fetched"


@pytest.mark.parametrize("path", ["/slow-headers", "/slow-body"])
def test_a_site_that_dribbles_does_not_keep_the_server_waiting(site: str, path: str) -> None:
    hosts = frozenset({"127.0.0.1"})
    with pytest.raises(BadAudio, match="cannot be fetched"):
        fetch(site + path, hosts, "ref_audio", 1 << 30, timeout_s=0.3)
    assert fetch(site + "/a.wav", hosts, "ref_audio", LIMIT, timeout_s=60.0) == DATA


def test_with_permission_only_files_in_the_folders_named_are_read(tmp_path: Path) -> None:
    allowed, secret = tmp_path / "allowed", tmp_path / "secret.wav"
    allowed.mkdir()
    (allowed / "a.wav").write_bytes(DATA)
    (allowed / "large.wav").write_bytes(DATA * 2)
    (allowed / "link.wav").symlink_to(secret)
    secret.write_bytes(b"secret")
    recordings = Recordings(max_bytes=LIMIT, folders=[allowed])
    assert recordings.read(str(allowed / "a.wav"), "ref_audio") == DATA
    assert recordings.read("a.wav", "ref_audio") == DATA
    assert isinstance(refused(recordings, "large.wav"), InputTooLong)
    (allowed / "circle").symlink_to("circle")
    os.mkfifo(allowed / "pipe.wav")
    elsewhere = ("../secret.wav", str(secret), "link.wav", "none.wav", f"{allowed}.", "a\0.wav", "x." * 2000)
    for path in (*elsewhere, "circle", "circle/a.wav", "\ud800.wav", "pipe.wav", ".", "a.wav/b"):
        assert "folders" in refused(recordings, path).message
    assert recordings.read(base64.b64encode(DATA).decode(), "ref_audio") == DATA


def test_a_server_started_with_the_permission_clones_from_a_file_and_a_url(
    tmp_path: Path, reference: bytes, site: str
) -> None:
    (tmp_path / "me.wav").write_bytes(reference)
    settings = ServerSettings(url_hosts=("127.0.0.1",), path_folders=(tmp_path,))
    fields = {"ref_text": "A tone.", "response_format": "pcm"}
    with (
        serving(create_app(make_registry(tmp_path), settings)) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        plain = client.post(SPEECH, json=body(ref_audio=base64.b64encode(reference).decode(), **fields))
        assert plain.status_code == 200
        for place in ("me.wav", f"{site}/tone.wav"):
            assert client.post(SPEECH, json=body(ref_audio=place, **fields)).content == plain.content
