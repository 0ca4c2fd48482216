"""Which jobs step next: plain Python on lists and numbers, no tensors, no clock.

Jobs that somebody listens to have a time at which their next frame is due. While one of them has less than `COMFORT_S`
of audio to spare, steps go to these alone, what is due first coming first. A job that is not heard yet waits until
those that are can afford its step, going by how long such steps have taken. Jobs that nobody listens to get the time
that is left, and in any case `SHARE_LEFT` of it.

Jobs whose next step has an equal batch key form a group. Where nobody is in need the group served longest ago goes
first, and in it the jobs served longest ago. So nothing starves, and a new job's first step comes between two steps of
the running ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from oscine.engine.rate import StepLength

COMFORT_S = 0.5
"""Who has so much audio ahead of what they hear can do without more for a while."""
SHARE_LEFT = 0.05
"""Share of the time that jobs get which nobody listens to, whoever else is in need."""
ROOM = 2.0
"""How many times the expected length of a step must be left to those who are heard for a step of others."""
FORCED = 5.0
"""How many times the length of its step a job nobody listens to must be owed to step where there is no such room."""
LOSS = 1.1
"""How much longer work may take in all for what is urgent to be done in steps of few jobs, which are shorter."""
_KNOWN_STEPS = 256


class Steppable(Protocol):
    """What planning needs of a job."""

    served: int  # tick of its last step; set here

    @property
    def due(self) -> float:
        """When its next frame must be there; infinite when nobody listens."""

    @property
    def heard(self) -> bool:
        """Whether somebody hears what it belongs to already, and waits for its audio next."""

    @property
    def steps_to_audio(self) -> int:
        """Steps until there is something new to hear."""


S = TypeVar("S", bound=Steppable)


@dataclass(frozen=True, eq=False)
class _Ready(Generic[S]):
    """A job that can step, as it is now."""

    job: S
    key: Hashable
    due: float
    heard: bool
    served: int

    @property
    def listened(self) -> bool:
        return self.due < math.inf


class StepPlanner(Generic[S]):
    """Says who steps, and learns from how long steps take."""

    def __init__(self) -> None:
        self._tick = 0
        self._lengths: dict[Hashable, StepLength] = {}
        self._owed_s = 0.0  # to those whom nobody listens to
        self._key: Hashable = None  # of the step that was planned last, and its jobs,
        self._num_jobs = 0
        self._unheard = self._some_unheard = False  # and whether nobody listens: to it, to some that could have stepped

    @property
    def tick(self) -> int:
        """The number of steps so far."""
        return self._tick

    def plan(
        self, jobs: Sequence[S], key: Callable[[S], Hashable], max_batch: Callable[[S], int], now: float
    ) -> Sequence[S]:
        """The jobs that step now, all of one key; empty when there are none. `took` says how it went."""
        ready = [_Ready(job, key(job), job.due, job.heard, job.served) for job in jobs]
        if not ready:
            return ()
        pressing = [each for each in ready if each.due < now + COMFORT_S]
        first = self._first(ready, pressing, now)
        # what has time steps aside, but for the first and its kind
        group = [each for each in ready if each.key == first.key and self._steps_with(each, first, pressing)]
        width = min(len(group), max_batch(first.job))
        leading = [first]
        heard = [each for each in group if each.heard and each in pressing]
        if heard and width > 1:
            leading.append(min(heard, key=lambda each: self._latest(each, len(heard))))
            width = self._width(leading[-1], width, now)
        group.sort(key=lambda each: (each not in leading, each.due if pressing else 0.0, each.served))
        batch = [each.job for each in group[:width]]
        self._key, self._num_jobs, self._unheard = first.key, len(batch), not first.listened
        self._some_unheard = not all(each.listened for each in ready)
        self._tick += 1
        for job in batch:
            job.served = self._tick
        return batch

    def took(self, seconds: float) -> None:
        """The step that was planned last has taken so long."""
        if len(self._lengths) >= _KNOWN_STEPS:
            self._lengths.clear()
        self._lengths.setdefault(self._key, StepLength()).add(self._num_jobs, seconds)
        if self._unheard:
            self._owed_s = max(0.0, self._owed_s - seconds)
        elif self._some_unheard:
            self._owed_s += SHARE_LEFT * seconds

    def _first(self, ready: Sequence[_Ready[S]], pressing: Sequence[_Ready[S]], now: float) -> _Ready[S]:
        """The job whose group steps."""
        heard = [each for each in ready if each.heard]
        hearing = min(heard, key=lambda each: self._latest(each, len(heard)), default=None)
        room_s = self._latest(hearing, len(heard)) - now if hearing else math.inf
        if not pressing:
            first = min(ready, key=lambda each: each.served)
        else:
            unheard = [each for each in ready if not each.listened]
            turn = min(unheard, key=lambda each: each.served, default=None)
            if turn and self._owed_s >= self._length(turn.key, 1) and self._can_step(turn, room_s):
                return turn
            first = min(pressing, key=lambda each: (each.due, each.served))
        if hearing is None or first.heard or self._can_step(first, room_s):
            return first
        return hearing

    def _can_step(self, each: _Ready[S], room_s: float) -> bool:
        """Whether those who are heard leave room for a step of one who is not, or it has waited for long enough."""
        length = self._length(each.key, 1)
        return room_s >= ROOM * length or (not each.listened and self._owed_s >= FORCED * length)

    def _steps_with(self, each: _Ready[S], first: _Ready[S], pressing: Sequence[_Ready[S]]) -> bool:
        return not pressing or each is first or each in pressing or not (each.listened or first.listened)

    def _latest(self, each: _Ready[S], num_heard: int) -> float:
        """When the steps to its next audio must begin at the latest, beside others that are heard."""
        known = self._lengths.get(each.key)
        length = known.of(known.narrowest(num_heard, LOSS)) if known else 0.0
        return each.due - each.job.steps_to_audio * length

    def _length(self, key: Hashable, num_jobs: int) -> float:
        known = self._lengths.get(key)
        return known.of(num_jobs) if known else 0.0

    def _width(self, urgent: _Ready[S], widest: int, now: float) -> int:
        """How many jobs may step with the most urgent one, so that its audio is there in time.

        Steps take the longer the more jobs they have; but in steps of too few, all of them would be late in the end.
        """
        known = self._lengths.get(urgent.key)
        if known is None:
            return widest
        narrowest = known.narrowest(widest, LOSS)
        steps = max(urgent.job.steps_to_audio, 1)
        while widest > narrowest and now + ROOM * steps * known.of(widest) > urgent.due:
            widest -= 1
        return widest
