"""Judges from a job's own codes whether its generation has gone wrong: loops and stationary silence.

Pure Python on integers. A frame stands for itself by its first code (the semantic one).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from oscine.types import Guard

Verdict = Literal["clean", "suspect", "loop", "silence"]

STATIONARY_CODES = 2
"""A run that uses at most this many distinct codes is stationary: room tone flips between one or two of them."""

MIN_REPEATS = 3
"""A phrase said twice is speech; the third time it is a loop."""


@dataclass
class _Run:
    """Length of the current suffix that is stationary, and the codes in it."""

    codes: dict[int, int]  # code → index of its last place
    start: int = 0


class CodeGuard:
    """Watches one job's codes; `observe` once a frame, `reset` after a rewind."""

    def __init__(self, limits: Guard) -> None:
        self.limits = limits
        self.reset()

    def reset(self) -> None:
        """Forgets everything seen: what comes next starts a new run."""
        self._codes: list[int] = []
        self._matches = [0] * (self.limits.max_period + 1)  # by period: how many codes equal the one a period ago
        self._stationary = _Run({})

    def observe(self, code: int) -> Verdict:
        """The verdict after one more code; `loop` and `silence` mean the job has failed."""
        index = len(self._codes)
        self._codes.append(code)
        still = self._observe_stationary(index, code)
        looping = self._observe_loops(index, code)
        if still >= self.limits.fail_frames:
            return "silence"
        if looping >= self.limits.fail_frames:
            return "loop"
        return "suspect" if max(still, looping) >= self.limits.suspect_frames else "clean"

    def _observe_stationary(self, index: int, code: int) -> int:
        run = self._stationary
        run.codes[code] = index
        if len(run.codes) > STATIONARY_CODES:
            oldest = min(run.codes, key=run.codes.__getitem__)
            run.start = run.codes.pop(oldest) + 1
        return index - run.start + 1

    def _observe_loops(self, index: int, code: int) -> int:
        longest = 0
        for period in range(2, min(self.limits.max_period, index) + 1):
            same = code == self._codes[index - period]
            self._matches[period] = self._matches[period] + 1 if same else 0
            span = self._matches[period] + period
            if span >= MIN_REPEATS * period:
                longest = max(longest, span)
        return longest
