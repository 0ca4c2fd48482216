"""How much memory a process can still have: what the system calls available, or less in a container."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_FILES = {  # by the name of the controller in /proc/self/cgroup: mount, limit, use, page cache that can be given back
    "": ("", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def available_bytes(root: Path = Path("/")) -> int | None:
    """Bytes free for new allocations; None where it cannot be told. `root` is the root of the file system.

    The least of what the kernel calls available and what each control group around this process (version 1 or 2) has
    left below its limit, where page cache that can be given back counts as free.
    """
    found = [*_meminfo(root / "proc" / "meminfo"), *_control_groups(root)]
    return min(found, default=None)


def _meminfo(path: Path) -> Iterator[int]:
    if path.is_file():
        for line in path.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024


def _control_groups(root: Path) -> Iterator[int]:
    """What each group has left, from this process's own up to the outermost that can be seen."""
    listed = root / "proc" / "self" / "cgroup"
    lines = listed.read_text(encoding="utf-8", errors="replace").splitlines() if listed.is_file() else ["0::/"]
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        for controller in controllers.split(","):
            if controller in _FILES:
                mount, *names = _FILES[controller]
                top = root / "sys" / "fs" / "cgroup" / mount
                own = top / path.strip("/")
                for folder in (own, *own.parents):
                    yield from _left_in(folder, *names)
                    if folder == top:
                        break


def _left_in(folder: Path, limit_name: str, use_name: str, cache_name: str) -> Iterator[int]:
    limit, use = _number(folder / limit_name), _number(folder / use_name)
    if limit is not None and use is not None:
        yield max(limit - max(use - _cache(folder / "memory.stat", cache_name), 0), 0)


def _cache(path: Path, name: str) -> int:
    lines = path.read_text(encoding="ascii").splitlines() if path.is_file() else []
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0)


def _number(path: Path) -> int | None:
    """The number in a file; None where there is no such file, or it says "max"."""
    text = path.read_text(encoding="ascii").strip() if path.is_file() else ""
    return int(text) if text.isdigit() else None
