"""The process that decodes what strangers send: with little memory, unable to open anything, and no loss if it dies.

Started by `oscine.audio.isolated`. A message is a line of JSON; `num_bytes` in it says how many bytes follow. In come
`{"limits": {...}, "num_bytes": n}` and a recording. Out go `{"rate", "num_samples"}`, which its header states, mono
blocks `{"num_bytes"}` of float32, and `{"end": true}`; or, in the place of any of them, `{"error": text}`.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from oscine.audio.containers import Container
from oscine.audio.io import in_memory
from oscine.audio.limits import ReadLimits
from oscine.audio.recording import mono_blocks, open_recording
from oscine.audio.wav import pcm16_bytes, wav_header
from oscine.errors import BadAudio

try:
    import resource
except ImportError:  # Windows has no such limits: what is left is the process of its own and its deadline
    resource = None  # type: ignore[assignment]

MEMORY = 512 << 20
"""Bytes that decoding may take beside what the process has when it begins."""
CPU_S = 3600
"""Seconds of work after which it ends by itself, should nobody be left who could end it."""
_NICENESS = 5


def main() -> None:
    """Answers recordings on stdin until there are no more."""
    source, sink = sys.stdin.buffer, _own_output()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # what libraries print
    _warm_up()
    seal()
    send(sink, {"ready": True})
    os.dup2(null, 2)
    while line := source.readline():
        message = json.loads(line)
        answer(source.read(message["num_bytes"]), ReadLimits(**message["limits"]), sink)


def answer(data: bytes, limits: ReadLimits, sink: BinaryIO) -> None:
    """Writes what becomes of one recording."""
    try:
        with open_recording(in_memory(data, limits), limits) as recording:
            send(sink, {"rate": recording.rate, "num_samples": recording.num_frames})
            for mono in mono_blocks(recording, limits):
                send(sink, {"num_bytes": mono.nbytes}, mono.tobytes())
        send(sink, {"end": True})
    except BadAudio as error:
        send(sink, {"error": error.message})


def send(sink: BinaryIO, message: dict[str, Any], payload: bytes = b"") -> None:
    """Writes a message and the bytes that follow it."""
    sink.write(json.dumps(message).encode("ascii") + b"\n" + payload)
    sink.flush()


def seal() -> None:
    """Takes from this process, for good, the means to open files and sockets, to write files and to grow."""
    if resource is None:
        return
    with suppress(OSError):
        os.nice(_NICENESS)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    wanted = {
        resource.RLIMIT_NOFILE: lowest,  # a new descriptor would have this number
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: CPU_S,
    }
    statm = Path("/proc/self/statm")
    if statm.exists():
        pages = int(statm.read_text(encoding="ascii").split()[0])
        wanted[resource.RLIMIT_AS] = pages * resource.getpagesize() + MEMORY
    for name, limit in wanted.items():
        hard = resource.getrlimit(name)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(name, (limit, limit))


def _own_output() -> BinaryIO:
    """What stdout was, under a number that nothing else writes to."""
    return os.fdopen(os.dup(1), "wb")


def _warm_up() -> None:
    """Decodes a little with each library, so that nothing is left that they would load later."""
    ramp = np.linspace(-0.5, 0.5, 8000, dtype=np.float32)
    data = wav_header(8000, len(ramp)) + pcm16_bytes(ramp)
    answer(data, ReadLimits(), io.BytesIO())
    if importlib.util.find_spec("av") is not None:
        from oscine.audio.read_pyav import open_with_ffmpeg

        with ExitStack() as opened:
            for _ in open_with_ffmpeg(io.BytesIO(data), Container(demuxer="wav"), opened).blocks:
                pass
