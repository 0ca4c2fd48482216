"""The command as a process: quick help, exit codes, pipes that close, full disks, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FAKE = """
import sys, time
import numpy as np
import oscine
from oscine.result import Timings
from oscine.types import AudioChunk, Capabilities

class Stream:
    sample_rate, seed, finish_reason, pieces = 24000, 1, "stop", ()
    timings = Timings(queued_s=0, first_audio_s=0, total_s=1, audio_s=1)
    def __enter__(self): return self
    def __exit__(self, *exception): print("stream closed", file=sys.stderr, flush=True)
    def __iter__(self):
        for i in range({chunks}):
            yield AudioChunk(samples=np.zeros(24000, np.float32), sample_rate=24000, start=24000 * i)
            print("chunk", file=sys.stderr, flush=True)
            time.sleep({pause})

class Model:
    capabilities = Capabilities(family="f", model="m", tasks=("speech",), languages=(), sample_rate=24000,
        frame_rate=20.0, voice_cloning=False, streaming=True, licence="MIT", options={{}})
    def __enter__(self): return self
    def __exit__(self, *exception): pass
    def stream(self, text, **request): return Stream()

oscine.load = lambda *a, **k: Model()
from oscine.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def fake(*arguments: str, chunks: int = 3, pause: float = 0.0, stdout: object = subprocess.PIPE) -> subprocess.Popen:
    code = FAKE.format(chunks=chunks, pause=pause)
    return subprocess.Popen(
        [sys.executable, "-c", code, "say", "Hi", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=False,
        preexec_fn=heed_interrupts,
    )  # type: ignore[call-overload,no-any-return]


def heed_interrupts() -> None:
    """Undoes what the background job of a shell does, which ignores SIGINT for itself and its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom oscine.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit as e: assert e.code == 0\n"
        "heavy = {'torch', 'numpy', 'soundfile', 'tqdm', 'safetensors', 'huggingface_hub'}\n"
        "print(*sorted({m.split('.')[0] for m in sys.modules} & heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "say" in done.stdout
    assert done.stdout.splitlines()[-1] == ""


def test_the_module_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "oscine", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:7]) == (0, "oscine ")
    done = subprocess.run([sys.executable, "-m", "oscine"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "COMMAND" in done.stderr


def test_a_reader_that_leaves_ends_it_quietly() -> None:
    process = fake("-o", "-", chunks=50)
    assert process.stdout is not None
    assert process.stdout.read(10)[:4] == b"RIFF"
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(30) == 1
    assert errors.count("chunk") < 50
    assert "stream closed" in errors
    assert "rror" not in errors
    assert "Traceback" not in errors


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("target", ["stdout", "file"])
def test_a_full_disk_is_said_in_one_line(target: str) -> None:
    with open("/dev/full", "wb") as full:
        to_stdout = target == "stdout"
        arguments = ("-o", "-") if to_stdout else ("-o", "/dev/full", "--format", "flac")
        process = fake(*arguments, stdout=full if to_stdout else subprocess.PIPE)
        errors = process.communicate(timeout=30)[1].decode()
    assert process.returncode == 1
    lines = [line for line in errors.splitlines() if line.startswith("oscine: error: ")]
    assert len(lines) == 1
    assert "No space left" in lines[0]
    assert "Traceback" not in errors
    assert "ignored" not in errors


def test_an_answer_that_cannot_be_printed_is_a_failure() -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "oscine", "voices", "list", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["oscine: error: [Errno 28] No space left on device"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("stream", [False, True])
def test_a_signal_cancels_and_leaves_no_part(tmp_path: Path, number: int, code: int, stream: bool) -> None:
    process = fake("-o", str(tmp_path / "a.wav"), *(["--stream"] if stream else []), chunks=300, pause=0.05)
    assert process.stderr is not None
    assert process.stderr.readline() == b"chunk\n"
    assert os.listdir(tmp_path) != []
    started = time.monotonic()
    process.send_signal(number)
    errors = process.communicate(timeout=30)[1].decode()
    assert process.returncode == code
    assert time.monotonic() - started < 5
    assert "stream closed" in errors
    assert "Traceback" not in errors
    assert os.listdir(tmp_path) == []


def test_what_libraries_print_does_not_get_into_the_audio() -> None:
    quiet = FAKE.format(chunks=3, pause=0.0).replace("main(sys.argv[1:])", "main()")
    loud = "import ctypes\nlibc = ctypes.CDLL(None)\n" + quiet.replace(
        "def __iter__(self):", "def __iter__(self):\n        libc.puts(b'noise')"
    )
    silent, noisy = (
        subprocess.run([sys.executable, "-c", code, "say", "Hi", "-o", "-"], capture_output=True, check=True)
        for code in (quiet, loud)
    )
    assert noisy.stdout == silent.stdout
    assert b"noise" in noisy.stderr
