"""Numbers for people."""

from __future__ import annotations


def human_bytes(size: int) -> str:
    """Bytes in the largest fitting decimal unit, e.g. "1.35 GB"."""
    return _scaled(size, (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)), "B")


def human_count(count: int) -> str:
    """A count in thousands, millions or billions, e.g. "337.4 M"."""
    return _scaled(count, (("G", 10**9), ("M", 10**6), ("k", 10**3)), "")


def _scaled(value: int, units: tuple[tuple[str, int], ...], rest: str) -> str:
    for unit, size in units:
        if value >= size:
            scaled = value / size
            return f"{scaled:.2f} {unit}" if scaled < 10 else f"{scaled:.1f} {unit}"
    return f"{value} {rest}".rstrip()
