"""Tests that need a CUDA device: `pytest -m gpu`."""

import pytest
import torch

NEEDS_CUDA = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
)
"""Marks of every module here."""
