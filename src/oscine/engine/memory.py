"""How much memory the engine may promise to jobs. Plain integers, so admission tests in microseconds."""

from __future__ import annotations

from oscine.runtime.memory import available_bytes

MEMORY_SHARE = 0.6
"""Share of the free memory which jobs may reserve; the rest is for activations and the system."""
ASSUMED_BYTES = 4 * 2**30
"""Free memory where the system does not say."""


def bytes_for_jobs(taken: int = 0) -> int:
    """What jobs may reserve when `taken` of the bytes free now are for other things."""
    free = available_bytes()
    return max(int(((ASSUMED_BYTES if free is None else free) - taken) * MEMORY_SHARE), 0)


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
