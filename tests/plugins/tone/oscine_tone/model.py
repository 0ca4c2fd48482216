"""The model, its configuration and how a folder becomes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from oscine.checkpoint.config import bounded, parse_record, read_json
from oscine.checkpoint.weights import load_strict, read_tensors


@dataclass(frozen=True, kw_only=True)
class ToneConfig:
    """Rates of a checkpoint: `hop_length` samples a letter."""

    sample_rate: int = bounded(least=1)
    hop_length: int = bounded(least=1)


class ToneModel(nn.Module):
    """`tones` [26]: what the pitch of a voice is multiplied by for each letter."""

    def __init__(self) -> None:
        super().__init__()
        self.tones = nn.Parameter(torch.ones(26), requires_grad=False)


def read_config(folder: Path) -> ToneConfig:
    """The folder's configuration. Raises MissingFile or ConfigMismatch."""
    path = folder / "config.json"
    return parse_record(ToneConfig, read_json(path), source=str(path))


def read_model(folder: Path, *, device: torch.device, dtype: torch.dtype) -> ToneModel:
    """The folder's model. Raises MissingFile or WeightMismatch."""
    path = folder / "model.safetensors"
    with torch.device("meta"):
        model = ToneModel()
    load_strict(model, read_tensors(path), dtype=dtype, device=device, source=str(path))
    return model
