"""Chooses the workload of a model, runs it and puts the machine's facts beside the numbers."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from oscine.api import choose_device, choose_dtype
from oscine.bench import audex, audio8, auk
from oscine.bench.measure import environment, peak_memory
from oscine.checkpoint.folder import model_type_of
from oscine.checkpoint.hub import resolve_source
from oscine.errors import InvalidRequest

AUDEX_TYPE = "nemotron_labs_audex"
AUK_TYPES = ("auk", "auk-flash")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """The report of one model. Raises `InvalidRequest` for arguments that make no sense together."""
    for name in ("batch", "frames", "repeats"):
        if getattr(args, name) < 1:
            raise InvalidRequest(f"--{name} must be at least 1, got {getattr(args, name)}", param=name)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    device = choose_device(args.device)
    dtype = choose_dtype(args.dtype, device)
    size = {"batch": args.batch, "frames": args.frames, "repeats": args.repeats}
    start = time.perf_counter()
    if args.random_weights:
        workload = _random_workload(args.model, device=device, dtype=dtype, **size)
    else:
        folder = Path(resolve_source(args.model, offline=True))
        workload = _module_of(model_type_of(folder)).from_folder(folder, device=device, dtype=dtype, **size)
    load_s = time.perf_counter() - start
    return {
        "model": args.model or "oscine-default",
        "random_weights": args.random_weights,
        **environment(device, dtype),
        "load_s": load_s,
        **workload.run(),
        "peak_memory": peak_memory(device),
    }


def _module_of(model_type: str) -> Any:
    """The module with the workload of a family."""
    if model_type == AUDEX_TYPE:
        return audex
    return auk if model_type in AUK_TYPES else audio8


def _random_workload(name: str, **options: Any) -> audio8.Audio8Workload | audex.AudexWorkload | auk.AuKWorkload:
    """The workload of a release's dimensions. Raises `InvalidRequest` for a name that is none."""
    if name in audio8.CONFIGS:
        return audio8.from_random(name, **options)
    if name in audex.CONFIGS:
        return audex.from_random(name, **options)
    if name in auk.CONFIGS:
        return auk.from_random(name, **options)
    known = ", ".join((*audio8.CONFIGS, *audex.CONFIGS, *auk.CONFIGS))
    raise InvalidRequest(f"--random-weights needs one of {known}, got {name!r}", param="model")
