"""oscine: an engine for generative audio models. `load()` gives a model; it loads torch, importing this does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oscine.errors import OscineError
from oscine.types import AudioChunk, Capabilities, Voice

if TYPE_CHECKING:
    from oscine.api import Model, Result, load

__version__ = "0.1.0"

__all__ = ["AudioChunk", "Capabilities", "Model", "OscineError", "Result", "Voice", "__version__", "load"]

_LAZY = ("Model", "Result", "load")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from oscine import api

        return getattr(api, name)
    raise AttributeError(f"module 'oscine' has no attribute {name!r}")
