"""Speech that is only planned: texts with their curves, whole after a crash, and the file of curves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from training import texts
from training.plans import Folder, planned
from training.prosody import CURVES, Prosody, joined, write_curves


def prosody(length: int, value: float) -> Prosody:
    curve = np.full(2 * length, value, np.float32)
    return Prosody(durations=(1, length - 2, 1), pitch=curve, phase=curve + 1, energy=curve + 2)


class Reader:
    """Plans each letter as one frame; knows no digits."""

    def plan(self, phonemes: str) -> Prosody:
        if any(symbol.isdigit() for symbol in phonemes):
            raise ValueError("unknown symbols")
        return prosody(len(phonemes) + 2, float(len(phonemes)))


def line(name: str, frames: int) -> dict:
    return {"id": name, "voice": "v", "text": name, "phonemes": "a", "durations": [1, frames], "samples": 600 * frames}


def test_curves_are_joined_in_order(tmp_path: Path) -> None:
    first = joined(None, ["a", "b"], [prosody(3, 1.0), prosody(4, 2.0)])
    both = joined(first, ["c"], [prosody(5, 3.0)])
    write_curves(tmp_path / "p.npz", both)
    read = np.load(tmp_path / "p.npz")
    assert read["ids"].tolist() == ["a", "b", "c"]
    assert read["starts"].tolist() == [0, 6, 14, 24]
    for name, offset in zip(CURVES, (0.0, 1.0, 2.0), strict=True):
        assert read[name].tolist() == [1 + offset] * 6 + [2 + offset] * 8 + [3 + offset] * 10
    assert [path.name for path in tmp_path.iterdir()] == ["p.npz"]


def test_a_folder_goes_on_behind_the_last_whole_text(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.add(line("a", 40), prosody(40, 1.0))
    folder.save()
    folder.add(line("b", 20), prosody(20, 2.0))
    folder.save()
    assert (folder.count, folder.seconds, folder.waiting) == (2, 1.5, 0)
    whole = (tmp_path / "meta.jsonl").read_text()
    (tmp_path / "meta.jsonl").write_text(whole[: whole.index("\n") + 10])  # killed before its second line was whole
    again = Folder(tmp_path)
    assert (again.count, again.seconds) == (1, 1.0)
    again.add(line("c", 30), prosody(30, 3.0))
    again.save()
    assert [row["id"] for row in texts.read_meta(tmp_path)] == ["a", "c"]
    read = np.load(tmp_path / "prosody.npz")
    assert read["ids"].tolist() == ["a", "c"]
    assert read["starts"].tolist() == [0, 80, 140]
    assert read["energy"].tolist() == [3.0] * 80 + [5.0] * 60


def test_texts_the_teacher_cannot_speak_or_that_are_too_short_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("training.plans.phonemize", lambda text: text)
    long = "a" * 30
    found = list(planned(Reader(), "v", iter(["a", long, "b" * 9 + "²3", "c" * 40]), "p", 7))  # type: ignore[arg-type]
    assert [(row["id"], row["samples"]) for row, _ in found] == [("p00007", 32 * 600), ("p00008", 42 * 600)]
    assert found[0][1].pitch[0] == 30
    assert "refused" in capsys.readouterr().out
