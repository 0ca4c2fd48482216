"""Runs the workload of a model's family and puts the machine's facts beside the numbers."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from oscine.api import choose_device, choose_dtype, use_threads
from oscine.bench import OPTIONS, families_with, known_names
from oscine.bench.measure import environment, peak_memory
from oscine.checkpoint.hub import resolve_source
from oscine.errors import InvalidRequest
from oscine.families import spec_of
from oscine.registry import BenchSpec, FamilySpec, families


def run(args: argparse.Namespace) -> dict[str, Any]:
    """The report of one model. Raises `InvalidRequest` for arguments that make no sense together."""
    for name, least in (("batch", min(args.batch)), ("frames", args.frames), ("repeats", args.repeats)):
        if least < 1:
            raise InvalidRequest(f"--{name} must be at least 1, got {least}", param=name)
    device = choose_device(args.device)
    dtype = choose_dtype(args.dtype, device)
    start = time.perf_counter()
    if args.random_weights:
        spec, source = _family_with(args.model), args.model
        if args.threads is not None:
            torch.set_num_threads(args.threads)
    else:
        source = Path(resolve_source(args.model, offline=True))
        spec = spec_of(source)
        use_threads(args.threads, source)
    size = _size(args, spec)
    spec.check_dtype(str(dtype).removeprefix("torch."))
    module = spec.module("bench")
    make = module.from_random if args.random_weights else module.from_folder
    workload = make(source, device=device, dtype=dtype, **size)
    load_s = time.perf_counter() - start
    return {
        "model": args.model or "oscine-default",
        "random_weights": args.random_weights,
        **environment(device, dtype),
        "load_s": load_s,
        **workload.run(),
        "peak_memory": peak_memory(device),
    }


def _family_with(name: str) -> FamilySpec:
    """The family with the dimensions of a release. Raises `InvalidRequest` for a name that is none."""
    for spec in families():
        if spec.bench and name in spec.bench.names:
            return spec
    raise InvalidRequest(f"--random-weights needs one of {known_names()}, got {name!r}", param="model")


def _size(args: argparse.Namespace, spec: FamilySpec) -> dict[str, Any]:
    """How much to measure. Raises `InvalidRequest` for what this family has not, such as several batches."""
    bench = spec.bench
    if bench is None:
        raise InvalidRequest(f"{spec.name} has no benchmark", param="model")
    given: dict[str, Any] = {
        "batches": args.batch if len(args.batch) > 1 else None,
        "steps": args.steps,
        "guided": False if args.no_guidance else None,
        "duration_s": args.duration,
    }
    for name, value in given.items():
        if value is not None and name not in bench.options:
            raise InvalidRequest(f"{OPTIONS[name]} is for {families_with(name)}, not for {spec.name}", param=name)
    size = {"frames": args.frames, "repeats": args.repeats, **{name: given[name] for name in sorted(bench.options)}}
    if bench.parts:
        size["parts"] = _parts(args.parts, bench)
    elif args.parts is not None:
        raise InvalidRequest(f"--parts is not for {spec.name}, which is measured as a whole", param="parts")
    return size | ({"batches": args.batch} if "batches" in bench.options else {"batch": args.batch[0]})


def _parts(names: Sequence[str] | None, bench: BenchSpec) -> Sequence[str]:
    """`names`, or all parts for None. Raises `InvalidRequest` for a part that is none, or is named twice."""
    for name in names or ():
        if name not in bench.parts:
            raise InvalidRequest(f"--parts are of {', '.join(bench.parts)}; got {name!r}", param="parts")
    if names is not None and len(set(names)) < len(names):
        raise InvalidRequest(f"--parts names a part twice: {', '.join(names)}", param="parts")
    return bench.parts if names is None else names
