"""Whether a decoder has a core of its own."""

from __future__ import annotations

import os

import torch


def has_spare_core() -> bool:
    """Whether this process may use more cores than torch takes for one operation."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > torch.get_num_threads()
