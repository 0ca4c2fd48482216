"""Model families by the `model_type` of a checkpoint; each is imported only when a checkpoint asks for it.

A family module has `load(folder, *, name, device, dtype) -> Family`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from oscine.checkpoint.folder import model_type_of
from oscine.errors import ConfigMismatch, UnsupportedFeature

if TYPE_CHECKING:
    import torch

    from oscine.types import Family

REGISTRY: dict[str, str] = {
    "arktts": "oscine.families.audio8.family",
    "auk": "oscine.families.auk.family",
    "auk-flash": "oscine.families.auk.family",
    "qwen2_5_omni": "oscine.families.auk.family",  # AuK's encoder alone: the family says what is missing
    "nemotron_labs_audex": "oscine.families.audex.family",
}
"""`model_type` → module."""
INT8_TYPES = ("nemotron_labs_audex",)
"""Those whose weights can be held as int8."""


class FamilyModule(Protocol):
    """What a family's module offers."""

    def load(self, folder: Path, *, name: str, device: torch.device, dtype: torch.dtype) -> Family:
        """Reads the checkpoint, to be called `name`; raises a `CheckpointError`."""


def load_family(folder: Path, *, name: str, device: torch.device, dtype: torch.dtype) -> Family:
    """The family of the checkpoint in `folder`, loaded. No code from the folder is run.

    Raises `MissingFile` without a config, `ConfigMismatch` for a `model_type` no family here has, and
    `UnsupportedFeature` for int8 where the family does not have it.
    """
    model_type = model_type_of(folder)
    if model_type not in REGISTRY:
        known = ", ".join(sorted(REGISTRY))
        raise ConfigMismatch(f"{folder}: model_type {model_type!r} is not supported; supported are {known}")
    check_int8(model_type, str(dtype).removeprefix("torch."))
    module = cast(FamilyModule, import_module(REGISTRY[model_type]))
    return module.load(folder, name=name, device=device, dtype=dtype)


def check_int8(model_type: str, dtype: str) -> None:
    """Raises `UnsupportedFeature` if `dtype` is "int8" and the family of `model_type` does not have it."""
    if dtype == "int8" and model_type not in INT8_TYPES:
        raise UnsupportedFeature(
            f"models of type {model_type!r} have no int8 weights; use float32 or bfloat16", param="dtype"
        )
