"""Keeps a fault to the job that has it: work on several jobs that fails is done again job by job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Made = TypeVar("Made")


def isolated(work: Callable[[Sequence[Item]], Sequence[Made]], items: Sequence[Item]) -> list[Made | Exception]:
    """What `work` makes of all `items` in one call or, if that raises, of each by itself.

    An item whose own call raises has the error in its place. `work` must leave everything as it was when it raises.
    """
    try:
        return list(work(items))
    except Exception as error:
        if len(items) == 1:
            return [error]
        log.warning("work on %d jobs failed (%r); each is done by itself", len(items), error)
    return [made for item in items for made in isolated(work, [item])]
