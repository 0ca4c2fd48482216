"""Counters and histograms of one server, in the text format that Prometheus reads; and the player simulation."""

from __future__ import annotations

import bisect
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oscine.engine.admission import PacingStats

TTFA_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
RTF_BUCKETS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0, 10.0)
FRAMES_WINDOW_S = 10.0
"""What `frames_per_second` is the mean of."""
UNDERRUN_BUCKETS = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Playback:
    """A listener who starts with the first audio and waits whenever there is none.

    `underrun_s` is how long they have waited after the first audio, in seconds.
    """

    def __init__(self) -> None:
        self.underrun_s = 0.0
        self._runs_out: float | None = None

    def arrive(self, now: float, seconds: float) -> None:
        """`seconds` of audio have arrived at time `now`."""
        if self._runs_out is None:
            self._runs_out = now
        self.underrun_s += max(0.0, now - self._runs_out)
        self._runs_out = max(self._runs_out, now) + seconds


class Histogram:
    """Counts of values at most each of `bounds`."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Counts one value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str) -> list[str]:
        """The series of this histogram under `name`."""
        out, seen = [], 0
        for bound, count in zip([*(f"{b:g}" for b in self.bounds), "+Inf"], self.counts, strict=True):
            seen += count
            out.append(f'{name}_bucket{{le="{bound}"}} {seen}')
        return [*out, f"{name}_sum {self.total:.9g}", f"{name}_count {seen}"]


class Metrics:
    """What happened on one server since it started. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, str], int] = {}
        self._sums = {"input_tokens": 0, "output_tokens": 0}
        self._frames = 0
        self._recent: deque[tuple[float, int]] = deque()
        self._audio_s = 0.0
        self._histograms = {
            "ttfa_seconds": (Histogram(TTFA_BUCKETS), "Seconds from a request to its first audio"),
            "rtf": (Histogram(RTF_BUCKETS), "Seconds of work for one second of audio"),
            "underrun_seconds": (Histogram(UNDERRUN_BUCKETS), "Seconds a listener would have waited in mid-speech"),
        }
        self.mean_request_s = 1.0
        """Running mean of how long a request takes, for Retry-After."""

    def count(self, endpoint: str, outcome: str) -> None:
        """One request to `endpoint` ended as ok, invalid, rejected, cancelled or failed."""
        with self._lock:
            key = (endpoint, outcome)
            self._requests[key] = self._requests.get(key, 0) + 1

    def spoke(
        self, *, ttfa_s: float, total_s: float, audio_s: float, underrun_s: float | None, usage: Mapping[str, int]
    ) -> None:
        """One request has been spoken to its end; `underrun_s` is None if it was not streamed."""
        with self._lock:
            self._histograms["ttfa_seconds"][0].observe(ttfa_s)
            if audio_s:
                self._histograms["rtf"][0].observe(total_s / audio_s)
            if underrun_s is not None:
                self._histograms["underrun_seconds"][0].observe(underrun_s)
            self._audio_s += audio_s
            self.mean_request_s += 0.1 * (total_s - self.mean_request_s)
        self.used(usage)

    def used(self, usage: Mapping[str, int]) -> None:
        """One request has ended and used so many tokens."""
        with self._lock:
            for name in self._sums:
                self._sums[name] += usage[name]

    def made(self, num_frames: int) -> None:
        """So many frames of audio have been made."""
        with self._lock:
            self._frames += num_frames
            self._recent.append((time.monotonic(), num_frames))
            self._forget_old()

    def _forget_old(self) -> None:
        while self._recent and self._recent[0][0] < time.monotonic() - FRAMES_WINDOW_S:
            self._recent.popleft()

    def render(self, *, queue_depth: int, running: int, active: int, pacing: PacingStats) -> str:
        """All series as text; `queue_depth` and `running` are numbers of jobs, `active` of requests being served."""
        with self._lock:
            out = _head("requests_total", "counter", "Requests by endpoint and how they ended")
            for (endpoint, outcome), number in sorted(self._requests.items()):
                out.append(f'oscine_requests_total{{endpoint="{endpoint}",outcome="{outcome}"}} {number}')
            out += _single("queue_depth", "gauge", "Jobs waiting in the engine", queue_depth)
            out += _single("running", "gauge", "Jobs running in the engine", running)
            out += _single("requests_active", "gauge", "Requests being served", active)
            out += _of_listeners(pacing)
            for name, (histogram, text) in self._histograms.items():
                out += [*_head(name, "histogram", text), *histogram.lines(f"oscine_{name}")]
            out += _single("frames_total", "counter", "Frames of audio made", self._frames)
            out += _single(
                "frames_per_second", "gauge", f"The same of the last {FRAMES_WINDOW_S:g} s", self._frame_rate()
            )
            out += _single("audio_seconds_total", "counter", "Seconds of audio made", self._audio_s)
            out += _head("tokens_total", "counter", "Tokens of text in, frames out")
            out.append(f'oscine_tokens_total{{kind="input"}} {self._sums["input_tokens"]}')
            out.append(f'oscine_tokens_total{{kind="output"}} {self._sums["output_tokens"]}')
            out += _single("resident_memory_bytes", "gauge", "Resident memory of the process", resident_bytes())
            return "\n".join(out) + "\n"

    def _frame_rate(self) -> float:
        self._forget_old()
        return sum(number for _, number in self._recent) / FRAMES_WINDOW_S


def resident_bytes() -> int:
    """Resident memory of this process in bytes; 0 where /proc does not tell."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    return 0


def _of_listeners(pacing: PacingStats) -> list[str]:
    """The series about those who listen to requests while they are made."""
    out = _single("listeners", "gauge", "Listeners who are kept ahead of what they hear", pacing.listening)
    out += _single("listeners_waiting", "gauge", "Listeners who wait for their turn", pacing.waiting)
    out += _single("listener_wait_seconds", "gauge", "How long one more would wait", pacing.wait_s)
    if pacing.lead_s is not None:
        out += _single("listener_lead_seconds", "gauge", "Audio ahead of the one worst off", pacing.lead_s)
    out += _head("listener_places", "gauge", "Listeners that the measured rate of a model can serve")
    out += [f'oscine_listener_places{{model="{_label(model)}"}} {number}' for model, number in pacing.places.items()]
    out += _head("audio_rate", "gauge", "Seconds of audio in one of work, by requests in a step, as measured lately")
    for model, rates in pacing.rates.items():
        for number, rate in rates.items():
            out.append(f'oscine_audio_rate{{model="{_label(model)}",requests="{number}"}} {rate:.6g}')
    return out


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP oscine_{name} {text}", f"# TYPE oscine_{name} {kind}"]


def _single(name: str, kind: str, text: str, value: float) -> list[str]:
    return [*_head(name, kind, text), f"oscine_{name} {value:.15g}"]
