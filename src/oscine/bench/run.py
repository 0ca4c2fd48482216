"""Chooses the workload of a model, runs it and puts the machine's facts beside the numbers."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from oscine.api import choose_device, choose_dtype
from oscine.bench import audio8
from oscine.bench.measure import environment, peak_memory
from oscine.checkpoint.hub import resolve_source
from oscine.errors import InvalidRequest


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
        if args.model not in audio8.CONFIGS:
            known = ", ".join(audio8.CONFIGS)
            raise InvalidRequest(f"--random-weights needs one of {known}, got {args.model!r}", param="model")
        workload = audio8.from_random(args.model, device=device, dtype=dtype, **size)
    else:
        folder = Path(resolve_source(args.model, offline=True))
        workload = audio8.from_folder(folder, device=device, dtype=dtype, **size)
    load_s = time.perf_counter() - start
    return {
        "model": args.model or "oscine-default",
        "random_weights": args.random_weights,
        **environment(device, dtype),
        "load_s": load_s,
        **workload.run(),
        "peak_memory": peak_memory(device),
    }
