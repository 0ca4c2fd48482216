"""Finds the models a server is to offer and makes the one engine that runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from oscine.api import BUNDLED_NAME, choose_device, choose_dtype, load
from oscine.checkpoint.folder import describe_folder
from oscine.checkpoint.hub import resolve_source
from oscine.engine.engine import Engine, EngineOptions
from oscine.engine.memory import bytes_for_jobs
from oscine.families import suited_threads
from oscine.server.models import ModelSpec


def model_specs(
    sources: Sequence[str | None],
    engine: Engine,
    *,
    offline: bool = False,
    threads: int | None = None,
    **load_options: Any,
) -> list[ModelSpec]:
    """What to offer for checkpoint folders, hub ids, or None for the bundled voice.

    Downloads happen here or never: a model is loaded later from what is on disk. `threads` None suits all of them.
    Raises `UnknownModel` and the kinds of `CheckpointError` for what is not there.
    """
    folders = [resolve_source(source, offline=offline) for source in sources]
    threads = threads or suited_threads(folders) or torch.get_num_threads()
    specs = []
    for source, folder in zip(sources, folders, strict=True):
        is_folder = source is not None and Path(source).expanduser().is_dir()
        name = BUNDLED_NAME if source is None else folder.resolve().name if is_folder else source
        specs.append(
            ModelSpec(
                id=name,
                load=partial(
                    load, folder if is_folder else source, engine=engine, offline=True, threads=threads, **load_options
                ),
                num_bytes=_loaded_bytes(folder, load_options),
            )
        )
    return specs


def _loaded_bytes(folder: Path, load_options: Mapping[str, Any]) -> int:
    """What the weights take in memory: their size on disk, or more where they are widened."""
    info = describe_folder(folder)
    dtype = choose_dtype(load_options.get("dtype", "auto"), choose_device(load_options.get("device", "auto")))
    return max(info.weight_bytes, dtype.itemsize * info.num_parameters)


def engine_for(
    sources: Sequence[str | None],
    *,
    memory_bytes: int | None = None,
    offline: bool = False,
    **load_options: Any,
) -> Engine:
    """An engine for a server, which bounds the queue itself: a request it has let in never lacks room.

    Its memory is a share of what is free less the weights that may be loaded, `memory_bytes` or those of all models.
    """
    weights = sum(_loaded_bytes(resolve_source(source, offline=offline), load_options) for source in sources)
    loaded = weights if memory_bytes is None else min(weights, memory_bytes)
    return Engine(EngineOptions(max_waiting=None, memory_bytes=bytes_for_jobs(loaded)))
