"""How much memory the engine may promise to jobs. Plain integers, so admission tests in microseconds."""

from __future__ import annotations

import os

MEMORY_SHARE = 0.6
"""Share of the memory that is free at start-up which jobs may reserve; the rest is for activations and the system."""


def available_bytes() -> int:
    """Memory free for new allocations on this machine, in bytes, container limits not considered."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux: ask the C library below
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class MemoryBudget:
    """Reservations against a fixed number of bytes."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.reserved = 0

    def ever_fits(self, amount: int) -> bool:
        """Whether `amount` bytes could be promised on an idle engine."""
        return amount <= self.total

    def fits(self, amount: int) -> bool:
        """Whether `amount` bytes can be promised now."""
        return self.reserved + amount <= self.total

    def reserve(self, amount: int) -> None:
        """Promises `amount` bytes; the caller has asked `fits`."""
        assert self.fits(amount), "reserve without fits"
        self.reserved += amount

    def free(self, amount: int) -> None:
        """Takes a promise back."""
        self.reserved -= amount
        assert self.reserved >= 0, "freed more than was reserved"
