"""Tasks beside speech through the command line, on the tiny Audex and AuK checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from oscine.cli.main import main
from tests.unit.auk_factory import write_released

DATA = Path(__file__).parents[1] / "golden" / "data"
AUDEX = DATA / "audex" / "tiny_audex"


@pytest.fixture(scope="module")
def rain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "rain.wav"
    arguments = ["rain on a tin roof", "-o", str(path), "--duration-s", "0.6", "--seed", "1"]
    assert main(["sound", *arguments, "--model", str(AUDEX)]) == 0
    return path


def test_a_sound_has_the_duration_asked_for_and_ends_without_a_warning(
    rain: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert soundfile.info(rain).duration == pytest.approx(0.6, abs=0.02)
    out = tmp_path / "again.wav"
    command = ["sound", "rain on a tin roof", "-o", str(out), "--duration-s", "0.6", "--seed", "1", "--json"]
    assert main([*command, "--model", str(AUDEX)]) == 0
    assert json.loads(capsys.readouterr().out)["finish_reason"] == "stop"
    assert out.read_bytes() == rain.read_bytes()


def test_answers_in_text_go_to_stdout_with_an_honest_warning(rain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["transcribe", str(rain)], ["ask", str(rain), "What is heard?"]):
        assert main([*command, "--model", str(AUDEX), "--max-new-tokens", "4", "--seed", "1", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["output_tokens"] == 4
        assert report["finish_reason"] == "length"
    assert main(["transcribe", str(rain), "--model", str(AUDEX), "--max-new-tokens", "4"]) == 0
    assert "may be cut" in capsys.readouterr().err


def test_tasks_of_a_model_are_listed_and_others_refused(rain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--model", str(AUDEX), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"] == ["speech", "sound", "transcribe", "ask", "converse"]
    assert main(["edit", str(rain), "--task", "denoise", "-o", "x.wav", "--model", str(AUDEX)]) == 2
    assert "cannot do 'edit'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sound", "", "-o", "x.wav"], "caption"),
        (["sound", "rain", "-o", "x.wav", "--cfg-scale", "11"], "cfg_scale"),
        (["sound", "rain", "-o", "x.wav", "--duration-s", "60"], "duration_s"),
        (["transcribe", "/no/such/file.wav"], "file.wav"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, "--model", str(AUDEX)]) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_recording_is_edited_by_a_task_and_its_needs_are_checked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = ["--model", str(write_released(tmp_path / "ckpts"))]
    noisy = tmp_path / "noisy.wav"
    soundfile.write(noisy, 0.1 * np.random.default_rng(0).standard_normal(16000), 16000)
    out = tmp_path / "clean.wav"
    assert main(["edit", str(noisy), "--task", "denoise", "-o", str(out), "--num-steps", "2", "--json", *model]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["finish_reason"] == "stop"
    assert soundfile.info(out).duration == pytest.approx(1.0, abs=0.1)
    assert main(["edit", str(noisy), "--task", "replace", "--set", "old=a", "-o", str(out), *model]) == 2
    assert "new" in capsys.readouterr().err
    assert main(["edit", str(noisy), "--task", "fly", "-o", str(out), *model]) == 2
    assert "denoise" in capsys.readouterr().err
    assert main(["tasks", *model]) == 0
    assert "--task denoise" in capsys.readouterr().out


@pytest.mark.parametrize("family", ["bundled", "audio8", "audex", "auk"])
def test_what_would_be_spoken_is_shown_whatever_the_family(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On Audex `--dry-run` ended in a traceback: its plan had no spoken text."""
    text = "Hello there, world."
    folder = {
        "bundled": lambda: None,
        "audio8": lambda: DATA / "audio8" / "ckpt_dense_a",
        "audex": lambda: AUDEX,
        "auk": lambda: write_released(tmp_path / "ckpts"),
    }[family]()
    command = ["say", text, "--dry-run", *([] if folder is None else ["--model", str(folder)])]
    assert main([*command, "--json"]) == 0
    (piece,) = json.loads(capsys.readouterr().out)["pieces"]
    assert piece["text"] == text
    assert piece["spoken_text"]
    assert main(command) == 0
    assert piece["spoken_text"] in capsys.readouterr().out
