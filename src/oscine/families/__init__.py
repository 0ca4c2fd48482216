"""Model families by the `model_type` of a checkpoint; each is imported only when a checkpoint asks for it.

A family module has `load(folder, *, name, device, dtype) -> Family`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from oscine.checkpoint.folder import model_type_of
from oscine.errors import ConfigMismatch

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


class FamilyModule(Protocol):
    """What a family's module offers."""

    def load(self, folder: Path, *, name: str, device: torch.device, dtype: torch.dtype) -> Family:
        """Reads the checkpoint, to be called `name`; raises a `CheckpointError`."""


def load_family(folder: Path, *, name: str, device: torch.device, dtype: torch.dtype) -> Family:
    """The family of the checkpoint in `folder`, loaded. No code from the folder is run.

    Raises `MissingFile` without a config and `ConfigMismatch` for a `model_type` no family here has.
    """
    model_type = model_type_of(folder)
    if model_type not in REGISTRY:
        known = ", ".join(sorted(REGISTRY))
        raise ConfigMismatch(f"{folder}: model_type {model_type!r} is not supported; supported are {known}")
    module = cast(FamilyModule, import_module(REGISTRY[model_type]))
    return module.load(folder, name=name, device=device, dtype=dtype)
