"""The engine: one thread owns the device and steps whatever jobs there are, batched by key.

A second thread decodes in the background what decoders allow, when there is a core for it. Events come from the
first alone.

Knows jobs, frames and samples; knows no text, no family and no HTTP.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from oscine.engine.admission import Admission, PacingStats
from oscine.engine.call import Call, engine_failed
from oscine.engine.cores import has_spare_core
from oscine.engine.decode import Worker, at_once, joint_runs
from oscine.engine.decode_thread import DecodeThread
from oscine.engine.entry import Entry, continued_job_error, hand_out
from oscine.engine.isolation import isolated
from oscine.engine.memory import MemoryBudget, bytes_for_jobs
from oscine.engine.pacing import Pace
from oscine.engine.scheduler import Scheduler
from oscine.errors import EngineFailed, GenerationError, NotReady, OscineError
from oscine.types import EventSink, Family, Job, Samples, StepOut

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How an engine runs. `memory_bytes` None: a share of what is free. Counts are jobs.

    `max_waiting` None: whoever submits bounds the queue, as a server does that counts its requests.
    `decode_in_background` None: when torch's threads leave a core free at the time a job begins.
    """

    max_running: int = 32
    max_waiting: int | None = 256
    memory_bytes: int | None = None
    decode_in_background: bool | None = None
    poll_s: float = 0.05
    """How often an idle engine looks at the cancel flags of waiting jobs."""


@dataclass(frozen=True, kw_only=True)
class EngineStats:
    """A moment's view, safe to read from any thread. Memory in bytes."""

    waiting: int
    running: int
    memory_reserved: int
    memory_total: int


class Engine:
    """Runs jobs of any family. `submit`, `call`, `stats` and `close` may be called from any thread.

    A job's fault is its own. A fault of the engine itself (what escapes the handling of jobs, or is no `Exception`)
    ends its thread: every job gets that error, so does whoever comes later, and `failure` says what happened.
    """

    def __init__(self, options: EngineOptions | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self.options = options or EngineOptions()
        self._clock = clock
        self._admission = Admission()
        total = self.options.memory_bytes
        budget = MemoryBudget(bytes_for_jobs() if total is None else total)
        self._scheduler: Scheduler[Entry] = Scheduler(budget, self.options.max_waiting, self.options.max_running)
        self._inbox: queue.SimpleQueue[Entry | Call[Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards the count of jobs on their way in, who listens, and closing
        self._incoming = 0
        self._closing = False
        self._abort = False
        self._failure: EngineFailed | None = None
        self._decoding = DecodeThread("oscine-decode")
        self._thread = threading.Thread(target=self._run, name="oscine-engine", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a thread that torch runs in must not be cut off by the end of the process

    # --- any thread ---

    def submit(
        self,
        family: Family,
        jobs: Sequence[tuple[Job, EventSink]],
        *,
        pace: Pace | None = None,
        admitted: bool = False,
    ) -> None:
        """Queues jobs together: all or none. Each sink gets chunks, then exactly one `Done` or `Failed`.

        Raises `QueueFull`, `NotReady` (closing), `EngineFailed` and `InputTooLong` (cannot ever fit) before anything is
        queued. `pace` is that of the request, whose jobs come in the order in which they are played; None: nobody
        listens. `admitted` are later pieces of a request that has been let in, whose first piece has been submitted:
        they find room even in a full queue, so that a request does not fail half spoken.
        """
        pace = pace or Pace(num_pieces=len(jobs))
        with self._lock:
            self._check_open()
            for job, _ in jobs:
                self._scheduler.check_fits(job.memory)
            if not admitted:
                self._scheduler.check_room(self._incoming + len(self._scheduler.waiting) + len(jobs))
                pace.model = family.capabilities.model
                self._admission.arrive(pace, self._clock())
            self._incoming += len(jobs)
            for job, sink in jobs:
                entry = Entry(
                    job, family, sink, pace, clock=self._clock, on_audio=self._note_audio, on_end=self._note_end
                )
                self._inbox.put(entry)

    def check_fits(self, jobs: Iterable[Job]) -> None:
        """Raises `InputTooLong` if one of `jobs` could not run even on an idle engine."""
        for job in jobs:
            self._scheduler.check_fits(job.memory)

    def call(self, work: Callable[[], T]) -> Future[T]:
        """Runs `work` on the device's thread between two steps; the future carries its result or exception."""
        call = Call(work)
        with self._lock:
            self._check_open()
            self._inbox.put(call)
        return call.future

    @property
    def failure(self) -> EngineFailed | None:
        """What ended the engine's thread, if a fault did: nothing can be run any more."""
        return self._failure

    def _check_open(self) -> None:
        """Raises what keeps new work out. The caller holds the lock."""
        if self._failure is not None:
            raise EngineFailed(self._failure.message)
        if self._closing:
            raise NotReady("the engine is shutting down")

    def stats(self) -> EngineStats:
        """How full the engine is."""
        scheduler = self._scheduler
        return EngineStats(
            waiting=len(scheduler.waiting) + self._incoming,
            running=len(scheduler.running),
            memory_reserved=scheduler.budget.reserved,
            memory_total=scheduler.budget.total,
        )

    def pacing(self) -> PacingStats:
        """How those who listen fare."""
        with self._lock:
            return self._admission.stats(self._clock())

    def forget_rates(self) -> None:
        """Forgets how fast models have been, as after a warm-up, which is slower than what comes."""
        with self._lock:
            self._admission.rates.forget()

    def close(self, *, drain: bool = False, timeout_s: float | None = None) -> None:
        """Stops the engine: running jobs are finished (`drain`) or cancelled, then the thread ends. Idempotent."""
        with self._lock:
            self._closing = True
            self._abort = self._abort or not drain
        self._inbox.put(None)
        atexit.unregister(self.close)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    # --- the engine's thread ---

    def step(self) -> bool:
        """One round; False when no job had a step to make."""
        self._drop_cancelled()
        self._let_in()
        self._admit()
        began = self._clock()
        batch = self._scheduler.plan(_batch_key, _max_batch, began)
        if batch:
            outs = self._advance(batch)
            for entry, out in zip(batch, outs, strict=True):
                self._settle(entry, partial(entry.accept, _as_generation_error(entry, out)))
            self._decode_joint()
        for entry in list(self._scheduler.running):
            self._settle(entry, entry.collect)
        if batch:
            self._note_step(batch, sum(len(out.frames) for out in outs), self._clock() - began)
        self._let_hear()
        return bool(batch)

    def _run(self) -> None:
        busy = False
        try:
            while self._receive(wait=not busy) or self._occupied:
                busy = self.step()
        except BaseException as error:
            self._break_down(error)
        self._decoding.close()

    @property
    def _occupied(self) -> bool:
        return bool(self._scheduler.running or self._scheduler.waiting or self._admission.waiting)

    def _break_down(self, error: BaseException) -> None:
        """Tells everybody who waits, or comes later, that a fault has ended the engine."""
        log.critical("the engine's thread has ended by a fault", exc_info=error)
        failure = engine_failed(error)
        with self._lock:
            self._failure = failure  # from now on the inbox gets nothing more to do
        messages = [*self._scheduler.running, *self._scheduler.waiting]
        with contextlib.suppress(queue.Empty):
            while True:
                message = self._inbox.get_nowait()
                if isinstance(message, Entry):
                    messages.append(message)
                elif message is not None:
                    message.refuse(failure)
        self._scheduler.clear()
        self._incoming = 0
        for entry in messages:
            if not entry.ended:
                with contextlib.suppress(Exception):  # of a model or a sink that is broken too: the others go first
                    entry.fail(failure)
        self._abort = True
        self._let_hear()

    def _worker(self, entry: Entry) -> Worker:
        """Who decodes a job's frames."""
        wanted = self.options.decode_in_background
        in_background = has_spare_core() if wanted is None else wanted
        return partial(self._decode_in_background, entry) if in_background else at_once

    def _decode_in_background(self, entry: Entry, work: Callable[[], Samples]) -> Future[Samples]:
        def timed() -> Samples:
            began = self._clock()
            samples = work()
            audio_s = len(samples) / entry.family.capabilities.sample_rate
            with self._lock:
                now = self._clock()
                entry.piece.decoded_s += audio_s
                self._admission.rates.decoded(entry.pace.model, now - began, audio_s, now)
            return samples

        future = self._decoding.submit(timed, id(entry), lambda: entry.decode_due)
        future.add_done_callback(lambda _: self._inbox.put(None))  # wakes an engine that only waits for this
        return future

    def _receive(self, *, wait: bool) -> bool:
        """Takes in everything that has arrived; False once the engine is closing and the inbox is empty."""
        while True:
            try:
                # Waiting jobs may be cancelled, so an engine that has some looks up now and then.
                expecting = self._scheduler.waiting or self._admission.waiting or self._closing
                timeout = self.options.poll_s if expecting else None
                message = self._inbox.get(timeout=timeout) if wait else self._inbox.get_nowait()
            except queue.Empty:
                return not self._closing
            wait = False
            if isinstance(message, Entry):
                with self._lock:
                    self._scheduler.waiting.append(message)
                    self._incoming -= 1
            elif message is not None:
                message.run()

    def _let_in(self) -> None:
        """Lets in listeners, as many as can be kept ahead of their playback, and sends the impatient away."""
        now = self._clock()
        with self._lock:
            self._admission.let_in(now)
            told = self._admission.impatient(now)
        for pace, full in told:
            for entry in [e for e in [*self._scheduler.waiting, *self._scheduler.running] if e.pace is pace]:
                self._end(entry, partial(entry.fail, full))

    def _let_hear(self) -> None:
        """Hands out what has been kept for listeners who can begin."""
        now = self._clock()
        with self._lock:
            admission = self._admission
            paces = [*admission.listening, *admission.waiting, *admission.freed]
            begin = [pace for pace in paces if pace.kept and self._may_hear(pace, now)]
            admission.freed.clear()
        for pace in begin:
            try:
                hand_out(pace.begin(now))
            except Exception:
                log.exception("an event sink raised")

    def _may_hear(self, pace: Pace, now: float) -> bool:
        if self._abort or pace.over or not pace.paced:
            return True
        return pace.let_in and self._admission.has_enough(pace, now)

    def _note_audio(self, entry: Entry, seconds: float) -> None:
        with self._lock:
            entry.pace.give(entry.piece, seconds, self._clock())

    def _note_end(self, entry: Entry, whole: bool) -> None:
        with self._lock:
            entry.pace.end(entry.piece, self._clock(), whole=whole)

    def _note_step(self, batch: Sequence[Entry], num_frames: int, seconds: float) -> None:
        self._scheduler.took(seconds)
        rate = batch[0].family.capabilities.frame_rate
        requests = len({id(entry.pace) for entry in batch})
        with self._lock:
            audio_s = num_frames / rate if rate else 0.0
            self._admission.rates.stepped(batch[0].pace.model, requests, seconds, audio_s, self._clock())

    def _drop_cancelled(self) -> None:
        for entry in [*self._scheduler.running, *self._scheduler.waiting]:
            if self._abort or entry.job.cancelled.is_set():
                self._end(entry, entry.cancel)

    def _admit(self) -> None:
        while entry := self._scheduler.admissible(self._clock()):
            error = continued_job_error(entry.job)
            try:
                if error is not None:
                    raise error
                entry.admit(self._worker(entry))
            except Exception as refused:
                self._end(entry, partial(entry.fail, refused))

    def _advance(self, batch: Sequence[Entry]) -> Sequence[StepOut]:
        """One model step; a fault becomes an error of the job that has it."""
        outs = isolated(batch[0].model.step, [entry.job for entry in batch])
        return [StepOut(error=out) if isinstance(out, Exception) else out for out in outs]

    def _decode_joint(self) -> None:
        """Decodes the frames of all jobs whose decoders can work together, those of a family in one call."""
        groups: dict[Hashable, list[Entry]] = {}
        for entry in self._scheduler.running:
            if entry.grid.is_joint:
                groups.setdefault((id(entry.family), type(entry.grid.decoder)), []).append(entry)
        for entries in groups.values():
            due = joint_runs([entry.grid for entry in entries])
            if due:
                self._push_all([entry for entry in entries if entry.grid in due])

    def _push_all(self, entries: Sequence[Entry]) -> None:
        """One call for all, or one for each if it fails."""
        pushes = [(entry.grid.decoder, entry.grid.take()) for entry in entries]
        for entry, made in zip(entries, isolated(type(pushes[0][0]).push_all, pushes), strict=True):
            self._settle(entry, partial(entry.take_samples, made))

    def _settle(self, entry: Entry, take: Callable[[], None]) -> None:
        try:
            take()
        except Exception as error:  # the decoder's or the sink's; this job alone has failed
            if not isinstance(error, OscineError):
                log.exception("job %s failed while its frames were taken", entry.job.id)
            if not entry.ended:
                self._end(entry, partial(entry.fail, error))
                return
        if entry.ended:
            self._forget(entry)

    def _end(self, entry: Entry, how: Callable[[], None]) -> None:
        try:
            how()
        except Exception:  # only a sink can raise here, and there is nobody left to tell
            log.exception("job %s: its event sink raised", entry.job.id)
        self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        with self._lock:
            self._scheduler.remove(entry)


def _as_generation_error(entry: Entry, out: StepOut) -> StepOut:
    """`out`, an error in it that is not one of ours logged with its place and made a GenerationError."""
    if out.error is None or isinstance(out.error, OscineError):
        return out
    log.error("a step of job %s failed", entry.job.id, exc_info=out.error)
    failure = GenerationError(f"the model step failed: {type(out.error).__name__}: {out.error}")
    failure.__cause__ = out.error
    return StepOut(error=failure)


def _batch_key(entry: Entry) -> tuple[int, object]:
    return id(entry.model), entry.model.batch_key(entry.job)


def _max_batch(entry: Entry) -> int:
    return entry.model.max_batch(entry.model.batch_key(entry.job))
