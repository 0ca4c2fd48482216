"""Backends: a model is weights, and one of several pieces of code runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from oscine.errors import UnsupportedFeature

Backend = TypeVar("Backend")


def choose(wanted: str, available: Mapping[str, Backend | None]) -> Backend:
    """The backend called `wanted`, or for "auto" the first there is; None in `available` stands for one that is not.

    Raises UnsupportedFeature, naming those there are.
    """
    there = {name: backend for name, backend in available.items() if backend is not None}
    if wanted == "auto":
        return next(iter(there.values()))
    if wanted not in there:
        raise UnsupportedFeature(
            f"backend {wanted!r} is not to be had for this model here; there is {', '.join(['auto', *there])}",
            param="backend",
        )
    return there[wanted]
