"""Keeps a log small whatever clients do."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

_KIND_CHARS = 40
_MOST_KINDS = 100
LOGGERS = ("asyncio", "uvicorn.error")
"""Of those who tell of what single connections do: an accept that fails, a request that is none."""


class Sparingly(logging.Filter):
    """Lets messages that begin alike through once in `seconds`; the next says how many there were in between."""

    def __init__(self, seconds: float = 1.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._kinds: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be written."""
        kind, now = f"{record.levelno} {str(record.msg)[:_KIND_CHARS]}", time.monotonic()
        until, dropped = self._kinds.get(kind, (now, 0))
        if now < until:
            self._kinds[kind] = (until, dropped + 1)
            return False
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        self._kinds[kind] = (now + self._seconds, 0)
        if dropped:
            record.msg, record.args = f"{record.getMessage()} ({dropped} more like the last)", None
        return True


@contextmanager
def kept_small() -> Iterator[None]:
    """The loggers of `LOGGERS` write sparingly in the block."""
    sparingly = Sparingly()
    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.addFilter(sparingly)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(sparingly)
