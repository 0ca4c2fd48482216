"""Modules of a release's size with random weights: right for speed, meaningless to hear."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from oscine.kernels.int8 import LARGEST, Int8Linear
from oscine.kernels.upcast_linear import to_upcast_linear

Module = TypeVar("Module", bound=nn.Module)

FILL_VALUES = 1 << 20  # random values drawn once and repeated: billions of them would take minutes


def filled(
    build: Callable[[], Module], dtype: torch.dtype, device: torch.device, *, ones: Callable[[str], bool] | None = None
) -> Module:
    """What `build` gives, built on the meta device, with small normal weights around 0, or 1 where `ones(name)`.

    Matrices are scaled so that nothing overflows; int8 layers get the like, other buffers 0.1.
    """
    with torch.device("meta"):
        module = build()
    buffers = dict(module.named_buffers())
    generator = torch.Generator(device).manual_seed(0)
    noise = torch.randn(FILL_VALUES, generator=generator, device=device)
    for name, value in list(module.named_parameters()):
        spread = 0.1 if value.dim() == 1 else value[0].numel() ** -0.5
        tensor = _repeated(noise.to(dtype) * spread, value.shape)
        owner, leaf = _owner(module, name)
        owner._parameters[leaf] = nn.Parameter(tensor + 1 if ones and ones(name) else tensor, requires_grad=False)
    whole = (noise * LARGEST / 4).round().clamp(-LARGEST, LARGEST).to(torch.int8)
    for name, buffer in buffers.items():
        owner, leaf = _owner(module, name)
        if buffer.dtype == torch.int8:
            owner._buffers[leaf] = _repeated(whole, buffer.shape)
            continue
        spread = 4 / LARGEST * owner.weight.shape[1] ** -0.5 if isinstance(owner, Int8Linear) else 0.1
        owner._buffers[leaf] = torch.full(buffer.shape, spread, device=device)
    to_upcast_linear(module)  # as a loader does
    return module.eval()


def _repeated(values: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """A tensor of `shape` with the values over and over."""
    tensor = torch.empty(shape, dtype=values.dtype, device=values.device)
    for piece in torch.split(tensor.flatten(), FILL_VALUES):
        piece.copy_(values[: len(piece)])
    return tensor


def _owner(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return module.get_submodule(path), leaf
