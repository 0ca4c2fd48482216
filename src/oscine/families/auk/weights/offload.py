"""Which parts stay in memory: all of them on a machine that is large enough, else encoder and transformer in turn."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch

from oscine.families.auk.sampler import Transformer
from oscine.registry import HEADROOM_BYTES
from oscine.runtime.memory import available_bytes


class TransformerHolder:
    """The transformer, there whenever it is asked for; `reload` None: it never leaves."""

    def __init__(self, module: Transformer, reload: Callable[[], Transformer] | None = None) -> None:
        self._module: Transformer | None = module
        self._reload = reload

    def get(self) -> Transformer:
        """The transformer, loaded again if it was dropped."""
        if self._module is None:
            assert self._reload is not None
            self._module = self._reload()
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


def fits(wanted: int, free: int | None) -> bool:
    """Whether weights of `wanted` bytes leave room to work in, as far as is known."""
    return free is None or wanted + HEADROOM_BYTES <= free


def free_bytes(device: torch.device) -> int | None:
    """Memory free for new allocations where the model runs; None where it is unknown."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
