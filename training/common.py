"""What every training step shares: averaged weights, the schedule over wall time, checkpoints, the log line."""

from __future__ import annotations

import json
import math
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import nn


@torch.no_grad()
def average_into(averaged: nn.Module, module: nn.Module, decay: float) -> None:
    """Moves each parameter of `averaged` towards that of `module` by 1 - decay."""
    for old, new in zip(averaged.parameters(), module.parameters(), strict=True):
        old.lerp_(new, 1.0 - decay)


def learning_rate(progress: float, step: int, peak: float, *, warmup: int = 50, last: float = 0.05) -> float:
    """Linear warm-up over steps, then a cosine over `progress` (0 to 1) from `peak` to `last * peak`."""
    curve = last + (1.0 - last) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    return peak * curve * min(1.0, (step + 1) / warmup)


def save(path: Path, content: dict[str, Any]) -> None:
    """Writes a checkpoint so that a crash leaves the old or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    torch.save(content, part)
    os.replace(part, path)


class Log:
    """Averages what steps report and prints one line at a time, also into `log.txt` as JSON lines beside it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "log.jsonl"
        self.sums: dict[str, float] = defaultdict(float)
        self.rare: dict[str, list[float]] = defaultdict(list)
        self.count = 0
        self.since = time.perf_counter()

    def add(self, **values: float | torch.Tensor) -> None:
        """Values of one step."""
        for name, value in values.items():
            self.sums[name] += float(value.detach() if isinstance(value, torch.Tensor) else value)
        self.count += 1

    def add_rare(self, **values: torch.Tensor) -> None:
        """Values that only some steps have."""
        for name, value in values.items():
            self.rare[name].append(float(value.detach()))

    def line(self, step: int, minutes: float, **extra: Any) -> None:
        """Prints means since the last line, seconds a step, and `extra`."""
        means = {name: round(total / max(1, self.count), 4) for name, total in self.sums.items()}
        means |= {name: round(sum(seen) / len(seen), 4) for name, seen in self.rare.items()}
        rate = (time.perf_counter() - self.since) / max(1, self.count)
        record = {"step": step, "min": round(minutes, 2), "s_step": round(rate, 3), **means, **extra}
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(" ".join(f"{k}={v}" for k, v in record.items()), flush=True)
        self.sums.clear()
        self.rare.clear()
        self.count, self.since = 0, time.perf_counter()
