"""Reading: every width and channel count, and a clear refusal of everything that is no usable audio."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from oscine.audio.encode import encode, open_encoder
from oscine.audio.io import peak_limit, read_audio
from oscine.audio.wav import wav_header
from oscine.errors import BadAudio, InputTooLong
from oscine.types import AudioInput


def tone(rate: int = 16000, seconds: float = 1.0, gain: float = 0.5) -> np.ndarray:
    return (gain * np.sin(2 * np.pi * 300 * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def wav_bytes(audio: np.ndarray, rate: int = 16000, subtype: str = "PCM_16", container: str = "WAV") -> bytes:
    buffer = io.BytesIO()
    sf.write(buffer, audio, rate, subtype=subtype, format=container)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("container", "subtype", "atol"),
    [
        ("WAV", "PCM_U8", 1e-2),
        ("WAV", "PCM_16", 1e-4),
        ("WAV", "PCM_24", 1e-6),
        ("WAV", "PCM_32", 1e-6),
        ("WAV", "FLOAT", 0),
        ("WAV", "DOUBLE", 0),
        ("WAV", "ULAW", 0.02),
        ("AIFF", "PCM_S8", 1e-2),
        ("FLAC", "PCM_24", 1e-6),
        ("CAF", "PCM_16", 1e-4),
        ("AU", "PCM_16", 1e-4),
    ],
)
@pytest.mark.parametrize("rate", [8000, 44100, 48000, 96000])
def test_widths_and_rates(container: str, subtype: str, atol: float, rate: int) -> None:
    audio = tone(rate)
    got = read_audio(wav_bytes(audio, rate, subtype, container))
    assert got.sample_rate == rate
    assert got.samples.dtype == np.float32
    np.testing.assert_allclose(got.samples, audio, atol=atol, rtol=0)


@pytest.mark.parametrize("channels", [1, 2, 6, 17])
def test_channels_are_averaged(channels: int) -> None:
    audio = tone()[:, None] * np.linspace(0.1, 1, channels, dtype=np.float32)
    got = read_audio(wav_bytes(audio, subtype="FLOAT"))
    np.testing.assert_allclose(got.samples, audio.mean(axis=1), atol=1e-6)


def test_every_kind_of_source_reads_the_same(tmp_path: Path) -> None:
    data = wav_bytes(tone(), subtype="FLOAT")
    path = tmp_path / "misleading.raw"
    path.write_bytes(data)
    with path.open("rb") as file:
        sources = [data, bytearray(data), path, str(path), file, io.BytesIO(data), (tone(), 16000)]
        sources.append(AudioInput(samples=tone(), sample_rate=16000))
        for source in sources:
            np.testing.assert_array_equal(read_audio(source).samples, tone())  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.uint8, np.float64])
def test_arrays_of_any_type_and_layout(dtype: type) -> None:
    audio = tone()
    if dtype is np.uint8:
        array = np.rint(audio * 128 + 128).astype(dtype)
    else:
        array = (audio * (np.iinfo(dtype).max if np.dtype(dtype).kind == "i" else 1)).astype(dtype)
    stereo = np.stack([array, array])
    for shaped in (array, stereo, stereo.T):
        np.testing.assert_allclose(read_audio((shaped, 16000)).samples, audio, atol=1e-2)


def test_loud_audio_is_scaled_as_a_whole() -> None:
    got = read_audio(wav_bytes(tone(gain=7.0), subtype="FLOAT"))
    np.testing.assert_allclose(got.samples, tone(gain=1.0), atol=1e-3)
    assert peak_limit(np.array([3.0, -6.0], np.float32)).tolist() == [0.5, -1.0]
    assert peak_limit(np.zeros(0, np.float32)).size == 0


def test_a_streamed_flac_of_unknown_length_is_read_to_its_end() -> None:
    encoder = open_encoder("flac", 16000)
    data = encoder.push(tone()) + encoder.finish()
    assert len(read_audio(data).samples) == 16000
    with pytest.raises(BadAudio, match="more than 0.7 s"):
        read_audio(data, max_seconds=0.7)


def test_a_three_hour_file_is_refused_by_its_header(tmp_path: Path) -> None:
    rate, seconds = 48000, 3 * 3600
    path = tmp_path / "long.wav"
    with path.open("wb") as file:
        file.write(wav_header(rate, rate * seconds))
        file.truncate(44 + 2 * rate * seconds)  # sparse: a gigabyte that takes no room
    with pytest.raises(BadAudio, match=r"10800.0 s long.*limit is 60 s"):
        read_audio(path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"", "empty"),
        (b"this is a letter, not a recording. " * 100, "cannot read it as audio"),
        (bytes(range(256)) * 40, "cannot read it as audio"),
        (wav_bytes(tone())[:30], "cannot read it as audio|empty"),
        (wav_bytes(np.zeros(0, np.float32)), "empty"),
        ((np.zeros(0, np.float32), 16000), "empty"),
        (wav_bytes(np.zeros(16000, np.float32)), "silent"),
        (wav_bytes(tone(gain=5e-4), subtype="FLOAT"), "silent"),
        ((np.full(16000, 0.3), 16000), "silent"),
        (wav_bytes(tone(seconds=0.3)), r"0\.300 s long; at least 0\.5 s"),
        (wav_bytes(tone(seconds=61)), r"61\.0 s long.*limit is 60 s"),
        ((np.array([0.1, np.nan] * 8000), 16000), "NaN"),
        ((np.array([0.1, np.inf] * 8000), 16000), "infinite"),
        ((np.stack([tone(), -tone()]), 16000), "2 channels .* cancel"),
        ((tone(), 100), "sample rate is 100"),
        ((tone(), 10**7), "sample rate"),
        ((np.zeros((2, 2, 2)), 16000), "shape"),
        ((np.array(["a"]), 16000), "floats or integers"),
        (io.StringIO("text"), "binary"),
    ],
)
def test_unusable_audio_is_refused(source: object, message: str) -> None:
    with pytest.raises(BadAudio, match=message) as caught:
        read_audio(source, param="audio_sample")  # type: ignore[arg-type]
    assert caught.value.param == "audio_sample"
    assert caught.value.message.startswith("audio_sample: ")


def test_non_finite_file() -> None:
    audio = tone()
    audio[5] = np.nan
    with pytest.raises(BadAudio, match="NaN"):
        read_audio(wav_bytes(audio, subtype="FLOAT"))


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadAudio, match="no such file"):
        read_audio(tmp_path / "absent.wav")
    with pytest.raises(BadAudio, match="a folder"):
        read_audio(tmp_path)
    with pytest.raises(BadAudio, match="not a regular file"):
        read_audio("/dev/zero")
    with pytest.raises(BadAudio, match="cannot open"):
        read_audio("a\0b")


def test_a_damaged_file_never_passes_for_the_whole() -> None:
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 32000).astype(np.float32)
    data = wav_bytes(noise, container="FLAC")
    with pytest.raises(BadAudio, match="damaged or cut off"):
        read_audio(data[: len(data) // 2])


def test_audio_shorter_than_its_header_says_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    data = encode("mp3", np.tile(tone(), 4), 16000)
    with caplog.at_level("WARNING"):
        got = read_audio(data[: len(data) // 2])
    assert 16000 < len(got.samples) < 48000
    assert "audio ends after" in caplog.text


def test_too_many_bytes() -> None:
    with pytest.raises(InputTooLong, match="limit is 1000"):
        read_audio(wav_bytes(tone()), max_bytes=1000)
    with pytest.raises(InputTooLong, match="limit is 1000"):
        read_audio(io.BytesIO(wav_bytes(tone())), max_bytes=1000)


def test_what_libsndfile_cannot_read_says_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oscine.audio.recording.importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadAudio, match=r"pip install oscine\[server\]"):
        read_audio(b"\0\0\0\x20ftypM4A " + bytes(500))


def test_m4a_and_webm_through_pyav() -> None:
    av = pytest.importorskip("av", reason="needs PyAV")
    for container, codec in (("mp4", "aac"), ("webm", "libopus")):
        buffer = io.BytesIO()
        with av.open(buffer, "w", format=container) as output:
            stream = output.add_stream(codec, rate=48000, layout="stereo")
            frame = av.AudioFrame.from_ndarray(np.stack([tone(48000)] * 2), format="fltp", layout="stereo")
            frame.sample_rate = 48000
            frame.pts = 0
            output.mux(stream.encode(frame))
            output.mux(stream.encode(None))
        got = read_audio(buffer.getvalue())
        assert got.sample_rate == 48000
        assert abs(len(got.samples) - 48000) < 3000
        assert 0.3 < np.abs(got.samples).max() <= 1
        with pytest.raises(BadAudio, match="limit is 0.6 s"):
            read_audio(buffer.getvalue(), max_seconds=0.6)


def test_another_type_is_a_programming_error() -> None:
    with pytest.raises(TypeError, match="int"):
        read_audio(3)  # type: ignore[arg-type]
