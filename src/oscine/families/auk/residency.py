"""Whether the encoder can stay in memory beside the rest."""

from __future__ import annotations

import os

import torch

HEADROOM_BYTES = 2 << 30
"""For activations, the prompt and the rest of the process."""


def available_bytes(device: torch.device) -> int:
    """Memory free for new allocations where the model runs, container limits not considered."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux: ask the C library below
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def fits_beside(encoder_bytes: int, free_bytes: int) -> bool:
    """Whether an encoder of this size may stay, DiT and VAE being loaded already."""
    return encoder_bytes + HEADROOM_BYTES <= free_bytes
