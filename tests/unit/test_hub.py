"""Finding checkpoints: bundled, folder, cache, download from a local stand-in of the hub, offline afterwards."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from safetensors.numpy import save

from oscine.checkpoint.folder import describe_folder, model_type_of
from oscine.checkpoint.hub import cached_folder, is_complete, resolve_source
from oscine.errors import CheckpointError, ConfigMismatch, MissingFile, UnknownModel, WeightMismatch

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = save({"w": np.ones((2, 3), np.float32), "b": np.ones(4, np.float16)})
FILES = {
    "config.json": json.dumps({"model_type": "arktts"}).encode(),
    "model.safetensors": WEIGHTS,
    "codec.pth": b"pickle",
    "modeling_arktts.py": b"raise SystemExit('never run')",
    "README.md": b"---\nlicense: apache-2.0\n---\n# A model\n",
}


class Hub:
    """A hub with the few endpoints a snapshot needs; `requests` holds the paths asked for."""

    def __init__(self, repos: dict[str, dict[str, bytes]]) -> None:
        hub = self
        self.repos = repos
        self.requests: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                return None

            def do_HEAD(self) -> None:
                self.answer(body=False)

            def do_GET(self) -> None:
                self.answer(body=True)

            def answer(self, *, body: bool) -> None:
                status, headers, data = hub.respond(unquote(urlsplit(self.path).path))
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if body:
                    self.wfile.write(data)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def respond(self, path: str) -> tuple[int, dict[str, str], bytes]:
        self.requests.append(path)
        parts = path.strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        repo = "/".join(parts[2:4] if api else parts[:2])
        if repo.startswith("gated/"):
            return 403, {"X-Error-Code": "GatedRepo"}, b""
        files = self.repos.get(repo)
        if files is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        if (parts[5:6] if api else parts[3:4])[:1] not in ([], ["main"], [COMMIT]):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        common = {"X-Repo-Commit": COMMIT}
        if api:
            listing: object = {"id": repo, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
            if parts[4] == "tree":
                listing = [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for name, data in files.items()
                ]
            return 200, {**common, "Content-Type": "application/json"}, json.dumps(listing).encode()
        name = "/".join(parts[4:])
        if name not in files:
            return 404, {**common, "X-Error-Code": "EntryNotFound"}, b""
        return 200, {**common, "ETag": f'"{hashlib.sha1(files[name]).hexdigest()}"'}, files[name]

    def stop(self) -> None:
        if self.thread.is_alive():
            self.server.shutdown()
            self.thread.join()
            self.server.server_close()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants

    partial = {"config.json": b"{}", "model.safetensors.index.json": b'{"weight_map": {"w": "absent.safetensors"}}'}
    hub = Hub({"Audio8/tiny": FILES, "org/partial": partial})
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    yield hub
    hub.stop()


@pytest.mark.network
def test_download_once_then_work_without_a_network(hub: Hub) -> None:
    folder = resolve_source("Audio8/tiny")
    assert {p.name for p in folder.iterdir()} == set(FILES) - {"modeling_arktts.py"}
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert not [path for path in hub.requests if path.endswith(".py")]
    count = len(hub.requests)
    assert resolve_source("Audio8/tiny") == folder
    assert len(hub.requests) == count, "a cached model must ask the hub nothing"
    hub.stop()
    assert resolve_source("Audio8/tiny") == resolve_source("Audio8/tiny", offline=True) == folder
    assert cached_folder("Audio8/tiny") == folder


@pytest.mark.network
def test_refusals_say_what_to_do(hub: Hub) -> None:
    with pytest.raises(MissingFile, match="load it once with a network"):
        resolve_source("Audio8/tiny", offline=True)
    with pytest.raises(MissingFile, match="downloading is off"):
        resolve_source("Audio8/tiny", download=False)
    assert not hub.requests
    with pytest.raises(UnknownModel, match="check the spelling"):
        resolve_source("Audio8/absent")
    with pytest.raises(UnknownModel, match="terms accepted"):
        resolve_source("gated/model")
    with pytest.raises(UnknownModel, match="no revision 'nope'"):
        resolve_source("Audio8/tiny", revision="nope")
    with pytest.raises(MissingFile, match="weight files are missing"):
        resolve_source("org/partial")


@pytest.mark.network
def test_an_unreachable_hub_is_said_in_one_line(hub: Hub) -> None:
    hub.stop()
    with pytest.raises(MissingFile, match=r"cannot download Audio8/tiny: .*pass the folder") as caught:
        resolve_source("Audio8/tiny")
    assert "\n" not in caught.value.message


@pytest.mark.network
def test_a_partial_snapshot_is_completed(hub: Hub) -> None:
    folder = resolve_source("Audio8/tiny")
    (folder / "model.safetensors").unlink()
    assert cached_folder("Audio8/tiny") is None
    assert (resolve_source("Audio8/tiny") / "model.safetensors").read_bytes() == WEIGHTS


SHARED = json.dumps({"weight_map": {"w": "model-00001-of-00002.safetensors"}}).encode()
TWO_FOLDERS = {
    "config.json": json.dumps({"model_type": "nemotron_labs_audex"}).encode(),
    "checkpoint_folder_full/model-00001-of-00002.safetensors": WEIGHTS,
    "checkpoint_folder_full/model.safetensors.index.json": SHARED,
    "checkpoint_folder_audiogen/model.safetensors.index.json": SHARED,
    "checkpoint_folder_textonly/model.safetensors.index.json": SHARED.replace(b"w", b"absent", 1),
    "enhancement_VAE/large.safetensors": WEIGHTS,
    "license/LICENSE.txt": b"terms",
    "LICENSE": b"terms",
}
"""As an Audex release: one folder's shards stand in another, and a third has an index without its shards."""


@pytest.mark.network
def test_a_release_with_shared_shards(hub: Hub) -> None:
    """It was held to be incomplete for ever, after all of it had been downloaded."""
    hub.repos["org/audex"] = TWO_FOLDERS
    folder = resolve_source("org/audex")
    unused = ("checkpoint_folder_textonly", "enhancement_VAE", "license")
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {name for name in TWO_FOLDERS if not name.startswith(unused)}
    assert cached_folder("org/audex") == folder
    (folder / "checkpoint_folder_full" / "model-00001-of-00002.safetensors").unlink()
    assert cached_folder("org/audex") is None


def test_folders_and_what_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_source(tmp_path) == resolve_source(str(tmp_path)) == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_source("~") == tmp_path
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnknownModel, match="is a file"):
        resolve_source(tmp_path / "file")
    for wrong in ("nonsense", "a/b/c", "./absent", str(tmp_path / "absent"), Path("org/name"), "", "org/../x"):
        with pytest.raises(UnknownModel, match="neither an existing folder nor a hub id"):
            resolve_source(wrong)


def test_no_source_is_the_bundled_voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oscine.checkpoint.hub.importlib.resources.files", lambda package: tmp_path)
    with pytest.raises(MissingFile, match="bundled voice"):
        resolve_source(None)
    folder = tmp_path / "voices" / "default"
    folder.mkdir(parents=True)
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    assert resolve_source(None) == folder


def write_folder(path: Path) -> Path:
    path.mkdir()
    for name, data in FILES.items():
        (path / name).write_bytes(data)
    return path


def test_describe_reads_headers_only(tmp_path: Path) -> None:
    info = describe_folder(write_folder(tmp_path / "m"))
    assert (info.model_type, info.licence) == ("arktts", "apache-2.0")
    assert model_type_of(tmp_path / "m") == "arktts"
    assert info.ignored_code == ("modeling_arktts.py",)
    by_name = {file.name: file for file in info.weights}
    assert by_name["model.safetensors"].parameters == {"F32": 6, "F16": 4}
    assert by_name["model.safetensors"].tensors == 2
    assert by_name["codec.pth"].parameters is None
    assert info.num_parameters == 10
    assert info.weight_bytes == len(WEIGHTS) + 6


def test_describe_the_tiny_checkpoints(golden_root: Path) -> None:
    folders = sorted((golden_root / "audio8").glob("ckpt_*"))
    if not folders:
        pytest.skip("absent: ckpt_*")
    for folder in folders:
        info = describe_folder(folder)
        assert info.model_type == "arktts"
        assert info.num_parameters > 1000
        assert {"model.safetensors", "codec.pth"} <= {file.name for file in info.weights}


def test_describe_yaml_and_licence_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model:\n  kind: x\n  name: AuK\n  arch:\n    name: no\n")
    (tmp_path / "LICENSE").write_text("\nMIT License\n")
    info = describe_folder(tmp_path)
    assert (info.model_type, info.licence, info.weights) == ("auk", "MIT License", ())


@pytest.mark.parametrize("damage", ["cut", "short", "huge", "text", "shape"])
def test_damaged_weights_are_named(tmp_path: Path, damage: str) -> None:
    folder = write_folder(tmp_path / "m")
    data = {
        "cut": WEIGHTS[:-1],
        "short": b"abc",
        "huge": b"\xff" * 8 + WEIGHTS[8:],
        "text": b"<html>not found</html>" * 20,
        "shape": WEIGHTS + b"left over",
    }[damage]
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(WeightMismatch, match=r"model\.safetensors is damaged"):
        describe_folder(folder)


def test_damaged_configurations(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"no config\.json"):
        describe_folder(tmp_path)
    for text in ("{", "[1]"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ConfigMismatch):
            describe_folder(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": 3}')
    with pytest.raises(ConfigMismatch, match="no model_type"):
        model_type_of(tmp_path)
    with pytest.raises(UnknownModel):
        describe_folder(tmp_path / "absent")
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(CheckpointError, match="not a weight index"):
        is_complete(tmp_path)
