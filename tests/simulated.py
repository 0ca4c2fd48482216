"""A crowd on the real engine in simulated time: the steps of a toy model move the clock on by what they are to take.

Nothing here waits or looks at the time of day; the same crowd gives the same numbers on every machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from oscine.engine.engine import Engine, EngineOptions
from oscine.engine.pacing import Live, Pace
from oscine.errors import QueueFull
from oscine.types import AudioChunk, Done, Event, Failed, Job, StepOut
from tests.toys import ToyAR, ToyFamily

FRAME_S = 1 / 25
"""Of a `ToyFamily`."""


class Clock:
    """Seconds that pass only when they are said to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Cost:
    """Seconds that steps take: `prompt` for a new job's first, `any_step` and `each` job's for one frame of all."""

    prompt: float
    any_step: float
    each: float


MEMORY_BOUND = Cost(prompt=0.06, any_step=0.02, each=0.002)
"""As a large model: a step takes little longer for more jobs. Six listeners are what it can serve."""
COMPUTE_BOUND = Cost(prompt=0.04, any_step=0.0, each=0.003)
"""As a small model in compiled code: a step takes as long as its jobs one after the other. Nine can be served."""
TOO_SLOW = Cost(prompt=1.0, any_step=0.1, each=0.1)
"""A fifth of the speed of playback for one."""


class SlowAR(ToyAR):
    """A model of `cost` that speaks until its budget is spent; `at` calls what is due after each step."""

    def __init__(self, clock: Clock, cost: Cost) -> None:
        super().__init__(stop_code=-1)
        self._clock, self._cost = clock, cost
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self.shared_steps: set[tuple[str, ...]] = set()

    def at(self, moment: float, act: Callable[[], None]) -> None:
        """Has something happen once that moment has come."""
        self._later.append((moment, len(self._later), act))

    def step(self, jobs: Sequence[Job]) -> Sequence[StepOut]:
        is_prompt = self.batch_key(jobs[0]) == ("prefill",)
        cost = self._cost
        self._clock.now += cost.prompt if is_prompt else cost.any_step + cost.each * len(jobs)
        self.shared_steps.add(tuple(job.id for job in jobs))
        outs = super().step(jobs)
        for item in sorted(item for item in self._later if item[0] <= self._clock.now):
            self._later.remove(item)
            item[2]()
        return outs


@dataclass(eq=False)
class Visit:
    """One request of a user: when it was asked, first heard and done, by the clock, and what came of it."""

    user: int
    pace: Pace
    asked: float
    first: float | None = None
    ended: float | None = None
    error: Exception | None = None
    chunks: list[AudioChunk] = field(default_factory=list)


class Crowd:
    """`users` who ask again as soon as all of their audio is there, for `seconds`; refused, as late as they are told.

    `num_frames` are the lengths asked for in turn; `live` None: nobody listens.
    """

    def __init__(
        self,
        cost: Cost,
        users: int,
        *,
        live: Live | None = Live(),  # noqa: B008 (frozen)
        num_frames: Sequence[int] = (100,),
        beside: int = 0,
        seconds: float = 60.0,
    ) -> None:
        self.clock = Clock()
        self.model = SlowAR(self.clock, cost)
        self.family = ToyFamily(self.model)
        options = EngineOptions(memory_bytes=1 << 30, max_waiting=None, decode_in_background=False, max_running=64)
        self.engine = Engine(options, self.clock)
        self.live, self.visits, self.beside = live, list[Visit](), list[Visit]()
        self._num_frames, self._number = num_frames, 0
        self._end = self.clock.now + seconds
        self._over = threading.Event()
        try:
            self.engine.call(lambda: self._begin(users, beside)).result(60)
            assert self._over.wait(100), "the crowd has not come to its end"
            self.stats = self.engine.pacing()
        finally:
            self.engine.close()
        self.seconds = seconds

    def _begin(self, users: int, beside: int) -> None:
        for user in range(users):
            self._ask(user, self.live, self.visits)
        for user in range(beside):
            self._ask(user, None, self.beside)

    def _ask(self, user: int, live: Live | None, visits: list[Visit]) -> None:
        now = self.clock.now
        if now >= self._end:
            self._over.set()
            return
        self._number += 1
        frames = self._num_frames[self._number % len(self._num_frames)]
        visit = Visit(user=user, pace=Pace(live=live, budget_s=2 * frames * FRAME_S), asked=now)
        visits.append(visit)

        def told(event: Event) -> None:
            if isinstance(event, AudioChunk):
                visit.first = self.clock.now if visit.first is None else visit.first
                visit.chunks.append(event)
                return
            assert isinstance(event, Done | Failed)
            visit.ended = self.clock.now
            visit.error = event.error if isinstance(event, Failed) else None
            self._again(visit, live, visits)

        job = Job(id=f"{user}.{self._number}", inputs=None, seed=self._number, max_frames=frames, memory=1)
        try:
            self.engine.submit(self.family, [(job, told)], pace=visit.pace)
        except QueueFull as full:
            visit.error = full
            self._again(visit, live, visits)

    def _again(self, visit: Visit, live: Live | None, visits: list[Visit]) -> None:
        later = visit.error.retry_after_s if isinstance(visit.error, QueueFull) else 0.0
        if later:
            self.model.at(self.clock.now + later, lambda: self._ask(visit.user, live, visits))
        else:
            self._ask(visit.user, live, visits)

    @property
    def served(self) -> list[Visit]:
        """The visits that were heard to their end."""
        return [visit for visit in self.visits if visit.pace.complete]

    @property
    def refused(self) -> list[Visit]:
        """The visits that were sent away."""
        return [visit for visit in self.visits if isinstance(visit.error, QueueFull)]

    @property
    def pauses(self) -> list[float]:
        """How long each listener that was served waited in mid-speech, in seconds."""
        return [round(visit.pace.paused_s, 9) for visit in self.served]

    @property
    def audio_per_s(self) -> float:
        """Seconds of audio made in a second."""
        return sum(visit.pace.made_s for visit in [*self.visits, *self.beside]) / self.seconds
