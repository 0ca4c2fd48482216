"""How fast this machine makes audio, measured while it works: for each model, by how many requests share a step.

Plain arithmetic on times that are handed in; no clock, no thread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

MEMORY_S = 20.0
"""Seconds of audio after which what was measured before counts for less than half (1/e)."""
MEASURED_S = 1.0
"""Seconds of audio that make a measurement."""
FORGOTTEN_S = 60.0
"""A measurement not renewed for so long says nothing: what else runs on the machine has changed."""

_FADE = 0.98
"""What a step counts for once another has come."""


@dataclass
class _Sums:
    """Seconds of work, and of the audio that came of it; what is long ago has faded."""

    audio_s: float = 0.0
    work_s: float = 0.0
    renewed: float = -math.inf

    def add(self, work_s: float, audio_s: float, now: float) -> None:
        fade = math.exp(-audio_s / MEMORY_S)
        self.audio_s = self.audio_s * fade + audio_s
        self.work_s = self.work_s * fade + work_s
        self.renewed = now

    def per_second(self, now: float) -> float | None:
        """Seconds of work for one of audio; None while it is not known."""
        if self.audio_s < MEASURED_S or now - self.renewed > FORGOTTEN_S:
            return None
        return self.work_s / self.audio_s


@dataclass
class _Model:
    steps: dict[int, _Sums] = field(default_factory=dict)
    """Steps that make frames, by the number of requests that share them."""
    others: _Sums = field(default_factory=_Sums)
    """Steps that make none, of which every request needs some: its prompt, its solver's steps."""
    decoding: _Sums = field(default_factory=_Sums)
    """What is decoded in the background of the steps."""


class StepLength:
    """How long steps of one kind take by the number of jobs in them: a line through those there have been."""

    def __init__(self) -> None:
        self._weight = self._jobs = self._squares = self._seconds = self._products = 0.0

    def add(self, jobs: int, seconds: float) -> None:
        """A step of so many jobs has taken so long."""
        values = (1.0, jobs, jobs * jobs, seconds, jobs * seconds)
        sums = (self._weight, self._jobs, self._squares, self._seconds, self._products)
        self._weight, self._jobs, self._squares, self._seconds, self._products = (
            _FADE * total + value for total, value in zip(sums, values, strict=True)
        )

    def line(self) -> tuple[float, float]:
        """Seconds that any step takes, and seconds that each job adds; both 0 while nothing is known."""
        if not self._weight:
            return 0.0, 0.0
        jobs, seconds = self._jobs / self._weight, self._seconds / self._weight
        spread = self._squares / self._weight - jobs * jobs
        slope = (self._products / self._weight - jobs * seconds) / spread if spread > 1e-3 else 0.0
        each = min(max(slope, 0.0), seconds / jobs)
        return seconds - each * jobs, each

    def of(self, jobs: int) -> float:
        """The expected length of a step of so many jobs, in seconds."""
        any_step, each = self.line()
        return any_step + each * jobs

    def narrowest(self, jobs: int, loss: float) -> int:
        """The fewest jobs in a step at which work takes at most `loss` times as long as with `jobs` in a step."""
        any_step, each = self.line()
        most = loss * (any_step / jobs + each) - each
        return jobs if most <= 0 else min(jobs, max(1, math.ceil(any_step / most)))


class Rates:
    """Seconds of audio that are made in a second of work, by model and by the number of requests worked on."""

    def __init__(self) -> None:
        self._models: dict[str, _Model] = {}

    def stepped(self, model: str, requests: int, work_s: float, audio_s: float, now: float) -> None:
        """A step of so many requests has taken so long and made frames of so much audio, or none."""
        known = self._models.setdefault(model, _Model())
        if audio_s:
            known.steps.setdefault(requests, _Sums()).add(work_s, audio_s, now)
        known.others.add(0.0 if audio_s else work_s, audio_s, now)

    def decoded(self, model: str, work_s: float, audio_s: float, now: float) -> None:
        """So much audio has been decoded in the background of the steps."""
        self._models.setdefault(model, _Model()).decoding.add(work_s, audio_s, now)

    def models(self) -> tuple[str, ...]:
        """The models that have been worked on."""
        return tuple(self._models)

    def measured(self, model: str, now: float) -> dict[int, float]:
        """Rates of a model by the number of requests, as far as they have been measured."""
        known = self._models.get(model, _Model())
        of_steps = {number: sums.per_second(now) for number, sums in sorted(known.steps.items())}
        return {number: self._rate(known, cost, now) for number, cost in of_steps.items() if cost is not None}

    def rate(self, model: str, requests: int, now: float) -> float | None:
        """The rate at which `requests` are served together, at the least; None while nothing is known.

        Not measured, it is that of fewer requests, since a batch is never slower than its parts one after the other;
        or it follows from that of more: a step of fewer takes no longer than a step of more.
        """
        known = self.measured(model, now)
        if requests in known:
            return known[requests]
        fewer = [rate for number, rate in known.items() if number < requests]
        more = [rate * requests / number for number, rate in known.items() if number > requests]
        return max(fewer[-1:] + more[:1], default=None)

    def alone(self, model: str) -> float | None:
        """The last known rate of one request alone, however long ago; None before there is one."""
        known = self._models.get(model, _Model())
        sums = known.steps.get(1, _Sums())
        cost = sums.per_second(sums.renewed)
        return None if cost is None else self._rate(known, cost, sums.renewed)

    def forget(self) -> None:
        """Forgets all, as after a warm-up, which is slower than what comes."""
        self._models.clear()

    def _rate(self, model: _Model, cost: float, now: float) -> float:
        cost += model.others.per_second(now) or 0.0
        decoding = model.decoding.per_second(now) or 0.0
        return 1.0 / max(cost, decoding, 1e-9)
