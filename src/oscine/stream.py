"""One request on its way through the engine: pieces are submitted a few ahead and their audio is put in order.

The only place where pieces, events and joined samples meet; used by `api.Model` for whole and streamed results alike,
so that both are the same samples.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

import numpy as np

from oscine.audio.join import PieceJoiner
from oscine.engine.engine import Engine
from oscine.engine.pacing import Live, Pace
from oscine.errors import Cancelled
from oscine.result import PieceReport, Timings
from oscine.types import (
    AudioChunk,
    Done,
    Event,
    Failed,
    Family,
    FinishReason,
    Job,
    Plan,
    Samples,
    TextChunk,
)

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger(__name__)

PROGRESS_S = 0.25
"""How often a request that gives no audio is looked at to tell how far it is."""

PIECES_AHEAD = 4
"""Pieces of one request in the engine at a time: enough to batch, few enough to bound memory.

A model that streams works on the first one alone until that is heard: a long text is heard as soon as a short one.
"""

SEVERITY: tuple[FinishReason, ...] = ("stop", "length", "silence", "loop", "cancelled")
"""From best to worst; a request's finish reason is the worst of its pieces'."""


class SpeechStream:
    """An iterator of `AudioChunk`; iterate it once. Leaving the `with` block, or losing the iterator, cancels."""

    def __init__(
        self,
        family: Family,
        engine: Engine,
        plan: Plan,
        *,
        live: Live | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> None:
        self.plan = plan
        frame_rate = family.capabilities.frame_rate
        budget_s = sum(job.max_frames for job in plan.jobs) / frame_rate if frame_rate else 0.0
        self._pace = Pace(live=live, num_pieces=len(plan.jobs), budget_s=budget_s)
        self.seed = plan.seed
        self.sample_rate = family.capabilities.sample_rate
        self._family, self._engine = family, engine
        self._on_progress = on_progress
        self._told = self._furthest = 0.0
        self._queues: list[queue.SimpleQueue[Event]] = [queue.SimpleQueue() for _ in plan.jobs]
        self._submitted = 0
        self._cancelled = threading.Event()
        self._joiner = PieceJoiner(self.sample_rate, len(plan.jobs))
        self._reports: list[PieceReport] = []
        self._started = time.perf_counter()
        self._queued_s = 0.0
        self._first_audio_s: float | None = None
        self._total_s = 0.0
        self._num_samples = 0
        engine.check_fits(plan.jobs)  # refused here, before anything is heard, or not at all
        self._submit(1 if family.capabilities.streaming else PIECES_AHEAD)
        self._chunks = self._generate()

    def __iter__(self) -> Iterator[AudioChunk]:
        return self

    def __next__(self) -> AudioChunk:
        while not isinstance(chunk := next(self._chunks), AudioChunk):
            pass  # words, for those who ask for them
        return chunk

    def words(self) -> Iterator[str]:
        """In the place of the audio: an answer in words as it comes, in runs that make `text` when joined."""
        for chunk in self._chunks:
            if isinstance(chunk, TextChunk):
                yield chunk.text

    def __enter__(self) -> SpeechStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_chunks"):
            self.cancel()

    def cancel(self) -> None:
        """Ends generation within a step; iteration then stops. Safe from any thread, idempotent."""
        self._cancelled.set()
        self._pace.closed = True
        for job in self.plan.jobs:
            job.cancel()

    def close(self) -> None:
        """Cancels what still runs and closes the iterator."""
        self.cancel()
        self._chunks.close()

    @property
    def finish_reason(self) -> FinishReason:
        """The worst of the pieces so far; `cancelled` when the request was."""
        if self._cancelled.is_set() and len(self._reports) < len(self.plan.jobs):
            return "cancelled"
        return max((r.finish_reason for r in self._reports), key=SEVERITY.index, default="stop")

    @property
    def progress(self) -> float:
        """Share of the request that is done, 0 to 1, at the least; it never falls.

        Its pieces, and of the current one its steps where their number is known, else its frames of the most it may
        have.
        """
        ended, count = len(self._reports), len(self.plan.jobs)
        share = 1.0
        if ended < count:
            job = self.plan.jobs[ended]
            share = (ended + min(max(job.progress, len(job.frames) / job.max_frames), 1.0)) / count
        self._furthest = max(self._furthest, share)  # a piece that is tried again goes back
        return self._furthest

    @property
    def audible_until(self) -> float:
        """When what has been given will have been played, for a listener who goes on with another stream."""
        return self._pace.runs_out if self._pace.begun else -math.inf

    @property
    def num_frames(self) -> int:
        """Frames made so far, those of pieces under way too."""
        return sum(len(job.frames) for job in self.plan.jobs)

    @property
    def pieces(self) -> tuple[PieceReport, ...]:
        """How each finished piece went."""
        return tuple(self._reports)

    @property
    def timings(self) -> Timings:
        """Wall times so far; final once the iterator has ended."""
        return Timings(
            queued_s=self._queued_s,
            first_audio_s=self._first_audio_s if self._first_audio_s is not None else self._total_s,
            total_s=self._total_s,
            audio_s=self._num_samples / self.sample_rate,
        )

    @property
    def text(self) -> str:
        """The last answer in words so far; empty for tasks that only make audio."""
        answers = [self._family.text_of(job) for job in self.plan.jobs if job.frames]
        return next((answer for answer in reversed(answers) if answer), "")

    @property
    def usage(self) -> dict[str, int]:
        """Token counts in the words of the HTTP contract: text tokens in, frames out."""
        frames = sum(report.num_frames for report in self._reports)
        tokens = self.plan.input_tokens
        return {"input_tokens": tokens, "output_tokens": frames, "total_tokens": tokens + frames}

    def _submit(self, until: int) -> None:
        until = min(until, len(self.plan.jobs))
        if until > self._submitted:
            jobs = [(self.plan.jobs[i], self._queues[i].put) for i in range(self._submitted, until)]
            self._engine.submit(self._family, jobs, pace=self._pace, admitted=self._submitted > 0)
            self._submitted = until

    def _generate(self) -> Generator[AudioChunk | TextChunk, None, None]:
        try:
            for number, job in enumerate(self.plan.jobs):
                if number:
                    self._submit(number + PIECES_AHEAD)
                yield from self._piece(number, job)
                if self._cancelled.is_set():
                    return
        finally:
            self._pace.closed = True
            for job in self.plan.jobs:
                job.cancel()
            self._total_s = time.perf_counter() - self._started
            self._log()

    def _log(self) -> None:
        """One line for the finished request; nothing of its text or audio."""
        timings = self.timings
        log.info(
            "request %s %s: %d characters, %d of %d pieces, %.2f s of audio, first after %.0f ms, rtf %.3f, %s",
            self.plan.jobs[0].id.partition(".")[0],
            self._family.capabilities.family,
            sum(len(job.text) for job in self.plan.jobs),
            len(self._reports),
            len(self.plan.jobs),
            timings.audio_s,
            1000 * timings.first_audio_s,
            timings.rtf,
            self.finish_reason,
        )

    def _piece(self, number: int, job: Job) -> Iterator[AudioChunk | TextChunk]:
        begin = self._num_samples
        while isinstance(event := self._next_event(number), AudioChunk | TextChunk):
            if isinstance(event, AudioChunk):
                self._submit(number + PIECES_AHEAD)
                yield from self._ready(self._joiner.push(event.samples))
            elif not self._cancelled.is_set():
                yield event
        if isinstance(event, Failed):
            if isinstance(event.error, Cancelled) and self._cancelled.is_set():
                return
            raise event.error
        yield from self._ready(self._joiner.end_piece(last=number == len(self.plan.jobs) - 1))
        self._report(number, job, event, begin)
        if number < len(self.plan.jobs) - 1:
            yield from self._ready(np.zeros(round(job.pause_s * self.sample_rate), np.float32))

    def _next_event(self, number: int) -> Event:
        """The next event of a piece; while there is none, how far it is is told to who wants to know."""
        while self._on_progress:
            self._tell_progress()
            with contextlib.suppress(queue.Empty):
                return self._queues[number].get(timeout=PROGRESS_S)
        return self._queues[number].get()

    def _tell_progress(self) -> None:
        share = self.progress
        if self._on_progress and share != self._told:
            self._told = share
            self._on_progress(share)

    def _ready(self, samples: Samples) -> Iterator[AudioChunk]:
        if len(samples) and not self._cancelled.is_set():
            if self._first_audio_s is None:
                self._first_audio_s = time.perf_counter() - self._started
            chunk = AudioChunk(samples=samples, sample_rate=self.sample_rate, start=self._num_samples)
            self._num_samples += len(samples)
            yield chunk

    def _report(self, number: int, job: Job, done: Done, begin: int) -> None:
        if number == 0:
            self._queued_s = done.timings["queued_s"]
        self._reports.append(
            PieceReport(
                text=job.text,
                spoken_text=self.plan.spoken_text[number],
                finish_reason=done.finish_reason,
                num_frames=done.num_frames,
                attempts=done.attempts,
                seed=job.seed,
                start_s=begin / self.sample_rate,
                duration_s=(self._num_samples - begin) / self.sample_rate,
                ends=job.ends,
            )
        )
        self._tell_progress()


def collect(stream: SpeechStream) -> Samples:
    """All samples of a stream."""
    chunks = [chunk.samples for chunk in stream]
    return np.concatenate(chunks) if chunks else np.zeros(0, np.float32)
