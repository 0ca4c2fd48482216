"""What is read, told by its first bytes: every container that is promised, and nothing that names another place."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from oscine.audio import read_pyav
from oscine.audio.containers import READ, recognise
from oscine.audio.io import read_audio
from oscine.audio.limits import ReadLimits
from oscine.audio.recording import Unreadable, mono_blocks, open_recording
from oscine.errors import BadAudio
from oscine.types import Samples
from tests import recordings
from tests.recordings import NUM_SAMPLES, RATE, by_sndfile, flac, good, tone


@pytest.mark.parametrize("name", good())
def test_every_container_is_recognised_and_read(name: str) -> None:
    audio = read_audio(good()[name])
    assert abs(len(audio.samples) / audio.sample_rate - NUM_SAMPLES / RATE) < 0.08  # codecs pad
    assert 0.3 < np.abs(audio.samples).max() <= 1


def test_a_tag_in_front_of_mp3_aac_and_flac_is_passed_over() -> None:
    tag = b"ID3\x04\0\0" + bytes((0, 0, 2, 8)) + b"\0" * 264
    for name in ("MP3-MPEG_LAYER_III", "adts-aac", "FLAC-PCM_16"):
        container, behind = recognise(io.BytesIO(good()[name])), recognise(io.BytesIO(tag + good()[name]))
        assert behind is container is not None
    plain, tagged = (read_audio(start + good()["MP3-MPEG_LAYER_III"]) for start in (b"", tag))
    np.testing.assert_array_equal(plain.samples, tagged.samples)


@pytest.mark.parametrize(
    "data",
    [
        b"Creative Voice File\x1a\x1a\x00\x0a\x01",
        b"\x00\x00\x01\xba" + b"\0" * 60,  # MPEG program stream
        b"FORM\0\0\0\x3a8SVX",
        b"NIST_1A\n   1024\n",
        b"\xff\xff\xff\xff",
        b"RIFF\x40\0\0\0AVI LIST",
    ],
)
def test_what_is_not_on_the_list_is_handed_to_no_library(data: bytes) -> None:
    assert recognise(io.BytesIO(data)) is None
    with pytest.raises(BadAudio, match="none of wav, aiff"):
        read_audio(data)


def test_a_playlist_is_refused_with_one_message_whatever_there_is(tmp_path: Path) -> None:
    file = tmp_path / "there.wav"
    file.write_bytes(by_sndfile("WAV", "PCM_16"))
    for data in (*recordings.playlists(str(file)).values(), *recordings.playlists(str(tmp_path / "none.wav")).values()):
        with pytest.raises(BadAudio) as error:
            read_audio(data)
        assert error.value.message == f"ref_audio: cannot read it as audio: it is none of {READ}"


def followed(monkeypatch: pytest.MonkeyPatch, options: dict[str, str], *aliases: bytes) -> list[str]:
    """What FFmpeg wants to open for movies with such references, all of which are refused."""
    asked: list[str] = []
    refusing = read_pyav._open_nothing

    def refuse(url: str, flags: int, fields: object) -> None:
        asked.append(url)
        refusing(url, flags, fields)

    monkeypatch.setattr(read_pyav, "_MOV_OPTIONS", options)
    for reference in aliases:
        with monkeypatch.context() as patched:
            patched.setattr(read_pyav, "_open_nothing", refuse)
            with pytest.raises(BadAudio):
                read_audio(recordings.m4a(15, reference=reference), min_seconds=0.0001)
    return asked


def test_a_movie_that_refers_to_another_file_does_not_get_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    aliases = [recordings.alias("/etc/hostname"), recordings.alias("etc/hostname", relative=True)]
    follow = {"enable_drefs": "1", "use_absolute_path": "1"}
    assert followed(monkeypatch, follow, *aliases)[0] == "/etc/hostname"  # it would be, and is refused then
    monkeypatch.undo()
    assert followed(monkeypatch, read_pyav._MOV_OPTIONS, *aliases) == []


# By the header alone


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (flac(655_350, 1, 5), "655350 Hz; from 4000 to 384000 Hz"),
        (flac(3000, 1, 50), "3000 Hz; from 4000"),
        (flac(48_000, 8, 5), "8 channels; from 1 to 2"),
        (flac(48_000, 2, 600), "600.7 s long at 48000 Hz; the limit is 60 s"),
        (by_sndfile("WAV", "PCM_16", 16_000, 3), "3 channels"),
    ],
)
def test_rate_channels_and_length_are_judged_before_decoding(data: bytes, message: str) -> None:
    limits = ReadLimits(max_channels=2)
    with pytest.raises(BadAudio, match=message) as error, open_recording(io.BytesIO(data), limits):
        raise AssertionError("it was opened")
    assert error.value.param == "ref_audio"


@pytest.mark.parametrize("stated", [0, 16_000 * 20])
def test_a_header_that_states_too_little_or_nothing_does_not_let_more_in(stated: int) -> None:
    data = flac(16_000, 1, 100, stated=stated)
    limits = ReadLimits(max_seconds=30 if stated == 0 else 15)
    blocks: list[Samples] = []
    with pytest.raises(BadAudio, match="the limit is"), open_recording(io.BytesIO(data), limits) as recording:
        blocks.extend(mono_blocks(recording, limits))
    assert sum(map(len, blocks)) <= 16_000 * 30


def test_a_header_that_states_too_much_gives_what_is_there() -> None:
    audio = read_audio(flac(16_000, 1, 10, stated=16_000 * 50), min_seconds=0.1)
    assert len(audio.samples) < 16_000 * 15


@pytest.mark.parametrize("num_channels", [1, 2, 3, 8, 17])
def test_mixing_block_by_block_is_mixing_the_whole(num_channels: int) -> None:
    audio = tone(seconds=20.0, num_channels=num_channels)
    buffer = io.BytesIO()
    sf.write(buffer, audio, RATE, format="WAV", subtype="FLOAT")
    got = read_audio(buffer.getvalue())
    np.testing.assert_allclose(got.samples, audio.mean(axis=1), atol=1e-6, rtol=0)
    np.testing.assert_array_equal(got.samples, read_audio((audio, RATE)).samples)


def test_a_stream_without_a_codec_is_refused() -> None:
    """FFmpeg finds a track of sound here, of a kind that nothing decodes."""
    data = recordings.m4a(15).replace(b"sowt", b"zzzz")
    with pytest.raises(BadAudio, match="cannot read it as audio"):
        read_audio(data, min_seconds=0.0001)


def test_what_a_library_says_is_kept_from_who_sent_it() -> None:
    with pytest.raises(BadAudio) as error:
        read_audio(good()["m4a-aac"][:200])
    assert "Errno" not in error.value.message
    assert not isinstance(error.value.__cause__, Unreadable)
