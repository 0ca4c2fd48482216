"""A real `oscine serve` in a process of its own, watched from outside while it is attacked."""

from __future__ import annotations

import http.client
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.server.conftest import CHECKPOINT, ready, wait_until

ROOT = Path(__file__).parents[2]
HEALTH_TIMEOUT_S = 30.0
PROBE_EVERY_S = 0.05


@dataclass
class Watch:
    """What an attack did: waits in seconds, sizes in bytes."""

    longest_health_s: float = 0.0
    num_probes: int = 0
    failures: list[str] = field(default_factory=list)
    """Probes of `/health` that got no 200."""
    memory_growth: int = 0
    """The highest resident memory meanwhile, less that at the beginning."""
    log_growth: int = 0

    def __str__(self) -> str:
        return (
            f"/health: longest wait {1000 * self.longest_health_s:.0f} ms in {self.num_probes} probes, "
            f"{len(self.failures)} failed; memory +{self.memory_growth / 2**20:.1f} MiB; "
            f"log +{self.log_growth} bytes"
        )


class Server:
    """A running server process; `url` is its address, `log` the file with its stderr."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log
        self.url = ""

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.url.rsplit(":", 1)[1])

    def connect(self, timeout_s: float = 60.0) -> socket.socket:
        """A new connection, nothing sent yet."""
        return socket.create_connection(("127.0.0.1", self.port), timeout_s)

    def memory(self) -> int:
        """Its resident memory in bytes, with that of the processes it has started."""
        return sum(map(_resident, (self.process.pid, *self.children())))

    def children(self) -> list[int]:
        """The processes it has started and not yet done away with."""
        found = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(child) for thread in found for child in _read(thread).split()]

    def num_files(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def log_text(self) -> str:
        """What it has written to stderr so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def _health_failure(self) -> str:
        """What is wrong with the answer of `/health` on a new connection; empty if nothing is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HEALTH_TIMEOUT_S)
        try:
            connection.request("GET", "/health")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return repr(error)
        finally:
            connection.close()
        return "" if status == 200 else f"status {status}"

    @contextmanager
    def watched(self) -> Iterator[Watch]:
        """Asks for `/health` on new connections all the time, and follows memory and log, until the block is left."""
        watch, stop = Watch(), threading.Event()
        memory, log = self.memory(), self.log.stat().st_size

        def probe() -> None:
            while not stop.is_set():
                began = time.perf_counter()
                failure = self._health_failure()
                watch.num_probes += 1
                watch.longest_health_s = max(watch.longest_health_s, time.perf_counter() - began)
                if failure:
                    watch.failures.append(failure)
                watch.memory_growth = max(watch.memory_growth, self.memory() - memory)
                stop.wait(PROBE_EVERY_S)

        prober = threading.Thread(target=probe)
        prober.start()
        try:
            yield watch
        finally:
            stop.set()
            prober.join()
            watch.log_growth = self.log.stat().st_size - log


def _read(path: Path) -> str:
    """What is in a file of a process; nothing once the process has ended."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _resident(process: int) -> int:
    """Bytes of memory; none of a process that has ended."""
    return 1024 * sum(map(int, re.findall(r"^VmRSS:\s+(\d+) kB$", _read(Path(f"/proc/{process}/status")), re.M)))


@contextmanager
def server_process(
    folder: Path,
    *arguments: str,
    models: Sequence[str] = (str(CHECKPOINT),),
    command: Sequence[str] = ("-m", "oscine"),
    environment: Mapping[str, str] | None = None,
    max_files: int | None = None,
    wait_ready: bool = True,
) -> Iterator[Server]:
    """`oscine serve` with `arguments`, ready unless told otherwise, until the block is left.

    `folder` takes its log and its voices. `command` are Python's arguments in the place of `-m oscine`, `max_files`
    its limit of open files.
    """

    def limit() -> None:
        if max_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))

    full = [sys.executable, *command, "serve", *models, "--port", "0", "--device", "cpu", "--threads", "1"]
    where = ["--voices-dir", str(folder / "voices"), "--offline"]
    log = folder / "stderr.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*full, *where, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
            preexec_fn=limit,
            cwd=ROOT,
        )
    server = Server(process, log)
    try:
        wait_until(lambda: _listens(server), 100)
        if wait_ready:
            wait_until(lambda: ready(server.url), 100)
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(30)


def _listens(server: Server) -> bool:
    """Whether it has said its address, which it then has."""
    assert server.process.poll() is None, server.log_text()
    found = re.search(r"listening on (http://\S+)", server.log_text())
    server.url = found.group(1) if found else ""
    return bool(found)
