"""Chooses the workload of a model, runs it and puts the machine's facts beside the numbers."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
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
    for name, least in (("batch", min(args.batch)), ("frames", args.frames), ("repeats", args.repeats)):
        if least < 1:
            raise InvalidRequest(f"--{name} must be at least 1, got {least}", param=name)
    threads = 1 if args.threads is None and args.model is None else args.threads
    if threads is not None:
        torch.set_num_threads(threads)
    device = choose_device(args.device)
    dtype = choose_dtype(args.dtype, device)
    start = time.perf_counter()
    if args.random_weights:
        module = _module_named(args.model)
        workload = module.from_random(args.model, device=device, dtype=dtype, **_size(args, module))
    else:
        folder = Path(resolve_source(args.model, offline=True))
        module = _module_of(model_type_of(folder))
        workload = module.from_folder(folder, device=device, dtype=dtype, **_size(args, module))
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


def _module_named(name: str) -> Any:
    """The module with the dimensions of a release. Raises `InvalidRequest` for a name that is none."""
    for module in (audio8, audex, auk):
        if name in module.CONFIGS:
            return module
    known = ", ".join((*audio8.CONFIGS, *audex.CONFIGS, *auk.CONFIGS))
    raise InvalidRequest(f"--random-weights needs one of {known}, got {name!r}", param="model")


def _size(args: argparse.Namespace, module: Any) -> dict[str, Any]:
    """How much to measure. Raises `InvalidRequest` for what another family alone has, such as several batches."""
    size: dict[str, Any] = {"frames": args.frames, "repeats": args.repeats}
    flow = {"steps": args.steps, "guided": False if args.no_guidance else None, "duration_s": args.duration}
    if module is auk:
        size |= flow
    elif any(value is not None for value in flow.values()):
        raise InvalidRequest("--steps, --no-guidance and --duration are for auk", param="steps")
    if module is not audio8:
        size["parts"] = _parts(args.parts, module.PARTS)
    elif args.parts is not None:
        raise InvalidRequest("--parts is for audex and auk", param="parts")
    if module is audex:
        return {**size, "batches": args.batch}
    if len(args.batch) > 1:
        raise InvalidRequest(f"--batch must be one number for this model, got {args.batch}", param="batch")
    if args.dtype == "int8":
        raise InvalidRequest("--dtype int8 is for audex", param="dtype")
    return {**size, "batch": args.batch[0]}


def _parts(names: Sequence[str] | None, known: Sequence[str]) -> Sequence[str]:
    """`names`, or all parts for None. Raises `InvalidRequest` for a part that is none, or is named twice."""
    for name in names or ():
        if name not in known:
            raise InvalidRequest(f"--parts are of {', '.join(known)}; got {name!r}", param="parts")
    if names is not None and len(set(names)) < len(names):
        raise InvalidRequest(f"--parts names a part twice: {', '.join(names)}", param="parts")
    return known if names is None else names
