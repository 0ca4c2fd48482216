"""Compiled products for Python: the libraries made from C, the structs they are handed, and weights packed for them.

The libraries are made when oscine is installed on a machine with a C compiler (`hatch_build.py`), one for each kind of
processor; `OSCINE_NATIVE=0` in the environment leaves them unused.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oscine.kernels.fp16 import fp16_scale

TILE = 64
LIBRARIES = {"AVX512": ("_avx512", "_avx2", ""), "AVX2": ("_avx2", "")}
"""The suffixes of the libraries to try, by what torch finds the processor can do."""
FLOAT32, FLOAT16 = range(2)
"""Weight formats, as in `products.h`."""


class Matrix(Structure):
    """`struct matrix` of `products.h`; all zero: the map that leaves its input as it is."""

    _fields_ = (
        ("weights", c_void_p),
        ("bias", c_void_p),
        ("factor", c_float),
        ("format", c_int32),
        ("num_in", c_int32),
        ("num_out", c_int32),
    )


class _Place(Structure):
    _fields_ = (("name", c_char_p), ("offset", c_int64), ("size", c_int64))


class Keeper:
    """Addresses of tensors for structs; it holds the tensors as long as it lives."""

    def __init__(self) -> None:
        self._kept: list[object] = []

    def address(self, tensor: Tensor) -> int:
        """Where a contiguous tensor lies."""
        assert tensor.is_contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()

    def floats(self, tensor: Tensor) -> int:
        """Where its values lie as float32; weights must not change afterwards."""
        return self.address(tensor.detach().float().contiguous())

    def array(self, kind: type[Structure], items: list[Structure]) -> ctypes.Array[Structure]:
        """Structs of one kind, side by side."""
        made = (kind * len(items))(*items)
        self._kept.append(made)
        return made

    def matrix(self, weight: Tensor, bias: Tensor | None = None) -> Matrix:
        """Weights [out, in] packed as [tile, in, TILE], in float16 where nothing is lost by it."""
        weight = weight.detach()
        num_out, num_in = weight.shape
        scale = fp16_scale(weight)
        stored = weight if scale is None else (weight * scale).half()
        tiles = F.pad(stored, (0, 0, 0, -num_out % TILE)).view(-1, TILE, num_in).transpose(1, 2).contiguous()
        padded = None if bias is None else self.floats(F.pad(bias.detach(), (0, -num_out % TILE)))
        factor, stored_as = (1.0, FLOAT32) if scale is None else (1 / scale, FLOAT16)
        return Matrix(self.address(tiles), padded, factor, stored_as, num_in, num_out)


@dataclass(frozen=True, kw_only=True)
class Interface:
    """What a library must offer: the number that its `interface()` answers, its structs and its calls.

    `structs` are (name in C, ctypes mirror) in the order of the library's list, `calls` names with their arguments.
    """

    number: int
    structs: Sequence[tuple[str, type[Structure]]]
    calls: Mapping[str, Sequence[Any]]


def load_library(stem: Path, interface: Interface) -> ctypes.CDLL | None:
    """The library at `stem` for this processor; None where there is none that fits."""
    if os.environ.get("OSCINE_NATIVE") == "0":
        return None
    suffixes = LIBRARIES.get(torch.backends.cpu.get_cpu_capability(), ("",))
    return next(filter(None, (open_library(stem, suffix, interface) for suffix in suffixes)), None)


def open_library(stem: Path, suffix: str, interface: Interface) -> ctypes.CDLL | None:
    """One library; None where it is missing, for another system, of another version or with other structs."""
    try:
        library = ctypes.CDLL(str(stem.with_name(f"{stem.name}{suffix}.so")))
        library.layout.restype = POINTER(_Place)
        if library.interface() != interface.number or list(_listed(library.layout())) != list(_expected(interface)):
            return None
        for name, arguments in interface.calls.items():
            getattr(library, name).argtypes = arguments
    except (OSError, AttributeError):
        return None
    return library


def _listed(places: ctypes._Pointer[_Place]) -> Iterator[tuple[str, int, int]]:
    """(name, offset, size) of every struct and field of the library."""
    index = 0
    while places[index].name is not None:
        yield places[index].name.decode(), places[index].offset, places[index].size
        index += 1


def _expected(interface: Interface) -> Iterator[tuple[str, int, int]]:
    """The same of the mirrors."""
    for name, mirror in interface.structs:
        yield name, 0, ctypes.sizeof(mirror)
        for field, *_ in mirror._fields_:
            place = getattr(mirror, field)
            yield f"{name}.{field}", place.offset, place.size
