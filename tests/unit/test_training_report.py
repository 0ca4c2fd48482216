"""The report: what it measures beside the judges, which stages it shows, and the voice it lets speak."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from training import report, report_text
from training.export import write_folder
from training.judges import Scores
from training.lm import initialise
from training.systems import OurVoice, Rendering
from training.wording import WordErrors

from oscine.families.audio8.codec.spectral import SpectralCodec
from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model.dual_ar import DualAR
from tests.unit.test_training_lm import CODEC, small_values


class Judges:
    """Hears every word wrong whose clip is empty, and gives a clip's length as its naturalness."""

    def judge(self, samples: np.ndarray, rate: int, text: str) -> Scores:
        words = len(text.split())
        errors = 0 if len(samples) else words
        return Scores(
            words=WordErrors(errors=errors, words=words, transcript=text if len(samples) else ""),
            naturalness=len(samples) / rate if len(samples) else None,
            noise=None,
            likeness=None,
        )


def tone(seconds: float, level: float) -> np.ndarray:
    return (level * np.sqrt(2) * np.sin(np.arange(int(24000 * seconds)) * 0.1)).astype(np.float32)


def test_an_interval_holds_the_mean_and_shrinks_with_more_sentences() -> None:
    few, many = [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0] * 40
    low, high = report.interval(few)  # type: ignore[misc]
    assert (low, high) == (0.0, 0.75)
    narrow = report.interval(many)
    assert narrow is not None
    assert 0.17 < narrow[0] < 0.2 < 0.3 < narrow[1] < 0.33
    assert report.interval([0.5, None, 0.5]) == (0.5, 0.5)
    assert report.interval([0.5, None]) is None


def test_the_level_is_that_of_speech_and_not_of_pauses() -> None:
    spoken = tone(1.0, 0.1)
    assert report.active_level(spoken, 24000) == pytest.approx(-20.0, abs=0.05)
    with_pause = np.concatenate([spoken, np.zeros(48000, np.float32), 0.01 * spoken])
    assert report.active_level(with_pause, 24000) == pytest.approx(-20.0, abs=0.05)
    assert report.active_level(np.zeros(24000, np.float32), 24000) is None
    assert report.active_level(np.zeros(0, np.float32), 24000) is None


def test_a_report_has_a_row_for_each_stage_and_keeps_those_of_an_earlier_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def judged(stage: str, lengths: list[float]) -> list[report.Judged]:
        items = [Rendering(text="Two words", samples=tone(s, 0.1), sample_rate=24000) for s in lengths]
        return report.judge_all(Judges(), items, stage, None)  # type: ignore[arg-type]

    first = report.parse(["--piper", "--out", str(tmp_path / "A.md")])
    report.write_report(first, {"date": "today"}, {"piper": judged("piper", [2.0, 2.0])})
    arguments = ["--piper", "--out", str(tmp_path / "B.md"), "--beside", str(tmp_path / "A.json")]
    report.write_report(report.parse(arguments), {}, {"heart shipped": judged("shipped", [0.0, 1.0])})
    text = (tmp_path / "B.md").read_text()
    assert "| Piper `en_US-joe-medium` | 2 | 0.0 % (0.0 to 0.0) | 100.0 % | 2.00 (2.00 to 2.00) |" in text
    assert "| heart: as a user hears it | 2 | 50.0 % (0.0 to 100.0) | 50.0 % | 1.00 |" in text
    assert "-20.0 dBFS" in text
    assert json.loads((tmp_path / "B.json").read_text())["systems"]["heart shipped"]["empty"] == 1
    assert report_text.title("two words teacher") == "two words: teacher"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--model", "m"],
        ["--teacher", "folder"],
        ["--model", "m", "--codes", "heart=file"],
        ["--teacher", "heart=t", "--codes", "heart=file"],
    ],
)
def test_what_does_not_fit_together_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        report.parse(arguments)
    assert "error" in capsys.readouterr().err


def test_our_voice_gives_the_codes_it_drew_and_decodes_them_as_it_spoke(tmp_path: Path) -> None:
    torch.manual_seed(4)
    values = small_values()
    model = DualAR(LMConfig.from_dict(values))
    initialise(model)
    write_folder(tmp_path / "voice", values, model.state_dict(), SpectralCodec(CODEC))
    ours = OurVoice(tmp_path / "voice")
    options = {"max_new_tokens": 9, "min_new_frames": 7}
    for voice in ours.model.voices:
        (item,) = ours.speak(voice, ["Hello there."], 5, options)
        assert (item.seed, len(item.frames)) == (5, 1)
        again = ours.decode(item.text, item.frames)
        np.testing.assert_allclose(again.samples, item.samples, atol=1e-5)
        assert len(item.samples) > 0
