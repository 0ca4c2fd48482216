"""One job inside the engine: what it has produced, what is held back, and how it ends."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oscine.engine.decode import GridDecoder, Worker, finite
from oscine.engine.guard import CodeGuard, Verdict
from oscine.engine.pacing import Pace, Piece
from oscine.errors import Cancelled, GenerationError, NoAudio
from oscine.seeds import derive_seed
from oscine.types import (
    AudioChunk,
    Decoder,
    Done,
    Event,
    EventSink,
    Failed,
    Family,
    FinishReason,
    Job,
    Samples,
    StepModel,
    StepOut,
    TextChunk,
)

UNHEARD_S = 10.0
"""How long the decoder leaves aside what nobody listens to, if it has something else to do."""


class Entry:
    """A job from `submit` to its one terminal event; used on the engine's thread only, but for `submit`."""

    def __init__(
        self,
        job: Job,
        family: Family,
        sink: EventSink,
        pace: Pace,
        *,
        clock: Callable[[], float],
        on_audio: Callable[[Entry, float], None],
        on_end: Callable[[Entry, bool], None],
    ) -> None:
        self.job = job
        self.pace = pace
        self.piece = Piece()
        self.pace.pieces.append(self.piece)
        self._clock = clock
        self._on_audio, self._on_end = on_audio, on_end
        self._frame_s = 1.0 / family.capabilities.frame_rate if family.capabilities.frame_rate else 0.0
        self.family = family
        self.model: StepModel = family.step_model()
        self.served = 0
        self._in_model = False
        self._grid: GridDecoder | None = None
        self._teller: Decoder | None = None
        self._finishing: FinishReason | None = None
        self.ended = False
        self._sink = sink
        self._submitted = clock()
        self._started = self._first_audio = self._submitted
        self._first_run = 0.0
        self._runs: deque[float] = deque()  # in the decoder, in seconds
        self._samples_out = 0
        self._warm_up = 0  # samples that are still to be dropped
        self._guard = CodeGuard(job.guard) if job.guard else None
        self._held: list[Any] = []
        self._restart_point: object | None = None  # set while the guard is suspicious
        self._hold_all = bool(job.guard and job.max_frames <= job.guard.hold_frames)

    @property
    def memory(self) -> int:
        """Worst case in bytes, for the scheduler."""
        return self.job.memory

    def blocked(self) -> bool:
        """Whether the job this one continues is still on its way, or it is not the turn of the one who is to listen."""
        if self.pace.listened and not (self.pace.let_in or self.pace.ahead):
            return True
        return self.job.after is not None and not self.job.after.ended

    @property
    def submitted(self) -> float:
        """When it came."""
        return self.pace.arrived

    @property
    def due(self) -> float:
        """When its next frame must be there; infinite when nobody listens."""
        return self.pace.due(self.piece)

    @property
    def begun(self) -> bool:
        """Whether somebody hears the request already."""
        return self.pace.listened and self.pace.begun

    @property
    def heard(self) -> bool:
        """Whether somebody hears the request already, and this piece of it comes next."""
        return self.begun and self.pace.pieces[:1] == [self.piece]

    @property
    def steps_to_audio(self) -> int:
        """Frames until the decoder gets its next run."""
        return self.grid.num_missing

    @property
    def grid(self) -> GridDecoder:
        """Its decoder; once admitted."""
        assert self._grid is not None
        return self._grid

    @property
    def generating(self) -> bool:
        """Whether it still steps; when not, what it has made is being decoded."""
        return self._finishing is None

    def admit(self, worker: Worker) -> None:
        """Gives the job its slot and its decoder, which `worker` may run. Raises what the family raises."""
        self._started = self._clock()
        self.model.admit(self.job)
        self._in_model = True
        decoder = self.family.open_decoder(self.job)
        self._warm_up = decoder.warm_up
        self._teller = decoder if decoder.answers_in_words else None
        sizes = (1,) if self._teller else self.family.chunk_sizes()
        self._grid = GridDecoder(decoder, sizes, worker, self._on_run)

    @property
    def decode_due(self) -> float:
        """When the decoder's next audio must be there.

        What nobody listens to is due as if somebody did, but later than what they hear meanwhile.
        """
        due = self.pace.decode_due(self.piece)
        return due if due < math.inf else self._first_run + self.piece.decoded_s + UNHEARD_S

    def _on_run(self, num_frames: int) -> None:
        """Takes note of a run that goes to the decoder."""
        self._first_run = self._first_run or self._clock()
        self._runs.append(num_frames * self._frame_s)
        self.piece.coming_s += self._runs[-1]
        self.pace.next_run_s = self.grid.size * self._frame_s

    def accept(self, out: StepOut) -> None:
        """Takes one step's result: frames are judged, released to the decoder or held, and the job may end."""
        if out.error is not None:
            self.fail(out.error)
            return
        for frame in out.frames:
            self._held.append(frame)
            verdict: Verdict = self._guard.observe(_first_code(frame)) if self._guard else "clean"
            if verdict in ("loop", "silence"):
                self._on_runaway(verdict)
                return
            self._release_or_hold(verdict)
        self._note_progress(out.progress)
        if out.finish is not None:
            self._reached_end(out.finish)
        elif len(self.job.frames) + len(self._held) >= self.job.max_frames:
            self._reached_end("stop" if self.job.ends_full else "length")

    def fail(self, error: Exception) -> None:
        """Ends the job with an error."""
        self._end(Failed(error=error))

    def cancel(self) -> None:
        """Ends the job as cancelled; what was handed out stays handed out."""
        self._end(self._done("cancelled"))

    def _note_progress(self, share: float | None) -> None:
        """How far the job is: what the family says, else its frames where their number is the one asked for."""
        if share is not None:
            self.job.progress = share
        elif self.job.ends_full:
            self.job.progress = (len(self.job.frames) + len(self._held)) / self.job.max_frames

    def _release_or_hold(self, verdict: Verdict) -> None:
        if verdict == "suspect":
            if self._restart_point is None:
                # The suspicious run may still be speech: keep this frame, be ready to come back to this place.
                self._restart_point = self.model.snapshot(self.job)
                self._release()
            return
        self._restart_point = None
        self._release()

    def _release(self) -> None:
        """Accepts the held frames for good and decodes them, unless the whole job is held."""
        frames, self._held = self._held, []
        self.job.frames.extend(frames)
        if not self._hold_all:
            self._decode(frames)

    def _decode(self, frames: list[Any]) -> None:
        if self.grid.is_joint:
            self.grid.add(frames)  # the engine decodes them with those of other jobs
            return
        self.grid.push(frames)
        self.collect()

    def collect(self) -> None:
        """Hands out what has been decoded by now; the end of a job whose last samples these are."""
        for samples in self.grid.ready():
            self._take_run()
            self._hand_out(samples)
        self._tell()
        if self._finishing is not None and self.grid.is_idle:
            if self.grid.decoder.warm_up and not self._samples_out:
                self.fail(NoAudio(f"{len(self.job.frames)} frames give no audio yet; allow more, or try another seed"))
            else:
                self._end(self._done(self._finishing))

    def _tell(self) -> None:
        """Hands out words, if the job answers in words and has new ones."""
        words = self._teller.take_text() if self._teller else ""
        if words:
            self._emit(TextChunk(text=words))

    def take_samples(self, made: Samples | Exception) -> None:
        """Takes what the job's joint decoder made of the run that was due; raises what it raised."""
        if isinstance(made, Exception):
            raise made
        self._take_run()
        self._hand_out(finite(made))

    def _take_run(self) -> None:
        """A run has come out of the decoder, or at last its tail."""
        self.piece.coming_s = self.piece.coming_s - self._runs.popleft() if self._runs else 0.0

    def _hand_out(self, samples: Samples) -> None:
        """Hands out what follows the decoder's warm-up: its cold start would be heard as a click in dead air."""
        dropped = min(self._warm_up, len(samples))
        self._warm_up -= dropped
        samples = samples[dropped:]
        if not len(samples):
            return
        if not self._samples_out:
            self._first_audio = self._clock()
        rate = self.family.capabilities.sample_rate
        self._on_audio(self, len(samples) / rate)
        self._emit(AudioChunk(samples=samples, sample_rate=rate, start=self._samples_out))
        self._samples_out += len(samples)

    def _on_runaway(self, reason: FinishReason) -> None:
        """A loop or silence: the held frames are dropped; once more from where it began, then an honest end."""
        self._held.clear()
        if self.job.attempt < self.job.retries and self._restart_point is not None:
            self.job.attempt += 1
            self.model.restore(self.job, self._restart_point, derive_seed(self.job.seed, self.job.attempt))
            self._restart_point = None
            assert self._guard is not None
            self._guard.reset()
            return
        self._finish(reason)

    def _reached_end(self, reason: FinishReason) -> None:
        """The model's own end or the budget. A job held whole that failed starts again once, from its prompt."""
        self.job.frames.extend(self._held)
        held, self._held = self._held, []
        empty = not self.job.frames
        runaway = reason == "length" and self._hold_all and bool(self.job.guard and self.job.guard.retry_length)
        if (empty or runaway) and self.job.attempt < self.job.retries:
            self._restart()
        elif empty:
            self.fail(NoAudio("the model ended without a single frame of audio; try another seed or a longer text"))
        else:
            if not self._hold_all:
                self._decode(held)
            self._finish(reason)

    def _restart(self) -> None:
        self.job.attempt += 1
        self.job.frames.clear()
        self._restart_point = None
        if self._guard:
            self._guard.reset()
        self.model.release(self.job)
        self.model.admit(self.job)

    def _finish(self, reason: FinishReason) -> None:
        if not self.job.frames:
            self.fail(NoAudio("generation went wrong from its first frame; try another seed"))
            return
        if self._hold_all:
            self._decode(self.job.frames)
        self.grid.finish()
        self._finishing = reason
        self._leave_model()
        self.collect()

    def _done(self, reason: FinishReason) -> Done:
        now = self._clock()
        return Done(
            finish_reason=reason,
            num_frames=len(self.job.frames),
            attempts=self.job.attempt + 1,
            timings={
                "queued_s": self._started - self._submitted,
                "first_audio_s": (self._first_audio if self._samples_out else now) - self._submitted,
                "total_s": now - self._submitted,
            },
        )

    def _end(self, event: Done | Failed) -> None:
        assert not self.ended, f"job {self.job.id} ended twice"
        self.ended = True
        self.job.outcome = event
        try:
            self._leave_model()
            if self._grid:
                self._grid.drop()
        finally:
            self._on_end(self, isinstance(event, Done) and event.finish_reason != "cancelled")
            self._emit(event)

    def _leave_model(self) -> None:
        if self._in_model:
            self._in_model = False
            self.model.release(self.job)

    def _emit(self, event: Event) -> None:
        """Hands out an event, or keeps it with those before it until the listener begins.

        A bad end comes at once, and alone: who has heard nothing of the job yet can still be refused.
        """
        bad = isinstance(event, Failed) or (isinstance(event, Done) and event.finish_reason == "cancelled")
        if bad:
            self.pace.kept = [(sink, kept) for sink, kept in self.pace.kept if sink is not self._sink]
        self.pace.kept.append((self._sink, event))
        if bad or self.pace.begun or not self.pace.listened:
            hand_out(self.pace.begin(self._clock()))


def hand_out(kept: Sequence[tuple[EventSink, Event]]) -> None:
    """Tells each event; raises what the last sink to raise did, once all have been told."""
    failure: Exception | None = None
    for sink, event in kept:
        try:
            sink(event)
        except Exception as error:
            failure = error
    if failure is not None:
        raise failure


def continued_job_error(job: Job) -> Exception | None:
    """Why a job that continues another cannot start: the other failed or was cancelled; None when it can."""
    before = job.after.outcome if job.after else None
    if isinstance(before, Failed):
        return GenerationError(f"the piece before failed: {before.error}")
    if isinstance(before, Done) and before.finish_reason == "cancelled":
        return Cancelled("the piece before was cancelled")
    return None


def _first_code(frame: Any) -> int:
    return int(np.asarray(frame).flat[0])
