"""The model families, a folder each; what a family must have is in CONTRIBUTING.md."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from oscine.checkpoint.folder import model_type_of
from oscine.errors import ConfigMismatch
from oscine.registry import FamilySpec, family_of

if TYPE_CHECKING:
    import torch

    from oscine.types import Family


def spec_of(folder: Path) -> FamilySpec:
    """The family of the checkpoint in `folder`. Raises `MissingFile` without a config, `ConfigMismatch` for a
    `model_type` no family has."""
    try:
        return family_of(model_type_of(folder))
    except ConfigMismatch as error:
        raise ConfigMismatch(f"{folder}: {error.message}") from error


def suited_threads(folders: Iterable[Path]) -> int | None:
    """CPU threads for checkpoints that run in one process: the most that one of them is fastest with.

    None is torch's own number, and more than any.
    """
    wanted = [spec_of(folder).threads(folder) for folder in folders]
    known = [count for count in wanted if count is not None]
    return max(known) if known and len(known) == len(wanted) else None


def load_family(folder: Path, *, name: str, device: torch.device, dtype: torch.dtype, backend: str = "auto") -> Family:
    """The family of the checkpoint in `folder`, loaded. No code from the folder is run.

    Raises as `spec_of`, `UnsupportedFeature` for a dtype or backend its family does not have, and a `CheckpointError`.
    """
    spec = spec_of(folder)
    spec.check_dtype(str(dtype).removeprefix("torch."))
    load = spec.module("family").load
    return cast("Family", load(folder, name=name, device=device, dtype=dtype, backend=backend))
