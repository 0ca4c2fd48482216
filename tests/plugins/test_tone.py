"""A family in a package of its own, installed as users would: nothing of oscine's own knows its name."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile as sf
import torch
from safetensors.torch import save_file

import oscine
from oscine import bench
from oscine.cli.main import main
from oscine.engine.engine import Engine, EngineOptions
from oscine.errors import UnsupportedFeature
from oscine.registry import families
from oscine.server.app import create_app
from oscine.server.loading import model_specs
from oscine.server.models import ModelRegistry
from oscine.server.state import ServerSettings
from tests.server.conftest import serving

RATE, HOP = 8000, 80


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has put the package; nothing is fetched."""
    target = tmp_path_factory.mktemp("site")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    source = Path(__file__).parent / "tone"
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    return target


@pytest.fixture(autouse=True)
def _found(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(installed)
    monkeypatch.setenv("OSCINE_HOME", str(tmp_path / "home"))
    families.cache_clear()
    yield
    families.cache_clear()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "tone-1"
    folder.mkdir()
    config = {"model_type": "tone", "sample_rate": RATE, "hop_length": HOP, "license": "CC0-1.0"}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"tones": torch.linspace(1, 2, 26)}, folder / "model.safetensors")
    return folder


def pitch(samples: np.ndarray) -> float:
    return float(np.count_nonzero(np.diff(np.signbit(samples))) * RATE / len(samples) / 2)


def test_it_is_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["model_type"], shown["family"], shown["supported"], shown["licence"]) == (
        "tone",
        "tone",
        True,
        "CC0-1.0",
    )
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["families"]["tone"] == {"model_types": ["tone"], "backends": {"eager": True}}
    (release,) = (model for model in report["models"] if model["family"] == "tone")
    assert (release["name"], release["licence"], release["cached"]) == ("Tone 1", "CC0-1.0", None)
    assert main(["doctor"]) == 0
    assert "Tone 1: licence CC0-1.0" in capsys.readouterr().out


def test_it_is_spoken(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = [tmp_path / f"{number}.wav" for number in range(3)]
    for path, seed in zip(out, "112", strict=True):
        assert main(["say", "Hello, world.", "--model", str(folder), "-o", str(path), "--seed", seed]) == 0
    assert out[0].read_bytes() == out[1].read_bytes() != out[2].read_bytes()
    assert len(sf.read(out[0])[0]) == 10 * HOP
    capsys.readouterr()
    assert main(["say", "Hello, world.", "--model", str(folder), "--dry-run", "--json"]) == 0
    (piece,) = json.loads(capsys.readouterr().out)["pieces"]
    assert (piece["spoken_text"], piece["max_frames"]) == ("Hello, world.", 10)
    assert main(["say", "123", "--model", str(folder), "-o", str(out[0])]) == 2
    assert "no letter" in capsys.readouterr().err
    assert main(["say", "Hi", "--model", str(folder), "-o", str(out[0]), "--top-k", "3"]) == 2
    assert "top_k" in capsys.readouterr().err


def test_its_streams_are_its_whole_audio(folder: Path) -> None:
    with oscine.load(folder, device="cpu") as model:
        whole = model.generate("A long enough text.", seed=3)
        with model.stream("A long enough text.", seed=3) as stream:
            chunks = [chunk.samples for chunk in stream]
    assert len(chunks) > 1
    np.testing.assert_array_equal(np.concatenate(chunks), whole.audio)
    for options in ({"dtype": "int8"}, {"backend": "native"}):
        with pytest.raises(UnsupportedFeature):
            oscine.load(folder, device="cpu", **options)  # type: ignore[arg-type]


def test_its_voices_are_stored(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own kind of voice, a pitch, goes through the store and is what the text is spoken at."""
    recording, out = tmp_path / "high.wav", tmp_path / "out.wav"
    sf.write(recording, 0.3 * np.sin(2 * np.pi * 600 * np.arange(RATE) / RATE), RATE)
    model = ["--model", str(folder)]
    assert main(["voices", "add", "high", str(recording), "--text", "Aaa.", *model]) == 0
    capsys.readouterr()
    assert main(["voices", "list", "--json", *model]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["voices"]}
    assert {name: row["kind"] for name, row in rows.items()} == {"plain": "trained", "high": "cloned"}
    for voice, expected in (("high", 600), ("plain", 220)):
        assert main(["say", "a" * 50, "--voice", voice, "-o", str(out), "--seed", "1", *model]) == 0
        assert pitch(sf.read(out)[0]) == pytest.approx(expected, rel=0.05)
    assert main(["voices", "remove", "high"]) == 0


def test_it_is_served(folder: Path, tmp_path: Path) -> None:
    engine = Engine(EngineOptions(memory_bytes=1 << 24, max_waiting=None))
    specs = model_specs([str(folder)], engine, device="cpu", offline=True, voices_dir=tmp_path / "voices")
    with serving(create_app(ModelRegistry(specs, engine), ServerSettings())) as url:
        (entry,) = httpx.get(f"{url}/v1/models").json()["data"]
        assert entry["id"] == "tone-1"
        asked = {"model": "tone-1", "input": "Hello, world.", "seed": 1, "response_format": "wav"}
        answer = httpx.post(f"{url}/v1/audio/speech", json=asked, timeout=60)
        assert answer.status_code == 200, answer.text
        samples, rate = sf.read(io.BytesIO(answer.content), dtype="int16")
        assert (rate, len(samples)) == (RATE, 10 * HOP)
        names = [voice["name"] for voice in httpx.get(f"{url}/v1/audio/voices").json()["voices"]]
        assert "plain" in names
    engine.close()


@pytest.mark.parametrize("what", ["folder", "release"])
def test_it_is_measured(folder: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = [str(folder)] if what == "folder" else ["tone-1", "--random-weights"]
    assert bench.main([*model, "--frames", "5", "--repeats", "2", "--device", "cpu"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["frames"], report["random_weights"]) == (5, what == "release")
    assert report["request_s"]["p50"] > 0
