"""Writing files: whole or not at all, in the format of the name, with failures that say why."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from oscine.audio.formats import FORMATS
from oscine.audio.io import read_audio
from oscine.audio.write import AudioWriter, format_of, write_audio
from oscine.errors import NonFiniteOutput, OutputError

AUDIO = (0.4 * np.sin(np.arange(20000) / 9)).astype(np.float32)


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"aac", "pcm"}))
@pytest.mark.parametrize("sizes", [(20000,), (7, 5000, 14993)])
def test_a_written_file_reads_back_whole(tmp_path: Path, name: str, sizes: tuple[int, ...]) -> None:
    path = tmp_path / f"a.{name}"
    with AudioWriter(path, 24000) as writer:
        position = 0
        for size in sizes:
            writer.write(AUDIO[position : position + size])
            position += size
    assert os.listdir(tmp_path) == [path.name]
    info = sf.info(path)
    assert info.frames == len(AUDIO) * info.samplerate // 24000
    got = read_audio(path)
    assert np.abs(got.samples).max() == pytest.approx(0.4, abs=0.06)
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_format_by_name_or_ending(tmp_path: Path) -> None:
    assert format_of("A.WAV") == "wav"
    assert format_of("a.bin", "flac") == "flac"
    for path, name in (("a.xyz", None), ("a", None), ("a.wav", "midi")):
        with pytest.raises(OutputError, match="known"):
            format_of(path, name)
    write_audio(tmp_path / "noending", AUDIO, 24000, "flac")
    assert sf.info(tmp_path / "noending").format == "FLAC"


def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(b"old")
    writer = AudioWriter(path, 24000)

    def interrupted() -> None:
        with writer:
            writer.write(AUDIO)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(NonFiniteOutput):
        write_audio(path, np.array([np.nan], np.float32), 24000)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.wav"]
    writer.abort()  # idempotent


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("name", ["wav", "flac", "mp3", "opus", "ogg"])
def test_a_full_disk_is_an_output_error(name: str) -> None:
    with pytest.raises(OutputError, match="No space left"):
        write_audio("/dev/full", AUDIO, 24000, name)


class _Full:
    """A file whose disk fills up after some bytes."""

    def __init__(self, file: object) -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def write(self, data: bytes) -> int:
        raise OSError(28, "No space left on device")


def test_a_disk_that_fills_up_leaves_no_part(tmp_path: Path) -> None:
    writer = AudioWriter(tmp_path / "a.wav", 24000)
    writer._file = _Full(writer._file)  # type: ignore[assignment]
    with pytest.raises(OutputError, match="No space left"), writer:
        writer.write(AUDIO)
    assert os.listdir(tmp_path) == []


def test_failures_say_where_and_why(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="folder"):
        write_audio(tmp_path, AUDIO, 24000, "wav")
    with pytest.raises(OutputError, match="No such file or directory"):
        write_audio(tmp_path / "absent" / "a.wav", AUDIO, 24000)
    (tmp_path / "plain").write_bytes(b"")
    with pytest.raises(OutputError, match="Not a directory"):
        write_audio(tmp_path / "plain" / "a.wav", AUDIO, 24000)


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real.wav").write_bytes(b"old")
    (tmp_path / "link.wav").symlink_to("real.wav")
    write_audio(tmp_path / "link.wav", AUDIO, 24000)
    assert (tmp_path / "link.wav").is_symlink()
    assert sf.info(tmp_path / "real.wav").frames == len(AUDIO)


def test_clipping_is_counted_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"), AudioWriter(tmp_path / "a.wav", 24000) as writer:
        for _ in range(3):
            writer.write(np.array([0.5, 1.5, -2.0], np.float32))
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == ["6 of 9 samples clipped"]
    assert np.abs(sf.read(tmp_path / "a.wav")[0]).max() <= 1


def test_in_place_grows_under_its_name_and_is_removed_when_aborted(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    writer = AudioWriter(path, 24000, in_place=True)
    writer.write(AUDIO)
    assert path.stat().st_size == 44 + 2 * len(AUDIO)
    writer.close()
    assert sf.info(path).frames == len(AUDIO)
    writer.abort()
    assert path.exists(), "a completed file stays"
    path.unlink()
    second = AudioWriter(path, 24000, in_place=True)
    second.write(AUDIO)
    second.abort()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("in_place", [True, False])
def test_what_was_there_stays_until_all_is_written(tmp_path: Path, in_place: bool) -> None:
    """`--stream -o existing.wav` on a full disk used to delete what was there."""
    path = tmp_path / "a.wav"
    path.write_bytes(b"old")
    path.chmod(0o640)
    writer = AudioWriter(path, 24000, in_place=in_place)
    writer.write(AUDIO)
    assert path.read_bytes() == b"old"
    writer._file = _Full(writer._file)  # type: ignore[assignment]
    with pytest.raises(OutputError, match="No space left"), writer:
        writer.write(AUDIO)
    assert (os.listdir(tmp_path), path.read_bytes()) == (["a.wav"], b"old")
    with AudioWriter(path, 24000, in_place=in_place) as writer:
        writer.write(AUDIO)
    assert sf.info(path).frames == len(AUDIO)
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["a.wav"]


def test_a_file_put_in_the_place_of_one_that_grows_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    writer = AudioWriter(path, 24000, in_place=True)
    (tmp_path / "other").write_bytes(b"another")
    (tmp_path / "other").rename(path)
    writer.abort()
    assert path.read_bytes() == b"another"


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_seed_gives_the_same_file_again(tmp_path: Path, name: str) -> None:
    paths = [tmp_path / f"{number}.{name}" for number in range(2)]
    for path in paths:
        write_audio(path, AUDIO, 24000, seed=7)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_an_open_file_is_written_as_a_stream_and_left_open() -> None:
    buffer = io.BytesIO()
    with AudioWriter(buffer, 24000) as writer:
        writer.write(AUDIO)
    data = buffer.getvalue()
    assert data[4:8] == data[40:44] == b"\xff" * 4
    assert len(data) == 44 + 2 * len(AUDIO)
