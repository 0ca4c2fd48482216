"""Finds the models a server is to offer and makes the one engine that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from oscine.api import BUNDLED_NAME, load
from oscine.checkpoint.folder import describe_folder
from oscine.checkpoint.hub import resolve_source
from oscine.engine.engine import Engine, EngineOptions
from oscine.engine.memory import MEMORY_SHARE, available_bytes
from oscine.server.models import ModelSpec
from oscine.stream import PIECES_AHEAD


def model_specs(
    sources: Sequence[str | None], engine: Engine, *, offline: bool = False, **load_options: Any
) -> list[ModelSpec]:
    """What to offer for checkpoint folders, hub ids, or None for the bundled voice.

    Downloads happen here or never: a model is loaded later from what is on disk. Raises `UnknownModel` and the kinds
    of `CheckpointError` for what is not there.
    """
    specs = []
    for source in sources:
        folder = resolve_source(source, offline=offline)
        is_folder = source is not None and Path(source).expanduser().is_dir()
        name = BUNDLED_NAME if source is None else folder.resolve().name if is_folder else source
        specs.append(
            ModelSpec(
                id=name,
                load=partial(load, folder if is_folder else source, engine=engine, offline=True, **load_options),
                num_bytes=describe_folder(folder).weight_bytes,
            )
        )
    return specs


def engine_for(
    sources: Sequence[str | None], *, max_requests: int, memory_bytes: int | None = None, offline: bool = False
) -> Engine:
    """An engine whose queue holds what `max_requests` requests can have in it at a time.

    Its memory is a share of what is free less the weights that may be loaded, `memory_bytes` or those of all models.
    """
    weights = sum(describe_folder(resolve_source(source, offline=offline)).weight_bytes for source in sources)
    free = available_bytes() - (weights if memory_bytes is None else min(weights, memory_bytes))
    return Engine(EngineOptions(max_waiting=PIECES_AHEAD * max_requests, memory_bytes=max(int(free * MEMORY_SHARE), 0)))
