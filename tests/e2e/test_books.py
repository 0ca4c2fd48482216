"""Books from the command line: a file with marks, files by chapter, subtitles, and what a kill leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import av
import pytest
import soundfile

from oscine.cli.main import main
from tests.books import page, png, three_chapters, write_epub

SEED = ["--seed", "5"]


def say(*arguments: object) -> int:
    return main(["say", *map(str, arguments)])


def chapters(path: Path) -> list[tuple[str, float, float]]:
    with av.open(str(path)) as file:
        return [
            (
                mark["metadata"]["title"],
                float(mark["start"] * mark["time_base"]),
                float(mark["end"] * mark["time_base"]),
            )
            for mark in file.chapters()
        ]


def test_an_epub_becomes_one_file_with_chapters_cover_and_subtitles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = three_chapters(tmp_path / "lamp.epub")
    out = tmp_path / "lamp.m4b"
    assert say("--file", book, "-o", out, "--subtitles", "srt", "--json", "--chapter-pause-s", "1.5", *SEED) == 0
    report = json.loads(capsys.readouterr().out)
    assert [chapter["finish_reason"] for chapter in report["chapters"]] == ["stop"] * 3
    marks = chapters(out)
    assert [title for title, _, _ in marks] == ["Chapter 1", "Chapter 2", "Chapter 3"]
    begin = 0.0
    for (_, start, end), chapter in zip(marks, report["chapters"], strict=True):
        assert start == pytest.approx(begin, abs=0.002)
        begin = start + chapter["duration_s"] + 1.5
        assert end == pytest.approx(min(begin, report["duration_s"]), abs=0.002)
    with av.open(str(out)) as file:
        assert file.metadata["artist"] == "A. Writer"
        cover = file.streams.video[0]
        assert bytes(next(packet for packet in file.demux(cover) if packet.size)) == png()
    cues = out.with_suffix(".srt").read_text().split("\n\n")[:-1]
    assert [cue.split("\n")[2] for cue in cues[:4]] == [
        "Chapter 1.",
        "It was day 1.",
        "The lamp was lit.",
        "Nobody came.",
    ]
    begins = cues[4].split("\n")[1].partition(" ")[0]
    assert begins == f"00:00:{marks[1][1]:06.3f}".replace(".", ",")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lamp.epub", "lamp.m4b", "lamp.srt"]


def test_one_file_a_chapter(tmp_path: Path) -> None:
    book = write_epub(
        tmp_path / "lamp.epub",
        [("a.xhtml", page("<h1>One/two: go</h1><p>A.</p>")), ("b.xhtml", page("<h1>…</h1><p>Bee.</p>"))],
        contents=[("a.xhtml", "One/two: go"), ("b.xhtml", "…")],
    )
    out = tmp_path / "lamp.opus"
    assert say("--file", book, "-o", out, "--split", "chapters", "--subtitles", "vtt", *SEED) == 0
    files = sorted(path.name for path in (tmp_path / "lamp").iterdir())
    assert files == ["01 One two go.opus", "01 One two go.vtt", "02 chapter.opus", "02 chapter.vtt"]
    assert not out.exists()
    with av.open(str(tmp_path / "lamp" / files[0])) as file:
        tags = {name.lower(): value for name, value in file.streams.audio[0].metadata.items()}
    assert (tags["title"], tags["album"], tags["track"]) == ("One/two: go", "The Lamp", "1/2")


def test_a_killed_narration_goes_on_and_gives_the_same_bytes(tmp_path: Path) -> None:
    book = three_chapters(tmp_path / "lamp.epub")
    whole, killed = tmp_path / "whole.mp3", tmp_path / "killed.mp3"
    assert say("--file", book, "-o", whole, *SEED) == 0
    command = [sys.executable, "-m", "oscine", "say", "--file", str(book), "-o", str(killed), *SEED]
    process = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
    index = tmp_path / "killed.mp3.parts" / "narration.json"
    try:
        while process.poll() is None and not index.exists():
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    if killed.exists():  # the machine was faster than we are
        pytest.skip("the narration ended before it could be killed")
    first = (index.parent / "0001.flac").stat()
    assert say("--file", book, "-o", killed, *SEED) == 2  # not without being told to
    assert say("--file", book, "-o", killed, "--resume", "--seed", "6") == 2  # and not as another narration
    assert (index.parent / "0001.flac").stat() == first
    assert say("--file", book, "-o", killed, "--resume") == 0
    assert killed.read_bytes() == whole.read_bytes()
    assert not index.parent.exists()


def test_a_plain_text_is_a_book_when_it_is_asked_for_as_one(tmp_path: Path) -> None:
    text = tmp_path / "lamp.txt"
    text.write_text("CHAPTER I\n\nA lamp.\n\nCHAPTER II\n\nA light.\n")
    assert say("--file", text, "-o", tmp_path / "plain.mp3", *SEED) == 0
    assert chapters(tmp_path / "plain.mp3") == []
    assert say("--file", text, "-o", tmp_path / "book.m4b", *SEED) == 0
    assert [title for title, _, _ in chapters(tmp_path / "book.m4b")] == ["CHAPTER I", "CHAPTER II"]


def test_a_format_without_marks_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "lamp.md"
    text.write_text("# One\n\nA lamp.\n\n# Two\n\nA light.\n")
    assert say("--file", text, "-o", tmp_path / "book.wav", "--chapter-pause-s", "3", *SEED) == 0
    assert "no chapter marks" in capsys.readouterr().err
    samples, rate = soundfile.read(tmp_path / "book.wav")
    silent = max(len(run) for run in "".join("s" if value == 0 else "x" for value in samples).split("x"))
    assert silent >= 3 * rate


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--file", "lamp.epub", "-o", "no/lamp.m4b"], "no folder"),
        (["--file", "lamp.epub", "-o", "lamp.xyz"], "cannot tell the audio format"),
        (["--file", "lamp.epub", "-o", "lamp.m4b", "--trim"], "--trim is not for books"),
        (["--file", "lamp.epub", "-o", "lamp.m4b", "--cover", "lamp.epub"], "neither a PNG nor a JPEG"),
        (["--file", "lamp.epub", "-o", "lamp.m4b", "--chapter-pause-s", "99"], "between 0 and 60"),
        (["words", "-o", "lamp.mp3", "--split", "chapters"], "--split is for a --file"),
        (["--file", "none.epub", "-o", "lamp.m4b"], "cannot read"),
        (["--file", "lamp.epub", "-o", "-"], "a book is written to a file"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    three_chapters(tmp_path / "lamp.epub")
    assert say(*arguments) in (1, 2)
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["lamp.epub"]
