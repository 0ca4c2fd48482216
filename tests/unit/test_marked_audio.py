"""Files with chapter marks: what is written is read back by FFmpeg and libsndfile; equal input gives equal bytes."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from oscine.audio.marked import MARKED_FORMATS, ChapterMark, write_marked
from oscine.errors import InvalidRequest, OutputError
from oscine.types import Samples
from tests.books import png

RATE = 24000
MARKS = [
    ChapterMark(title="One", start=0, end=RATE),
    ChapterMark(title="Twö & three", start=RATE, end=5 * RATE // 2),
]
TAGS = {"title": "The Lamp", "artist": "A. Writer", "genre": "Audiobook"}


def tone(num_samples: int = 5 * RATE // 2) -> Samples:
    return (0.3 * np.sin(np.arange(num_samples) * 0.1)).astype(np.float32)


def blocks(samples: Samples, size: int = 1000) -> list[Samples]:
    return [samples[start : start + size] for start in range(0, len(samples), size)]


@pytest.mark.parametrize("suffix", MARKED_FORMATS)
def test_marks_tags_cover_and_sound_are_read_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"book.{suffix}"
    write_marked(path, blocks(tone()), RATE, marks=MARKS, tags=TAGS, cover=png())
    with av.open(str(path)) as file:
        audio = file.streams.audio[0]
        metadata = {**file.metadata, **audio.metadata}
        found = [(round(float(c["start"] * c["time_base"]), 2), c["metadata"]["title"]) for c in file.chapters()]
        samples = np.concatenate([frame.to_ndarray().ravel() for frame in file.decode(audio)])
        seconds = len(samples) / audio.rate
        pictures = [stream.codec_context.name for stream in file.streams.video]
    lowered = {name.lower(): value for name, value in metadata.items()}
    assert {name: lowered[name] for name in TAGS} == TAGS
    assert found == [(0.0, "One"), (1.0, "Twö & three")]
    assert pictures == ["png"]
    assert seconds == pytest.approx(2.5, abs=0.1)  # lossy codecs pad to whole frames


def test_flac_holds_exactly_the_samples(tmp_path: Path) -> None:
    path = tmp_path / "book.flac"
    write_marked(path, blocks(tone()), RATE, marks=MARKS, tags=TAGS, cover=png())
    read, rate = soundfile.read(path, dtype="float32")
    assert rate == RATE
    np.testing.assert_array_equal(read, np.rint(tone() * 32768) / 32768)


@pytest.mark.parametrize("suffix", MARKED_FORMATS)
def test_equal_input_gives_equal_bytes(tmp_path: Path, suffix: str) -> None:
    for name in ("a", "b"):
        write_marked(tmp_path / f"{name}.{suffix}", blocks(tone()), RATE, marks=MARKS, tags=TAGS, cover=png())
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "book.m4b"
    path.write_bytes(b"before")

    def broken() -> object:
        yield tone()
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="No space left"):
        write_marked(path, broken(), RATE, marks=MARKS, tags=TAGS)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="not a picture"):
        write_marked(path, blocks(tone()), RATE, marks=MARKS, tags=TAGS, cover=b"\xff\xd8\xffno")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
