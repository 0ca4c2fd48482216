"""Counts the work of the code that reads texts: steps of its regular expressions, and lines of Python that run.

`counted` puts a counter in the place of every pattern in the modules it is given (see `tests.regex_steps`) and counts
the lines executed in them. Both are numbers of the work itself and the same on any machine, busy or not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FrameType, ModuleType
from typing import Any

from tests.regex_steps import Steps


class Work:
    """Steps of each pattern by its name, and lines of Python."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}
        self.lines = 0

    @property
    def total(self) -> int:
        """All of it; a line counts as one step."""
        return self.lines + sum(self.steps.values())


def patterns_of(module: ModuleType) -> Iterator[tuple[str, re.Pattern[str]]]:
    """The compiled patterns of a module, with their names; those inside tuples, lists and dictionaries too."""
    for name, value in vars(module).items():
        yield from _patterns(f"{module.__name__}.{name}", value)


def _patterns(name: str, value: Any) -> Iterator[tuple[str, re.Pattern[str]]]:
    if isinstance(value, re.Pattern):
        yield name, value
    elif isinstance(value, (tuple, list)):
        for place, item in enumerate(value):
            yield from _patterns(f"{name}[{place}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _patterns(f"{name}[{key!r}]", item)


class _Counted:
    """A pattern that walks what it is asked for before it answers."""

    def __init__(self, name: str, pattern: re.Pattern[str], work: Work) -> None:
        self._name, self._pattern, self._work = name, pattern, work
        self._steps = _steps_of(pattern)

    def __getattr__(self, method: str) -> Any:
        work = getattr(self._pattern, method)
        if not callable(work):
            return work

        def counting(*arguments: Any, **options: Any) -> Any:
            text, *span = arguments[1:2] if method in ("sub", "subn") else arguments
            tracer, before = sys.gettrace(), self._steps.count
            sys.settrace(None)  # the walk's own calls
            if method in ("match", "fullmatch"):
                self._steps.walk_at(text, *span, full=method == "fullmatch")
            elif method == "search":
                self._steps.walk(text, *span, once=True)
            else:
                self._steps.walk(text, *span)
            found = self._work.steps.get(self._name, 0)
            self._work.steps[self._name] = found + self._steps.count - before
            sys.settrace(tracer)
            return work(*arguments, **options)

        return counting


@cache
def _steps_of(pattern: re.Pattern[str]) -> Steps:
    return Steps(pattern)


def _with_counters(name: str, value: Any, work: Work) -> Any:
    if isinstance(value, re.Pattern):
        return _Counted(name, value, work)
    if isinstance(value, (tuple, list)):
        return type(value)(_with_counters(f"{name}[{place}]", item, work) for place, item in enumerate(value))
    if isinstance(value, dict):
        return {key: _with_counters(f"{name}[{key!r}]", item, work) for key, item in value.items()}
    return value


@contextmanager
def counted(modules: Sequence[ModuleType]) -> Iterator[Work]:
    """Counts in `work` what is done in `modules` until the block is left."""
    work = Work()
    files = {module.__file__ for module in modules}
    kept = [(vars(module), name, value) for module in modules for name, value in vars(module).items()]
    kept = [(space, name, value) for space, name, value in kept if any(_patterns(name, value))]

    def lines(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        work.lines += event == "line"
        return lines

    limit, tracer = sys.getrecursionlimit(), sys.gettrace()
    for space, name, value in kept:
        space[name] = _with_counters(f"{space['__name__']}.{name}", value, work)
    sys.setrecursionlimit(100_000)
    sys.settrace(lines)
    try:
        yield work
    finally:
        sys.settrace(tracer)
        sys.setrecursionlimit(limit)
        for space, name, value in kept:
            space[name] = value
