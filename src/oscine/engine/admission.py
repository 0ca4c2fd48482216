"""How many listen at a time: as many as the measured rate can keep ahead of their playback.

The others wait in order; the first of them are worked on meanwhile, in time that is left, and begin with what has been
made. Who would wait too long is refused. Where a model is slower than playback even for one, nobody can listen while it
speaks, and its requests are served as those that nobody listens to.

Plain arithmetic on times that are handed in; no clock, no thread.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oscine.engine.pacing import Pace
from oscine.engine.rate import Rates
from oscine.errors import QueueFull

USABLE = 0.8
"""Most of the measured rate that listeners may need: the rest is for new ones to begin, and for what varies."""
LEAST = 0.3
"""To what it falls at the least where listeners have had to wait in mid-speech."""
SLOWER = 0.9
"""A model that is slower than this share of playback, for one request alone, cannot be listened to."""
FALL, RISE = 0.05, 0.001
"""By how much it falls with one who has had to wait, and rises with one who has not."""
WORKED_AHEAD = 4
"""Of those who wait, how many are worked on before they are let in."""
_LEARNED = 0.1
"""Weight of the newest request in what requests make of their budgets."""


@dataclass(frozen=True, kw_only=True)
class PacingStats:
    """How listeners fare: how many are let in and wait, and by how much the one worst off is ahead, in seconds.

    `wait_s` is how long one more would wait for their turn. `places` is how many could be served by the rate of each
    model; `rates` are seconds of audio in one of work by model and number of requests.
    """

    listening: int
    waiting: int
    lead_s: float | None
    wait_s: float
    places: Mapping[str, int]
    rates: Mapping[str, Mapping[int, float]]


@dataclass(frozen=True, kw_only=True)
class Need:
    """What one listener takes: from in `begins` seconds on, for `lasts` seconds, a `share` of the engine's time."""

    begins: float
    lasts: float
    share: float


class Admission:
    """Listeners that are let in and that wait, in their order. Not thread-safe."""

    def __init__(self) -> None:
        self.rates = Rates()
        self.listening: list[Pace] = []
        self.waiting: list[Pace] = []
        self.freed: list[Pace] = []
        """Those who cannot be kept up with, to be given what has been kept for them."""
        self.usable = USABLE
        self._share_of_budget: dict[str, float] = {}

    def arrive(self, pace: Pace, now: float) -> None:
        """Takes one in or lets them wait. Raises QueueFull for one who would wait longer than they want to."""
        pace.arrived = now
        if pace.live is None:
            return
        if pace.live.audible_until > now:
            self._let_in(pace)
            return
        self.waiting.append(pace)
        self.let_in(now)
        wait = 0.0 if pace.let_in else self.expected_wait_s(pace, now)
        if pace.live.max_wait_s is not None and wait > pace.live.max_wait_s:
            self.waiting.remove(pace)
            raise self._full(pace.live.max_wait_s, wait)

    def let_in(self, now: float) -> None:
        """Lets in whoever may begin now, and forgets who is done."""
        paces = [pace for pace in [*self.listening, *self.waiting] if not pace.begun]
        alone = {model: self.rates.alone(model) for model in {pace.model for pace in paces}}
        for pace in paces:
            rate = alone[pace.model]
            if rate is not None and rate < SLOWER * pace.speed:
                pace.paced, pace.let_in = False, True
                self.freed.append(pace)
        self.listening = [pace for pace in self.listening if pace.paced and not self._is_over(pace)]
        self.waiting = [pace for pace in self.waiting if pace.paced and not self._is_over(pace)]
        while self.waiting and self._may_begin(self.waiting[0], now):
            self._let_in(self.waiting.pop(0))
        for pace in self.waiting[:WORKED_AHEAD]:
            pace.ahead = True

    def has_enough(self, pace: Pace, now: float) -> bool:
        """Whether the audio kept for a listener who is let in lasts until the next comes, by the measured rate.

        Where a piece is all there is, more comes only once it is heard.
        """
        if not pace.pieces:
            return True
        number = sum(each.model == pace.model for each in self.listening)
        rate = self.rates.rate(pace.model, number, now)
        return rate is None or pace.lead_s(now) >= pace.next_run_s / pace.speed * min(number / rate, 1.0)

    def impatient(self, now: float) -> list[tuple[Pace, QueueFull]]:
        """Takes out who has waited longer than they want to, with what to tell them.

        One for whom a whole piece has been made meanwhile is let in.
        """
        told = []
        for pace in list(self.waiting):
            limit = pace.live.max_wait_s if pace.live else None
            if limit is None or now - pace.arrived <= limit:
                continue
            if pace.pieces:
                told.append((pace, self._full(limit, self.expected_wait_s(pace, now))))
            else:
                self._let_in(pace)
            self.waiting.remove(pace)
        return told

    def expected_wait_s(self, pace: Pace, now: float) -> float:
        """Seconds until one of the waiting is let in, by the measured rates and what those before them may need."""
        return self._expected_wait_s(self.waiting[: self.waiting.index(pace)], pace.model, now)

    def stats(self, now: float) -> PacingStats:
        """A moment's view."""
        listening = [pace for pace in self.listening if not pace.over]
        leads = [pace.lead_s(now) for pace in listening if pace.begun and pace.pieces]
        models = self.rates.models()
        last = next((pace.model for pace in reversed([*self.listening, *self.waiting])), "")
        return PacingStats(
            listening=len(listening),
            waiting=len(self.waiting),
            lead_s=min(leads, default=None),
            wait_s=self._expected_wait_s(self.waiting, last, now) if self.waiting else 0.0,
            places={model: self._places(model, now) for model in models},
            rates={model: self.rates.measured(model, now) for model in models},
        )

    def _let_in(self, pace: Pace) -> None:
        pace.let_in = True
        self.listening.append(pace)

    def _is_over(self, pace: Pace) -> bool:
        if pace.complete and pace.let_in:
            change = -FALL if pace.paused_s else RISE
            self.usable = min(max(self.usable + change, LEAST), USABLE)
        if pace.complete and pace.budget_s:
            share = pace.made_s / pace.budget_s
            known = self._share_of_budget.setdefault(pace.model, share)
            self._share_of_budget[pace.model] = known + _LEARNED * (share - known)
        return pace.over

    def _may_begin(self, pace: Pace, now: float) -> bool:
        """Whether one more can be kept ahead of their playback together with all who listen; one alone always may."""
        if not self.listening:
            return True
        if any(each.begun and each.pieces and each.runs_out < now for each in self.listening):
            return False  # somebody waits in mid-speech
        together = [*self.listening, pace]
        rates = {
            model: self.rates.rate(model, number, now)
            for model, number in Counter(each.model for each in together).items()
        }
        needs = []
        for each in together:
            rate = rates[each.model]
            if rate is None:
                return False
            begins = max(each.lead_s(now), 0.0)
            needs.append(Need(begins=begins, lasts=self._left_s(each) / each.speed, share=each.speed / rate))
        return keeps_up(needs, self.usable)

    def _expected_wait_s(self, before: Sequence[Pace], model: str, now: float) -> float:
        places = max(1, len(self.listening), self._places(model, now))
        work = [self._work_s(each, len(self.listening), now) for each in self.listening]
        return expected_wait(work, [self._work_s(each, places, now) for each in before], places)

    def _places(self, model: str, now: float) -> int:
        """How many who listen to a model alone, each at its own speed, its measured rate can serve; one at least."""
        number = 1
        while (rate := self.rates.rate(model, number + 1, now)) is not None and (number + 1) / rate <= self.usable:
            number += 1
        return number

    def _work_s(self, pace: Pace, number: int, now: float) -> float:
        """Seconds of work that a request still takes beside others."""
        rate = self.rates.rate(pace.model, max(number, 1), now)
        return self._left_s(pace) / rate if rate else 0.0

    def _left_s(self, pace: Pace) -> float:
        """Seconds of audio that a request is likely to still need, by what others make of their budgets."""
        return max(pace.budget_s - pace.made_s, 0.0) * self._share_of_budget.get(pace.model, 1.0)

    def _full(self, limit: float, wait: float) -> QueueFull:
        return QueueFull(
            f"{len(self.listening)} are listening, as many as this machine can serve, and {len(self.waiting)} wait; "
            f"one more would wait about {wait:.0f} s, and {limit:g} s is the longest here; try again later",
            retry_after_s=max(1, math.ceil(wait)),
        )


def keeps_up(needs: Sequence[Need], usable: float) -> bool:
    """Whether an engine that always works on what is due first has all in time, in the `usable` share of its time.

    The work that is due up to any moment must fit in the time until then. It lags most where somebody's need ends.
    """
    for end in (need.begins + need.lasts for need in needs):
        work = sum(need.share * min(max(end - need.begins, 0.0), need.lasts) for need in needs)
        if work > usable * end:
            return False
    return True


def expected_wait(work: Sequence[float], queued: Sequence[float], places: int) -> float:
    """Seconds until one behind `queued` finds one of `places`, when those who are served share one worker evenly.

    `work` and `queued` are seconds of work that those who are served, and those who wait before, still take.
    """
    served, waiting, passed = list(work), list(queued), 0.0
    while True:
        while waiting and len(served) < places:
            served.append(waiting.pop(0))
        if len(served) < places:
            return passed
        served.sort()
        shortest = served.pop(0)
        passed += shortest * (len(served) + 1)
        served = [left - shortest for left in served]
