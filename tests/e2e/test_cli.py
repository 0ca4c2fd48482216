"""The command line with a real model in a real process."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

FOLDER = Path(__file__).parents[1] / "golden" / "data" / "audio8" / "ckpt_dense_a"


def oscine(*args: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "oscine", *args], capture_output=True, timeout=100, **options)  # type: ignore[call-overload, no-any-return]


def say(*args: str) -> list[str]:
    return ["say", "Hello world.", "--model", str(FOLDER), "--seed", "3", "--max-new-tokens", "20", *args]


def test_streamed_stdout_equals_the_file_sample_by_sample(tmp_path: Path) -> None:
    file = tmp_path / "out.wav"
    done = oscine(*say("-o", str(file), "--json"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["seed"] == 3
    assert report["finish_reason"] in ("stop", "length")
    piped = oscine(*say("--stream", "-o", "-"))
    assert piped.returncode == 0, piped.stderr
    whole, rate = soundfile.read(file, dtype="int16")
    # A streamed header declares an unknown length, so the data is what follows it.
    start = piped.stdout.index(b"data") + 8
    np.testing.assert_array_equal(np.frombuffer(piped.stdout[start:], "<i2"), whole)
    assert rate == report["sample_rate"] == 44100
    assert len(whole) == round(report["duration_s"] * rate)
    assert soundfile.info(io.BytesIO(piped.stdout)).samplerate == rate


def test_ctrl_c_leaves_no_half_written_file_and_exits_130(tmp_path: Path) -> None:
    out = tmp_path / "long.wav"
    text = tmp_path / "long.txt"
    text.write_text("This sentence is said again and again, and it never ends. " * 400)
    command = [sys.executable, "-m", "oscine", "say", "--file", str(text), "--model", str(FOLDER), "-o", str(out)]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )
    deadline = time.monotonic() + 90
    while not list(tmp_path.glob("*long*part*")) + list(tmp_path.glob(".*")) and time.monotonic() < deadline:
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert [p.name for p in tmp_path.iterdir()] == ["long.txt"]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["say", "Hi", "--model", "/no/such/folder", "-o", "x.wav"], 2, "no/such/folder"),
        (["say", "Hi", "--model", str(FOLDER), "--cfg-scale", "2", "-o", "x.wav"], 2, "cfg_scale"),
        (["inspect", "/no/such/folder"], 2, "no/such/folder"),
    ],
)
def test_errors_are_one_line_and_have_their_exit_code(args: list[str], code: int, words: str, tmp_path: Path) -> None:
    done = oscine(*args, cwd=tmp_path)
    assert done.returncode == code
    lines = done.stderr.decode().strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("oscine: error:")
    assert words in lines[0]
    assert list(tmp_path.iterdir()) == []
