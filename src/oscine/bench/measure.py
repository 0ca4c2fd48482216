"""What a benchmark says about the machine and the run: environment, memory bandwidth, peak memory, percentiles."""

from __future__ import annotations

import platform
import resource
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch


def environment(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Commit, versions, device, dtype and threads, for the head of every result."""
    return {
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": _cpu_name(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "dtype": str(dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
    }


def memory_bandwidth(device: torch.device, *, megabytes: int = 512, repeats: int = 5) -> float:
    """Bytes a second at which a large tensor can be read (its sum), the best of `repeats`."""
    data = torch.ones(megabytes * 2**18, dtype=torch.float32, device=device)
    best = min(seconds(data.sum, device) for _ in range(repeats))
    return data.numel() * 4 / best


def peak_memory(device: torch.device) -> int:
    """The most bytes this process has held: allocator peak on CUDA, resident set size on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def summary(values: Sequence[float]) -> dict[str, float]:
    """Minimum, median, p90 and p99 of at least one value, rounded to six significant digits."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]

    chosen = {"min": ordered[0], "p50": median(ordered), "p90": at(0.9), "p99": at(0.99)}
    return {name: float(f"{value:.6g}") for name, value in chosen.items()}


def synchronize(device: torch.device) -> None:
    """Waits for the device, so that the clock sees its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(work: Callable[[], Any], device: torch.device) -> float:
    """Wall time of `work` on the device."""
    synchronize(device)
    start = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - start


def times(work: Callable[[], Any], device: torch.device, repeats: int) -> list[float]:
    """Wall times of `repeats` runs of `work` after one outside the clock."""
    return [seconds(work, device) for _ in range(repeats + 1)][1:]


def _commit() -> str:
    root = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"  # an installed package has no history
    return done.stdout.strip()


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    except OSError:
        return platform.processor() or "unknown"
