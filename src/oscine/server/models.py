"""The models a server offers: loaded when first asked for, unloaded when idle, within a budget of memory.

Everything here may be called from any thread; nothing is awaited, so callers keep it off an event loop.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oscine.errors import InvalidRequest, NotReady, UnknownModel
from oscine.types import Capabilities

if TYPE_CHECKING:
    from oscine.api import Model
    from oscine.engine.engine import Engine, EngineStats

_log = logging.getLogger(__name__)

ALIASES = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""Names that mean the default model, so that OpenAI's clients work unchanged."""
LOAD_WAIT_S = 3.0
"""Clients often give up after 5 to 30 s without a byte; told to come back in time, they do."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model that can be served; `num_bytes` is what its weights take in memory."""

    id: str
    load: Callable[[], Model]
    num_bytes: int


class _Slot:
    """A spec and, while it is loaded, its model. Guarded by the registry's condition."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.model: Model | None = None
        self.capabilities: Capabilities | None = None
        self.users = 0
        self.used = time.monotonic()


class ModelRegistry:
    """Models by id; the first one is the default.

    `memory_bytes` bounds the weights loaded at a time: idle models make room, least recently used first. A model idle
    for `idle_s` is unloaded by `unload_idle`. Requests for a model that is being loaded wait `load_wait_s` at most.
    Raises InvalidRequest for no model at all, for two of one id, and for one that exceeds the budget alone.
    """

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        engine: Engine,
        *,
        memory_bytes: int | None = None,
        idle_s: float | None = None,
        load_wait_s: float = LOAD_WAIT_S,
    ) -> None:
        if not specs:
            raise InvalidRequest("give at least one model to serve", param="model")
        self._slots = {spec.id: _Slot(spec) for spec in specs}
        if len(self._slots) < len(specs):
            raise InvalidRequest(f"two of the models have one name: {[spec.id for spec in specs]}", param="model")
        for spec in specs:
            if memory_bytes is not None and spec.num_bytes > memory_bytes:
                raise InvalidRequest(
                    f"{spec.id} needs {spec.num_bytes >> 20} MiB for its weights; the budget for models is "
                    f"{memory_bytes >> 20} MiB",
                    param="model_memory",
                )
        self.default = specs[0].id
        self._engine = engine
        self._memory_bytes, self._idle_s, self._load_wait_s = memory_bytes, idle_s, load_wait_s
        self._changed = threading.Condition()
        self._loading: str | None = None
        self._closing = False

    @property
    def ids(self) -> tuple[str, ...]:
        """All models, the default first."""
        return tuple(self._slots)

    @property
    def idle_s(self) -> float | None:
        """After how long without a request a model is unloaded."""
        return self._idle_s

    def resolve(self, name: str) -> str:
        """The id that `name` means. Raises UnknownModel; nothing is ever looked up elsewhere."""
        if name in self._slots:
            return name
        if name in ALIASES:
            return self.default
        raise UnknownModel(f"no model {name!r} is served here; served: {', '.join(self._slots)}", param="model")

    def is_loaded(self, model_id: str) -> bool:
        """Whether the model is in memory."""
        return self._slots[model_id].model is not None

    def capabilities(self, model_id: str) -> Capabilities | None:
        """What the model can do, once it has been loaded; None before."""
        return self._slots[model_id].capabilities

    def stats(self) -> EngineStats:
        """How full the engine that all models share is."""
        return self._engine.stats()

    @contextmanager
    def use(self, name: str, *, patient: bool = False) -> Iterator[Model]:
        """The model, loaded, and kept so until the block is left. `patient` waits for a load under way to its end.

        Raises UnknownModel; NotReady when it is still loading or no room can be made; and what loading raises.
        """
        model_id = self.resolve(name)
        model = self._acquire(model_id, None if patient else self._load_wait_s)
        try:
            yield model
        finally:
            self._release(model_id)

    def unload_idle(self) -> None:
        """Unloads the models that nobody has used for `idle_s`."""
        if self._idle_s is None:
            return
        with self._changed:
            limit = time.monotonic() - self._idle_s
            idle = [slot for slot in self._slots.values() if slot.model and not slot.users and slot.used < limit]
            for slot in idle:
                self._unload(slot)
        if idle:
            gc.collect()

    def close(self, *, drain: bool = False, timeout_s: float | None = None) -> None:
        """Refuses new requests and stops the engine, with `drain` after what runs has ended. Idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._engine.close(drain=drain, timeout_s=timeout_s)

    def _acquire(self, model_id: str, wait_s: float | None) -> Model:
        slot = self._slots[model_id]
        with self._changed:
            self._changed.wait_for(lambda: self._closing or slot.model or not self._loading, wait_s)
            if self._closing:
                raise NotReady("the server is shutting down")
            if slot.model is not None:
                slot.users += 1
                return slot.model
            if self._loading is not None:
                raise NotReady(f"{self._loading} is still loading; try again in a moment")
            self._make_room(slot.spec)
            self._loading = model_id
        return self._load(slot)

    def _load(self, slot: _Slot) -> Model:
        started = time.perf_counter()
        try:
            model = slot.spec.load()
        except BaseException:
            with self._changed:
                self._loading = None
                self._changed.notify_all()
            raise
        with self._changed:
            slot.model, slot.capabilities = model, model.capabilities
            slot.users += 1
            self._loading = None
            self._changed.notify_all()
        _log.info("loaded model=%s seconds=%.2f", slot.spec.id, time.perf_counter() - started)
        return model

    def _release(self, model_id: str) -> None:
        with self._changed:
            slot = self._slots[model_id]
            slot.users -= 1
            slot.used = time.monotonic()
            self._changed.notify_all()

    def _make_room(self, spec: ModelSpec) -> None:
        """Unloads idle models until `spec` fits. The caller holds the condition."""
        if self._memory_bytes is None:
            return
        loaded = [slot for slot in self._slots.values() if slot.model]
        excess = sum(slot.spec.num_bytes for slot in loaded) + spec.num_bytes - self._memory_bytes
        for slot in sorted((slot for slot in loaded if not slot.users), key=lambda slot: slot.used):
            if excess <= 0:
                break
            self._unload(slot)
            excess -= slot.spec.num_bytes
        if excess > 0:
            raise NotReady(f"no memory for {spec.id} while other models are busy; try again in a moment")

    def _unload(self, slot: _Slot) -> None:
        assert slot.model is not None
        slot.model.close()
        slot.model = None
        _log.info("unloaded model=%s", slot.spec.id)
