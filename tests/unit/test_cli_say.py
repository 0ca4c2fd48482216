"""`oscine say` with a fake model: options, outputs, reports, refusals and interruption."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

import oscine
from oscine.audio.write import write_audio
from oscine.cli.main import main
from oscine.errors import NonFiniteOutput, UnsupportedFeature
from oscine.options import COMMON_OPTIONS
from oscine.result import PieceReport, Timings
from oscine.types import AudioChunk, Capabilities, Job, Plan, Voice

RATE = 24000
AUDIO = (0.3 * np.sin(np.arange(RATE) / 7)).astype(np.float32)


class FakeStream:
    """A second of audio in four chunks, or what `script` says."""

    sample_rate = RATE
    seed = 77
    timings = Timings(queued_s=0.0, first_audio_s=0.1, total_s=0.5, audio_s=1.0)

    def __init__(self, finish: str, fail: BaseException | None, on_progress: Any) -> None:
        self.finish_reason = finish
        self.fail = fail
        self.on_progress = on_progress
        self.closed = False
        self.pieces = (
            PieceReport(
                text="Hello.", spoken_text="hello", finish_reason=finish, num_frames=20, attempts=2,  # type: ignore[arg-type]
                seed=77, start_s=0.0, duration_s=1.0,
            ),
        )  # fmt: skip

    def __enter__(self) -> FakeStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.closed = True

    def __iter__(self) -> Iterator[AudioChunk]:
        for start in range(0, RATE, RATE // 4):
            yield AudioChunk(samples=AUDIO[start : start + RATE // 4], sample_rate=RATE, start=start)
            if start and self.fail is not None:
                raise self.fail
        self.on_progress(1.0)


class FakeModel:
    """Records what it is asked for."""

    capabilities = Capabilities(
        family="fake", model="Fake 1", tasks=("speech",), languages=("en",), sample_rate=RATE, frame_rate=20.0,
        voice_cloning=True, streaming=True, licence="MIT", options={},
    )  # fmt: skip

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.loaded: dict[str, Any] = {}
        self.finish, self.fail = "stop", None
        self.stream_made: FakeStream | None = None
        self.refusal: Exception | None = None
        self.closed = False

    def load(self, source: object, **options: object) -> FakeModel:
        self.loaded = {"source": source, **options}
        return self

    def __enter__(self) -> FakeModel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.closed = True

    def stream(self, text: str, *, on_progress: Any, **request: Any) -> FakeStream:
        if self.refusal is not None:
            raise self.refusal
        self.asked = {"text": text, **request}
        self.stream_made = FakeStream(self.finish, self.fail, on_progress)
        return self.stream_made

    def plan(self, text: str, **request: Any) -> Plan:
        self.asked = {"text": text, **request}
        job = Job(id="1", inputs=None, seed=5, max_frames=40, memory=0, text=text)
        return Plan(jobs=(job,), seed=5, spoken_text=("one dollar",), input_tokens=3)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    fake = FakeModel()
    monkeypatch.setitem(vars(oscine), "load", fake.load)
    return fake


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.wav"


@pytest.mark.parametrize("name", ["wav", "flac", "mp3", "opus", "ogg"])
@pytest.mark.parametrize("stream", [False, True])
def test_writes_a_file(model: FakeModel, tmp_path: Path, name: str, stream: bool, capsys: Any) -> None:
    path = tmp_path / f"a.{name}"
    assert main(["say", "Hello.", "-o", str(path), *(["--stream"] if stream else [])]) == 0
    info = sf.info(path)
    assert info.frames / info.samplerate == 1.0
    assert os.listdir(tmp_path) == [path.name]
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "1.0 s in 0.5 s, seed 77, Fake 1 (MIT), ended by 'stop'" in shown.err
    assert "warning" not in shown.err
    assert model.closed
    assert model.stream_made is not None
    assert model.stream_made.closed


def test_every_option_reaches_the_request_by_its_own_name(model: FakeModel, out: Path) -> None:
    values: dict[str, Any] = {
        name: {int: 3, float: 0.5, str: "en", bool: False}[option.type] for name, option in COMMON_OPTIONS.items()
    }
    flags = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        flags += [f"--no-{flag}"] if value is False else [f"--{flag}", str(value)]
    assert main(["say", "Hi", "-o", str(out), *flags]) == 0
    assert model.asked == {"text": "Hi", **values}


def test_what_is_not_given_is_not_set(model: FakeModel, out: Path) -> None:
    assert main(["say", "Hi", "-o", str(out)]) == 0
    assert model.asked == {"text": "Hi"}
    assert model.loaded == {
        "source": None, "device": "auto", "dtype": "auto", "threads": None, "backend": "auto",
            "offline": False, "revision": None
    }  # fmt: skip


def test_model_arguments(model: FakeModel, out: Path) -> None:
    flags = ["--model", "org/x", "--device", "cpu", "--dtype", "bfloat16", "--threads", "2", "--offline"]
    flags += ["--backend", "eager"]
    assert main(["say", "Hi", "-o", str(out), "--voice", "ann", *flags]) == 0
    assert model.loaded == {
        "source": "org/x", "device": "cpu", "dtype": "bfloat16", "threads": 2, "backend": "eager", "offline": True,
        "revision": None,
    }  # fmt: skip
    assert model.asked["voice"] == "ann"


def test_threads_are_left_to_what_suits_the_model(model: FakeModel, out: Path) -> None:
    assert main(["say", "Hi", "-o", str(out), "--model", "org/x"]) == 0
    assert model.loaded["threads"] is None


def test_reference_audio_is_read_first(model: FakeModel, out: Path, tmp_path: Path, capsys: Any) -> None:
    write_audio(tmp_path / "ref.flac", AUDIO, RATE)
    assert main(["say", "Hi", "-o", str(out), "--ref-audio", str(tmp_path / "ref.flac"), "--ref-text", "words"]) == 0
    assert model.asked["ref_text"] == "words"
    assert len(model.asked["ref_audio"].samples) == RATE
    model.loaded = {}
    assert main(["say", "Hi", "-o", str(out), "--ref-audio", str(tmp_path / "absent")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert model.loaded == {}


def test_text_from_a_file_and_from_stdin(
    model: FakeModel, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.txt").write_bytes("\ufeffGrüße.\n".encode())
    assert main(["say", "--file", str(tmp_path / "t.txt"), "-o", str(out)]) == 0
    assert model.asked["text"] == "Grüße.\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("naïve".encode())))
    assert main(["say", "-", "-o", str(out)]) == 0
    assert model.asked["text"] == "naïve"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-o", "{out}"], 2, "either TEXT or --file"),
        (["Hi", "--file", "x", "-o", "{out}"], 2, "either TEXT or --file"),
        (["  \n", "-o", "{out}"], 2, "empty"),
        (["--file", "{dir}/absent", "-o", "{out}"], 2, "cannot read"),
        (["--file", "{dir}", "-o", "{out}"], 2, "cannot read"),
        (["--file", "{dir}/latin", "-o", "{out}"], 2, "not UTF-8 text (byte 1)"),
        (["Hi"], 2, "-o FILE"),
        (["Hi", "-o", "{dir}/a.xyz"], 1, "known: .aac"),
        (["Hi", "-o", "{dir}"], 1, "ending"),
        (["Hi", "-o", "{dir}/absent/a.wav"], 1, "no folder"),
        (["Hi", "-o", "{out}", "--temperature", "-1"], 2, "temperature must be between 0 and 5, got -1.0"),
        (["Hi", "-o", "{out}", "--top-p", "nan"], 2, "top_p"),
        (["Hi", "-o", "{out}", "--voice", "a", "--ref-audio", "b"], 2, "exclude"),
        (["Hi", "-o", "{out}", "--ref-text", "b"], 2, "--ref-audio"),
    ],
)
def test_refused_in_one_line_before_loading(
    model: FakeModel, tmp_path: Path, capsys: Any, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "latin").write_bytes(b"a\xff")
    filled = [a.format(out=tmp_path / "out.wav", dir=tmp_path) for a in arguments]
    assert main(["say", *filled]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err
    assert shown.err.startswith("oscine: error: ")
    assert shown.err.count("\n") == 1
    assert model.loaded == {}
    assert not (tmp_path / "out.wav").exists()


@pytest.mark.parametrize("arguments", [["--bogus"], ["Hi", "--dtype", "int3"], ["Hi", "--seed", "x"]])
def test_usage_errors_exit_with_2(arguments: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["say", *arguments])
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_refusal_of_the_model_is_a_request_error(model: FakeModel, out: Path, capsys: Any) -> None:
    model.refusal = UnsupportedFeature("Fake 1 has no option\n'top_k'", param="top_k")
    assert main(["say", "Hi", "-o", str(out)]) == 2
    assert capsys.readouterr().err == "oscine: error: Fake 1 has no option 'top_k'\n"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("failure", "code"), [(KeyboardInterrupt(), 130), (NonFiniteOutput("NaN"), 1)])
def test_a_failure_midway_leaves_no_file(
    model: FakeModel, out: Path, failure: BaseException, code: int, stream: bool, capsys: Any
) -> None:
    model.fail = failure  # type: ignore[assignment]
    assert main(["say", "Hi", "-o", str(out), *(["--stream"] if stream else [])]) == code
    assert os.listdir(out.parent) == []
    assert model.stream_made is not None
    assert model.stream_made.closed
    assert model.closed
    assert "oscine: error: " in capsys.readouterr().err


def test_debug_shows_the_traceback(model: FakeModel, out: Path, capsys: Any) -> None:
    model.fail = NonFiniteOutput("NaN")  # type: ignore[assignment]
    assert main(["say", "Hi", "-o", str(out), "--debug"]) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert shown.endswith("oscine: error: NaN\n")


@pytest.mark.parametrize("finish", ["length", "loop", "silence"])
def test_an_odd_ending_is_said(model: FakeModel, out: Path, capsys: Any, finish: str) -> None:
    model.finish = finish
    assert main(["say", "Hi", "-o", str(out), "--json"]) == 0
    shown = capsys.readouterr()
    assert f"oscine: warning: ended by '{finish}' after 2 attempts" in shown.err
    report = json.loads(shown.out)
    assert report["finish_reason"] == report["pieces"][0]["finish_reason"] == finish


def test_the_json_report(model: FakeModel, out: Path, capsys: Any) -> None:
    assert main(["say", "Hi", "-o", str(out), "--json"]) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert shown.out.count("\n") == 1
    assert report["path"] == str(out)
    assert (report["format"], report["sample_rate"], report["duration_s"], report["seed"]) == ("wav", RATE, 1.0, 77)
    assert report["timings"]["rtf"] == 0.5
    assert report["pieces"][0]["spoken_text"] == "hello"


def test_outer_silence_is_left_out_on_demand(model: FakeModel, out: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setitem(globals(), "AUDIO", np.where(np.arange(RATE) < RATE // 2, AUDIO, 0).astype(np.float32))
    assert main(["say", "Hi", "-o", str(out), "--trim", "--json"]) == 0
    seconds = json.loads(capsys.readouterr().out)["duration_s"]
    assert 0.6 < seconds < 0.66
    assert sf.info(out).frames == round(seconds * RATE)


def test_audio_on_stdout(model: FakeModel, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, write_through=True))
    assert main(["say", "Hi", "-o", "-", "--json"]) == 0
    data = buffer.getvalue()
    assert data[:4] == b"RIFF"
    assert data[40:44] == b"\xff" * 4
    assert len(data) == 44 + 2 * RATE, "nothing but audio"
    assert json.loads(capsys.readouterr().err)["path"] == "-"
    assert main(["say", "Hi", "-o", "-", "--format", "pcm"]) == 0
    assert len(buffer.getvalue()) == len(data) + 2 * RATE


def test_no_audio_to_a_terminal(model: FakeModel, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["say", "Hi", "-o", "-"]) == 2
    assert "terminal" in capsys.readouterr().err


def test_dry_run_shows_the_plan_and_needs_no_output(model: FakeModel, capsys: Any) -> None:
    assert main(["say", "$1", "--dry-run"]) == 0
    assert capsys.readouterr().out == "  1  at most 2.0 s  one dollar\n"
    assert main(["say", "$1", "--dry-run", "--json", "--seed", "5"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["pieces"] == [{"text": "$1", "spoken_text": "one dollar", "max_frames": 40, "max_s": 2.0}]
    assert model.stream_made is None


def test_a_voice_is_added_from_checked_parts(
    model: FakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from oscine.checkpoint.voices import VoiceStore

    monkeypatch.setenv("OSCINE_HOME", str(tmp_path / "home"))
    write_audio(tmp_path / "ref.wav", AUDIO, RATE)
    made: list[tuple[str, int, str]] = []

    def create_voice(name: str, audio: Any, transcript: str) -> None:
        made.append((name, len(audio.samples), transcript))
        VoiceStore().add(
            Voice(name=name, family="fake", tensors={"codes": np.ones((2, 3), np.int64)}, transcript=transcript)
        )

    model.create_voice = create_voice  # type: ignore[attr-defined]
    add = ["voices", "add", "ann", str(tmp_path / "ref.wav"), "--text"]
    assert main([*add, " Some words. "]) == 0
    assert made == [("ann", RATE, "Some words.")]
    for arguments, code in (([*add, "x"], 2), (["voices", "add", "a/b", "x", "--text", "y"], 2)):
        assert main(arguments) == code
    assert main(["voices", "add", "bob", str(tmp_path / "ref.wav"), "--text", " "]) == 2
    assert len(made) == 1
    capsys.readouterr()
    assert main(["voices", "list", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["voices"]] == ["ann"]
    model.voices = {"own": Voice(name="own", family="fake", speaker=1, description="built in")}  # type: ignore[attr-defined]
    assert main(["voices", "list", "--model", "x"]) == 0
    assert capsys.readouterr().out.split() == ["own", "fake", "trained", "built", "in"]
    assert main(["voices", "remove", "ann"]) == 0
    assert main(["voices", "remove", "ann"]) == 2
