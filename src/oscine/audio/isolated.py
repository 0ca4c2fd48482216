"""Decodes recordings in processes of their own, so that nothing a file holds can reach this one."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from oscine.audio.limits import ReadLimits
from oscine.audio.recording import check_container
from oscine.cancellation import Watchdog, check_cancelled, wait_for
from oscine.errors import BadAudio, GenerationError, InputTooLong, NotReady, QueueFull
from oscine.types import Samples

_log = logging.getLogger(__name__)

_COMMAND = ("-P", "-c", "from oscine.audio.worker import main; main()")
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "LANG", "LC_ALL", "TMPDIR")
"""What a decoder is told of the environment: no key or token is among it."""
_CLOSING = "the server is shutting down"
_LONGEST_LINE = 1 << 16
_LONGEST_BLOCK = 1 << 28
_MOST_RECORDINGS = 64
"""Recordings after which a decoder is replaced."""


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """A recording being decoded: its rate in Hz, the samples its header states (None: none), and its mono blocks."""

    rate: int
    num_samples: int | None
    blocks: Iterator[Samples]


class IsolatedDecoders:
    """Processes that decode, `at_a_time` at most; they start when they are needed, and stay for the next recording.

    A recording takes `timeout_s` at most; one that finds no free process waits for it `wait_s`.
    """

    def __init__(self, *, at_a_time: int, timeout_s: float, wait_s: float) -> None:
        self._free = threading.BoundedSemaphore(at_a_time)
        self._timeout_s, self._wait_s = timeout_s, wait_s
        self._lock = threading.Lock()
        self._idle: list[_Decoder] = []
        self._running: set[_Decoder] = set()
        self._closed = False

    @contextmanager
    def decode(self, data: bytes, limits: ReadLimits) -> Iterator[Decoding]:
        """The recording `data`, for as long as the block lasts. Blocks; call it beside an event loop.

        Raises InputTooLong, BadAudio for what cannot be read in time or within the limits (the blocks raise it too),
        QueueFull when too many recordings are being decoded, NotReady once closed, Cancelled (`check_cancelled`),
        GenerationError if no process can be started.
        """
        if len(data) > limits.max_bytes:
            raise InputTooLong(
                f"{limits.param}: {len(data)} bytes; the limit is {limits.max_bytes}", param=limits.param
            )
        check_container(io.BytesIO(data), limits)
        if not wait_for(lambda timeout: self._free.acquire(timeout=timeout), self._wait_s):
            raise QueueFull("other recordings are being decoded; try again later", retry_after_s=2)
        try:
            decoder = self._take()
            try:
                with decoder.decode(data, limits, self._timeout_s) as decoding:
                    yield decoding
            finally:
                self._give_back(decoder)
        finally:
            self._free.release()

    def close(self) -> None:
        """Ends all processes; what is being decoded breaks off, and nothing more is. Idempotent."""
        with self._lock:
            self._closed = True
            running, idle = set(self._running), self._idle
            self._idle = []
        for decoder in running:
            decoder.abandon()  # whoever uses it closes it
        for decoder in idle:
            decoder.close()

    def _take(self) -> _Decoder:
        with self._lock:
            if self._closed:
                raise NotReady(_CLOSING)
            decoder = self._idle.pop() if self._idle else _Decoder()
            self._running.add(decoder)
        return decoder

    def _give_back(self, decoder: _Decoder) -> None:
        with self._lock:
            self._running.discard(decoder)
            if decoder.usable and not self._closed:
                self._idle.append(decoder)
                return
        decoder.close()


class _Decoder:
    """One process that runs `oscine.audio.worker`, used again as long as each recording came to its end."""

    def __init__(self) -> None:
        self.usable = True
        self._num_recordings = 0
        self._abandoned = False
        self._watchdog = Watchdog(self.kill, 0.0)  # of the last recording
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        environment["OMP_NUM_THREADS"] = environment["OPENBLAS_NUM_THREADS"] = "1"
        try:
            self._process = subprocess.Popen(
                [sys.executable, *_COMMAND],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the server
            )
        except OSError as error:
            raise GenerationError(f"no process can be started to decode audio: {error.strerror}") from error

    @contextmanager
    def decode(self, data: bytes, limits: ReadLimits, timeout_s: float) -> Iterator[Decoding]:
        """See `IsolatedDecoders.decode`."""
        first, self.usable = self._num_recordings == 0, False
        self._num_recordings += 1
        with Watchdog(self.kill, timeout_s) as self._watchdog:
            if first:
                self._await_start()
            self._send({"limits": asdict(limits), "num_bytes": len(data)}, data)
            head = self._receive(limits, timeout_s)
            rate, num_samples = int(head["rate"]), head["num_samples"]
            limits.check_header(rate, 1, num_samples)
            yield Decoding(rate=rate, num_samples=num_samples, blocks=self._blocks(limits, timeout_s))

    def kill(self) -> None:
        """Ends the process; whoever waits for it is told so."""
        self.usable = False
        self._process.kill()

    def close(self) -> None:
        """Ends the process and frees what belongs to it."""
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):  # what it has not read any more
                pipe.close()

    def abandon(self) -> None:
        """Ends the process because nobody may use it any more."""
        self._abandoned = True
        self.kill()

    def _send(self, message: dict[str, Any], payload: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has died, which is seen when its answer is read
            self._process.stdin.write(json.dumps(message).encode("ascii") + b"\n")
            self._process.stdin.write(payload)
            self._process.stdin.flush()

    def _await_start(self) -> None:
        """Raises GenerationError if the process does not work at all, for which no recording is to blame."""
        assert self._process.stdout is not None
        if not self._process.stdout.readline(_LONGEST_LINE) and not (self._watchdog.late or self._abandoned):
            check_cancelled()
            raise GenerationError("the process that decodes audio did not start; the server's log says why")

    def _receive(self, limits: ReadLimits, timeout_s: float) -> dict[str, Any]:
        """The next message. Raises BadAudio for an error, and for a process that has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            self.kill()
            check_cancelled()
            if self._abandoned:
                raise NotReady(_CLOSING)
            if self._watchdog.late:
                raise limits.refuse(f"decoding it takes longer than the {timeout_s:g} s that this server gives it")
            _log.warning("a decoder ended with status %s", self._process.wait())
            raise limits.refuse("cannot read it as audio: it is damaged, or needs too much memory")
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            self._rest()
            raise BadAudio(message["error"], param=limits.param)
        return message

    def _blocks(self, limits: ReadLimits, timeout_s: float) -> Iterator[Samples]:
        assert self._process.stdout is not None
        while "end" not in (message := self._receive(limits, timeout_s)):
            data = self._process.stdout.read(min(message["num_bytes"], _LONGEST_BLOCK) // 4 * 4)
            yield np.frombuffer(data[: len(data) // 4 * 4], np.float32)
        self._rest()

    def _rest(self) -> None:
        """It is done with a recording: the next one may come."""
        self.usable = self._num_recordings < _MOST_RECORDINGS
