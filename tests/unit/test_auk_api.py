"""AuK as users meet it: `oscine.load`, `generate`, `stream`, `edit`, and the commands `say`, `edit` and `tasks`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import oscine
from oscine.audio.io import read_audio
from oscine.cli.main import main
from oscine.errors import InvalidRequest, UnsupportedFeature
from oscine.families.auk.tasks import TASKS
from tests.unit.auk_factory import write_flat, write_released

SHORT = {"duration_s": 0.3, "num_steps": 2, "seed": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_released(tmp_path_factory.mktemp("auk"))


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[oscine.Model]:
    with oscine.load(folder) as model:
        yield model


def tone(seconds: float = 0.6) -> tuple[np.ndarray, int]:
    return 0.3 * np.sin(np.arange(int(seconds * 16000)) / 9).astype(np.float32), 16000


def test_a_streamed_request_equals_the_whole(model: oscine.Model) -> None:
    whole = model.generate("Hello there, my friend.", **SHORT)
    with model.stream("Hello there, my friend.", **SHORT) as stream:
        parts = [chunk.samples for chunk in stream]
    np.testing.assert_array_equal(np.concatenate(parts), whole.audio)
    assert (whole.sample_rate, len(whole.audio), whole.finish_reason, whole.seed) == (24000, 15 * 480, "stop", 5)


def test_speech_from_a_clip_and_from_a_description_differ(model: oscine.Model) -> None:
    cloned = model.generate("Hello.", ref_audio=tone(), ref_text="Some words here.", num_steps=2, seed=5)
    described = model.generate("Hello.", description="an old man", num_steps=2, seed=5)
    assert len(cloned.audio)
    assert len(described.audio)
    with pytest.raises(UnsupportedFeature, match="not both"):
        model.generate("Hello.", ref_audio=tone(), instructions="an old man")


def test_an_edit_is_as_long_as_its_source(model: oscine.Model) -> None:
    result = model.edit(tone(), task="denoise", num_steps=2, seed=1)
    assert len(result.audio) == 30 * 480
    again = model.edit(tone(), task="speed", slots={"factor": "2.0"}, num_steps=2, seed=1)
    assert len(again.audio) == 15 * 480
    with pytest.raises(InvalidRequest, match="no editing task"):
        model.edit(tone(), task="polish")
    with pytest.raises(InvalidRequest, match="name the task too"):
        model.edit(tone(), instruction="Make it faster.", slots={"factor": "2.0"})


def test_words_of_ones_own_have_one_field(model: oscine.Model) -> None:
    own = model.edit(tone(), instruction="Make it louder.", num_steps=2, seed=1)
    same = model.edit(tone(), instructions="Make it louder.", num_steps=2, seed=1)
    np.testing.assert_array_equal(own.audio, same.audio)
    with pytest.raises(InvalidRequest, match="give one of them"):
        model.edit(tone(), instruction="Make it louder.", instructions="Make it softer.")
    with pytest.raises(InvalidRequest, match="give one of them"):
        model.plan("Hello.", description="an old man", instructions="a child")


def test_edit_and_say_write_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, source, out = write_flat(tmp_path), tmp_path / "in.wav", tmp_path / "out.wav"
    with oscine.load(folder) as model:
        model.generate("Hello there.", duration_s=0.6, num_steps=1, seed=5).save(source)
    shared = ["--model", str(folder), "--num-steps", "2", "--seed", "1"]
    assert main(["edit", str(source), "--task", "pitch", "--set", "direction=up", "--set", "semitones=2", *shared,
                 "-o", str(out)]) == 0  # fmt: skip
    assert len(read_audio(out, min_seconds=0.0).samples) == 30 * 480
    assert main(["edit", str(source), "--task", "pitch", *shared, "-o", str(out)]) == 2
    assert "needs direction" in capsys.readouterr().err
    assert main(["say", "Hello.", "--duration-s", "0.2", *shared, "-o", str(out)]) == 0
    assert len(read_audio(out, min_seconds=0.0).samples) == 10 * 480


def test_tasks_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--model", str(folder), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert set(listed["edits"]) == set(TASKS)
    assert listed["tasks"] == ["speech", "edit"]
