"""Which parts stay in memory: all of them on a machine that is large enough, else encoder and transformer in turn."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import torch

from oscine.families.auk.dit import AuKTransformer

HEADROOM_BYTES = 2 << 30
"""For activations, the prompt and the rest of the process."""


class TransformerHolder:
    """The transformer, there whenever it is asked for; `reload` None: it never leaves."""

    def __init__(self, module: AuKTransformer, reload: Callable[[], AuKTransformer] | None = None) -> None:
        self._module: AuKTransformer | None = module
        self._reload = reload
        self._row_rule = module.row_rule

    def get(self) -> AuKTransformer:
        """The transformer, loaded again if it was dropped."""
        if self._module is None:
            assert self._reload is not None
            self._module = self._reload()
            self._module.row_rule = self._row_rule
        return self._module

    def drop(self) -> None:
        """Frees its memory, if it can be had again."""
        if self._reload is not None and self._module is not None:
            self._module = None
            free_unused()

    @property
    def in_memory(self) -> bool:
        """Whether it is there now."""
        return self._module is not None


def free_unused() -> None:
    """Gives memory of dropped modules back to the system or the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def module_bytes(module: torch.nn.Module, dtype: torch.dtype) -> int:
    """Memory of a module's weights in `dtype`; it may live on the meta device."""
    return sum(parameter.numel() for parameter in module.parameters()) * dtype.itemsize


def fits(wanted_bytes: int, free_bytes: int) -> bool:
    """Whether weights of this size leave room to work in."""
    return wanted_bytes + HEADROOM_BYTES <= free_bytes


def available_bytes(device: torch.device, root: Path = Path("/")) -> int:
    """Memory free for new allocations where the model runs: what the system calls available, or a container's rest.

    `root` is the root of the file system.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo, group = root / "proc" / "meminfo", root / "sys" / "fs" / "cgroup"
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if meminfo.is_file():
        lines = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines() if ":" in line)
        free = int(lines["MemAvailable"].split()[0]) * 1024
    limit, used = group / "memory.max", group / "memory.current"
    if limit.is_file() and used.is_file() and (text := limit.read_text(encoding="ascii").strip()).isdigit():
        free = min(free, max(int(text) - int(used.read_text(encoding="ascii")), 0))
    return free
