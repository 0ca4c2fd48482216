"""`oscine` with a fault in it: `python -m tests.attack.faulty PLACE FAULT serve ...`.

PLACE is `load` (of any model) or `engine` (its planning, from the first job named `r2` on: the second request, the one
after the warm-up). FAULT is the name of a built-in exception.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Sequence
from typing import Any

from oscine import families
from oscine.cli.main import main
from oscine.engine.entry import Entry
from oscine.engine.scheduler import Scheduler


def break_load(fault: BaseException) -> None:
    """No model can be loaded."""

    def load_family(*arguments: Any, **options: Any) -> Any:
        raise fault

    families.load_family = load_family


def break_engine(fault: BaseException) -> None:
    """The engine fails at the second request."""
    plan = Scheduler.plan

    def faulty(self: Scheduler[Entry], *arguments: Any) -> Sequence[Entry]:
        if any(entry.job.id.startswith("r2") for entry in self.running):
            raise fault
        return plan(self, *arguments)

    Scheduler.plan = faulty  # type: ignore[method-assign]


if __name__ == "__main__":
    place, name, *arguments = sys.argv[1:]
    {"load": break_load, "engine": break_engine}[place](getattr(builtins, name)("on purpose"))
    sys.exit(main(arguments))
