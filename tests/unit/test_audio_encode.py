"""Every format, whole and streamed, at every rate: right length, right sound, no lost tail, header once."""

from __future__ import annotations

import hashlib
import io
import os
import struct
import subprocess
import sys
import wave

import numpy as np
import pytest
import soundfile as sf

from oscine.audio.encode import encode, open_encoder
from oscine.audio.formats import FORMATS, content_type, encoded_rate
from oscine.audio.io import read_audio
from oscine.audio.limits import ReadLimits
from oscine.audio.ogg import serial_of
from oscine.audio.recording import open_recording
from oscine.audio.resample import resample
from oscine.audio.wav import pcm16_bytes, to_int16, wav_header
from oscine.errors import InvalidRequest, NonFiniteOutput, UnsupportedFeature

RATES = (16000, 24000, 44100, 48000)
MP3_DELAY = 1105  # the codec's own delay, which only a file's header can tell a decoder


def voice(rate: int, seconds: float = 1.3) -> np.ndarray:
    """A band-limited noise whose last tenth is loud, so that a lost tail shows."""
    n = int(rate * seconds) + 7
    noise = np.random.default_rng(3).standard_normal(n + 63)
    x = np.convolve(noise, np.hanning(64) / 16, "valid") * 0.2
    x[-n // 10 :] *= 2
    return np.clip(x, -0.99, 0.99).astype(np.float32)


def streamed(
    name: str, audio: np.ndarray, rate: int, sizes: tuple[int, ...] = (1, 700, 0, 5000, 333), seed: int = 0
) -> bytes:
    encoder = open_encoder(name, rate, seed=seed)
    out, position, i = [], 0, 0
    while position < len(audio):
        size = sizes[i % len(sizes)]
        out.append(encoder.push(audio[position : position + size]))
        position, i = position + size, i + 1
    out.append(encoder.finish())
    return b"".join(out)


def decoded(name: str, data: bytes, rate: int) -> tuple[np.ndarray, int]:
    if name == "pcm":
        return np.frombuffer(data, "<i2").astype(np.float32) / 32768, rate
    got = read_audio(data, min_seconds=0, max_seconds=30)
    return got.samples, got.sample_rate


def similarity(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("way", ["whole", "stream"])
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_round_trip(name: str, way: str, rate: int) -> None:
    if name == "aac":
        pytest.importorskip("av", reason="aac needs PyAV")
    audio = voice(rate)
    data = encode(name, audio, rate) if way == "whole" else streamed(name, audio, rate)
    got, got_rate = decoded(name, data, rate)
    assert got_rate == encoded_rate(name, rate)
    want = resample(audio, rate, got_rate)
    if name == "aac" or (name == "mp3" and way == "stream"):
        assert 0 <= len(got) - len(want) <= 0.15 * got_rate
        delay = MP3_DELAY if name == "mp3" else int(np.argmax(np.correlate(got[:6000], want[:2000], "valid")))
        got = got[delay : delay + len(want)]
        assert len(got) == len(want), "the tail is lost"
    assert len(got) == len(want)
    if name in ("pcm", "wav", "flac"):
        np.testing.assert_array_equal(to_int16(got), to_int16(want))
        return
    tail = len(want) // 10
    assert similarity(got, want) > 0.97
    assert similarity(got[-tail:], want[-tail:]) > 0.9, "the tail is lost or misplaced"


@pytest.mark.parametrize("name", ["pcm", "wav", "flac", "opus", "mp3", "ogg"])
def test_chunking_does_not_change_the_decoded_stream(name: str) -> None:
    audio = voice(24000)
    once, _ = decoded(name, streamed(name, audio, 24000, (10**6,)), 24000)
    many, _ = decoded(name, streamed(name, audio, 24000), 24000)
    np.testing.assert_array_equal(many, once)


@pytest.mark.parametrize(("name", "within_s"), [("pcm", 0), ("wav", 0), ("flac", 0.2), ("mp3", 0.1), ("opus", 0.3)])
def test_bytes_of_sound_come_early(name: str, within_s: float) -> None:
    encoder = open_encoder(name, 24000)
    some = voice(24000)[: 1 + int(24000 * within_s)]
    encoder.push(some)  # with it comes the header
    later = encoder.push(some)
    encoder.close()
    assert later


@pytest.mark.parametrize(
    ("name", "magic"), [("wav", b"RIFF"), ("flac", b"fLaC"), ("ogg", b"OggS"), ("opus", b"OpusHead")]
)
@pytest.mark.parametrize("way", ["whole", "stream"])
def test_the_header_is_there_once(name: str, magic: bytes, way: str) -> None:
    audio = voice(24000)
    data = encode(name, audio, 24000) if way == "whole" else streamed(name, audio, 24000)
    assert data[: len(magic)] == magic or name == "opus"
    if name != "ogg":  # every Ogg page starts so
        assert data.count(magic) == 1


@pytest.mark.parametrize("name", ["wav", "flac", "mp3", "opus", "ogg"])
def test_no_sound_at_all_is_still_a_valid_file(name: str) -> None:
    data = encode(name, np.zeros(0, np.float32), 24000)
    with sf.SoundFile(io.BytesIO(data)) as file:
        assert file.read().size <= 2400


def test_streamed_silence_as_mp3_keeps_its_first_frame() -> None:
    silence = np.zeros(24000, np.float32)
    got, _ = sf.read(io.BytesIO(streamed("mp3", silence, 24000)))
    assert 24000 <= len(got) <= 24000 + 2400


@pytest.mark.parametrize("name", ["mp3", "opus", "aac", "flac"])
def test_what_is_pushed_can_be_heard_soon(name: str) -> None:
    """Ogg pages of a second, which is the muxer's default, would keep a listener waiting."""
    pytest.importorskip("av")
    audio, step = voice(24000), 2400
    encoder, data = open_encoder(name, 24000), b""
    for end in range(step, len(audio), step):
        data += encoder.push(audio[end - step : end])
        if end > step:
            with open_recording(io.BytesIO(data), ReadLimits(max_seconds=None)) as recording:
                heard_s = sum(len(block) for block in recording.blocks) / recording.rate
            assert end / 24000 - heard_s < 0.2
    encoder.finish()


_ELSEWHERE = """
import hashlib, sys
import numpy as np
from oscine.audio.encode import encode, open_encoder
audio = np.frombuffer(sys.stdin.buffer.read(), np.float32)
for name in sys.argv[1:]:
    encoder = open_encoder(name, 24000, seed=5)
    stream = encoder.push(audio[:7000]) + encoder.push(audio[7000:]) + encoder.finish()
    for data in (encode(name, audio, 24000, seed=5), stream):
        print(name, hashlib.sha256(data).hexdigest())
"""


def test_bytes_do_not_depend_on_the_run() -> None:
    """libsndfile draws a serial number at random for every Ogg stream."""
    audio, names = voice(24000), sorted(FORMATS)
    here = []
    for name in names:
        stream = streamed(name, audio, 24000, (7000, len(audio)), seed=5)
        here += [f"{name} {hashlib.sha256(data).hexdigest()}" for data in (encode(name, audio, 24000, seed=5), stream)]
    environment = os.environ | {"TZ": "Asia/Tokyo", "LANG": "C", "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", _ELSEWHERE, *names]
    other = subprocess.run(command, input=audio.tobytes(), capture_output=True, env=environment, check=True)
    assert other.stdout.decode().split("\n")[:-1] == here


@pytest.mark.parametrize("name", ["opus", "ogg"])
def test_streams_of_two_seeds_can_be_played_as_one_chain(name: str) -> None:
    audio = voice(24000)
    first, second = (encode(name, audio, 24000, seed=seed) for seed in (5, 6))
    numbers = {data[position + 14 : position + 18] for data in (first, second) for position in _pages(data)}
    assert numbers == {struct.pack("<I", serial_of(5)), struct.pack("<I", serial_of(6))}


def _pages(data: bytes) -> list[int]:
    """Where the pages begin; every checksum is that of a slow, literal reading of the format's definition."""
    begins, position = [], 0
    while position < len(data):
        begins.append(position)
        table = data[position + 27 : position + 27 + data[position + 26]]
        end = position + 27 + len(table) + sum(table)
        page = bytearray(data[position:end])
        stated, page[22:26] = struct.unpack_from("<I", page, 22)[0], bytes(4)
        register = 0
        for byte in page:
            register ^= byte << 24
            for _ in range(8):
                register = (register << 1) ^ (0x104C11DB7 if register & 0x80000000 else 0)
        assert register == stated
        position = end
    return begins


def test_wav_sizes_known_and_unknown() -> None:
    audio = voice(16000)
    with wave.open(io.BytesIO(encode("wav", audio, 16000))) as file:
        assert (file.getnframes(), file.getframerate(), file.getnchannels()) == (len(audio), 16000, 1)
    header = wav_header(16000, None)
    assert header[4:8] == header[40:44] == b"\xff" * 4
    assert streamed("wav", audio, 16000)[:44] == header
    with wave.open(io.BytesIO(header)) as file:
        assert file.getframerate() == 16000


def test_a_wav_too_long_for_its_header_declares_unknown() -> None:
    assert wav_header(48000, 1 << 31) == wav_header(48000, None)


def test_int16_rounding() -> None:
    exact = np.arange(-32768, 32768, dtype=np.int16)
    np.testing.assert_array_equal(to_int16(exact.astype(np.float32) / 32768), exact)
    ties = np.array([0.5, 1.5, 2.5, -0.5], np.float32) / 32768
    assert to_int16(ties).tolist() == [0, 2, 2, 0]
    assert to_int16(np.array([2.0, 1.0, -1.0, -2.0], np.float32)).tolist() == [32767, 32767, -32768, -32768]
    assert pcm16_bytes(np.array([1 / 32768], np.float32)) == b"\x01\x00"


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"aac"}))
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_samples_are_an_error(name: str, bad: float) -> None:
    encoder = open_encoder(name, 44100)
    with pytest.raises(NonFiniteOutput, match="1 of 3"):
        encoder.push(np.array([0.0, bad, 0.0], np.float32))
    encoder.close()


def test_target_rate_resamples_as_a_stream() -> None:
    audio = voice(44100)
    encoder = open_encoder("pcm", 44100, target_rate=24000)
    assert encoder.sample_rate == 24000
    data = encoder.push(audio[:1001]) + encoder.push(audio[1001:]) + encoder.finish()
    assert data == pcm16_bytes(resample(audio, 44100, 24000))


def test_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="flac"):
        open_encoder("midi", 24000)


def test_aac_without_pyav_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oscine.audio.formats.importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnsupportedFeature, match="oscine\\[server\\]"):
        open_encoder("aac", 24000)


def test_content_types() -> None:
    assert content_type("pcm", 24000) == "audio/pcm;rate=24000;channels=1"
    assert [content_type(name, 1) for name in ("mp3", "opus", "wav")] == ["audio/mpeg", "audio/ogg", "audio/wav"]
    assert all(item.suffix.startswith(".") for item in FORMATS.values())
