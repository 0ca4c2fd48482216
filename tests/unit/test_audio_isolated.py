"""Decoding in another process: the same samples, and nothing a recording does reaches this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from oscine.audio import isolated
from oscine.audio.io import collect, read_audio
from oscine.audio.isolated import IsolatedDecoders
from oscine.audio.limits import ReadLimits
from oscine.errors import BadAudio, GenerationError, InputTooLong, NotReady, QueueFull
from oscine.types import Samples
from tests.recordings import flac, good, m4a, mutated

LONG_S = 100.0


def make(at_a_time: int = 1, timeout_s: float = LONG_S, wait_s: float = LONG_S) -> IsolatedDecoders:
    return IsolatedDecoders(at_a_time=at_a_time, timeout_s=timeout_s, wait_s=wait_s)


@pytest.fixture(scope="module")
def decoders() -> Iterator[IsolatedDecoders]:
    decoders = make()
    yield decoders
    decoders.close()


def read(decoders: IsolatedDecoders, data: bytes, limits: ReadLimits | None = None) -> tuple[Samples, int]:
    with decoders.decode(data, limits or ReadLimits()) as decoding:
        return collect(decoding.blocks), decoding.rate


def outcome(work: Callable[[], Samples]) -> Samples | tuple[str, str | None]:
    """What it gives, or message and field of what is wrong."""
    try:
        return work()
    except BadAudio as error:
        return error.message, error.param


@pytest.mark.parametrize("name", good())
def test_a_process_that_can_open_nothing_decodes_every_container_alike(decoders: IsolatedDecoders, name: str) -> None:
    samples, rate = read(decoders, good()[name])
    here = read_audio(good()[name])
    assert rate == here.sample_rate
    np.testing.assert_array_equal(samples, here.samples)


def test_what_is_refused_is_refused_in_the_same_words(decoders: IsolatedDecoders) -> None:
    limits = ReadLimits(max_seconds=5, param="file")
    refused = 0
    for data in (b"", b"no audio", flac(16_000, 1, 10), *(mutated(seed)[1] for seed in range(20))):
        expected = outcome(lambda data=data: read_audio(data, max_seconds=5, param="file").samples)
        got = outcome(lambda data=data: read(decoders, data, limits)[0])
        np.testing.assert_equal(got, expected)
        refused += isinstance(got, tuple)
    assert refused > 5
    with pytest.raises(InputTooLong, match="limit is 50"):
        read(decoders, good()["WAV-PCM_16"], ReadLimits(max_bytes=50))
    with pytest.raises(BadAudio, match="2 channels; from 1 to 1"):
        read(decoders, good()["WAV-PCM_16"], ReadLimits(max_channels=1))


def test_a_header_of_a_few_bytes_cannot_make_it_take_gigabytes(decoders: IsolatedDecoders) -> None:
    data = m4a(50_000_000)
    assert len(data) < 5000
    with pytest.raises(BadAudio, match="damaged|empty"):
        read(decoders, data)
    assert len(read(decoders, good()["WAV-PCM_16"])[0])


def test_what_takes_too_long_is_broken_off_and_the_next_recording_is_read() -> None:
    decoders = make(timeout_s=3.0)
    try:
        with decoders.decode(flac(48_000, 1, 1500), ReadLimits(max_seconds=None)) as decoding:
            (decoder,) = decoders._running
            decoder._process.wait(LONG_S)  # nobody takes the blocks, so it waits as well
            with pytest.raises(BadAudio, match="takes longer than the 3 s"):
                collect(decoding.blocks)
        assert len(read(decoders, good()["WAV-PCM_16"])[0])
    finally:
        decoders.close()


def test_a_process_that_dies_fails_one_recording(caplog: pytest.LogCaptureFixture) -> None:
    decoders = make()
    try:
        read(decoders, good()["WAV-PCM_16"])
        (decoder,) = decoders._idle
        os.kill(decoder._process.pid, 9)
        with pytest.raises(BadAudio, match="damaged, or needs too much memory"):
            read(decoders, good()["WAV-PCM_16"])
        assert "status -9" in caplog.text
        assert len(read(decoders, good()["WAV-PCM_16"])[0])
    finally:
        decoders.close()


def test_no_more_than_so_many_at_a_time_and_the_others_wait_so_long() -> None:
    decoders = make(wait_s=0.05)
    try:
        with decoders.decode(good()["WAV-PCM_16"], ReadLimits()) as decoding:
            with pytest.raises(QueueFull, match="other recordings"):
                read(decoders, good()["FLAC-PCM_16"])
            assert len(collect(decoding.blocks))
        assert len(read(decoders, good()["FLAC-PCM_16"])[0])
    finally:
        decoders.close()


def test_a_process_is_kept_for_so_many_recordings_and_replaced_after_one_left_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolated, "_MOST_RECORDINGS", 3)
    decoders = make()
    try:
        read(decoders, good()["m4a-aac"])
        (first,) = decoders._idle
        with pytest.raises(BadAudio, match="damaged"):
            read(decoders, b"fLaC" + bytes(100))
        assert decoders._idle == [first]
        read(decoders, good()["WAV-PCM_16"])
        assert decoders._idle == []
        with decoders.decode(good()["WAV-PCM_16"], ReadLimits()):
            (second,) = decoders._running
        assert decoders._idle == []
        for decoder in (first, second):
            assert decoder._process.returncode is not None
    finally:
        decoders.close()


def test_closing_ends_what_is_being_decoded() -> None:
    decoders = make()
    with decoders.decode(flac(48_000, 1, 1500), ReadLimits(max_seconds=None)) as decoding:
        next(decoding.blocks)
        decoders.close()
        with pytest.raises(NotReady, match="shutting down"):
            collect(decoding.blocks)
    with pytest.raises(NotReady):
        read(decoders, good()["WAV-PCM_16"])


def test_a_process_that_cannot_start_is_the_servers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "_COMMAND", ("-c", "raise SystemExit(3)"))
    decoders = make()
    with pytest.raises(GenerationError, match="did not start"):
        read(decoders, good()["WAV-PCM_16"])
    monkeypatch.setattr(sys, "executable", "/none")
    with pytest.raises(GenerationError, match="no process can be started"):
        read(decoders, good()["WAV-PCM_16"])
    decoders.close()


SEALED = """
import os, socket, sys
from oscine.audio import worker
worker._warm_up()
worker.seal()
outcomes = []
for attempt in (lambda: open(sys.argv[1]), lambda: socket.socket(), lambda: os.open("/", os.O_RDONLY),
                lambda: bytearray(worker.MEMORY * 2)):
    try:
        attempt()
        outcomes.append("done")
    except (OSError, MemoryError) as error:
        outcomes.append(type(error).__name__)
print(*outcomes, sorted(name for name in os.environ if "KEY" in name))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of Linux")
def test_a_sealed_process_opens_nothing_and_takes_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("secret")
    done = subprocess.run([sys.executable, "-c", SEALED, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout.split()[:4] == ["OSError", "OSError", "OSError", "MemoryError"]


def test_a_decoder_is_told_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSCINE_API_KEY", "secret")
    monkeypatch.setattr(isolated, "_COMMAND", ("-c", "import os, sys; sys.stderr.write(os.environ['OSCINE_API_KEY'])"))
    decoders = make()
    with pytest.raises(GenerationError, match="did not start"):  # it ended by a KeyError
        read(decoders, good()["WAV-PCM_16"])
    decoders.close()
