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

from oscine.cancellation import wait_for
from oscine.errors import EngineFailed, InvalidRequest, LoadFailed, NotReady, OscineError, UnknownModel
from oscine.types import Capabilities

if TYPE_CHECKING:
    from oscine.api import Model
    from oscine.engine.admission import PacingStats
    from oscine.engine.engine import Engine, EngineStats

_log = logging.getLogger(__name__)

ALIASES = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""Names that mean the default model, so that OpenAI's clients work unchanged."""
LOAD_WAIT_S = 3.0
"""Clients often give up after 5 to 30 s without a byte; told to come back in time, they do."""
RELOAD_S, LONGEST_RELOAD_S = 30.0, 600.0
"""How long a failed load is not tried again: at first, and at the most, since it is twice as long each time."""


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
        self.failure: OscineError | None = None
        self.num_failures = 0
        self.retry_at = 0.0

    @property
    def failed(self) -> bool:
        """Whether its last load has failed, and not so long ago that it is to be tried again."""
        return self.failure is not None and time.monotonic() < self.retry_at


class ModelRegistry:
    """Models by id; the first one is the default.

    `memory_bytes` bounds the weights loaded at a time: idle models make room, least recently used first. A model idle
    for `idle_s` is unloaded by `unload_idle`. Requests for a model that is being loaded wait `load_wait_s` at most. One
    that failed to load is tried again after `reload_s`, then after twice as long each time; until then whoever asks for
    it is told why. Raises InvalidRequest for no model at all, for two of one id, and for one that exceeds the budget
    alone.
    """

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        engine: Engine,
        *,
        memory_bytes: int | None = None,
        idle_s: float | None = None,
        load_wait_s: float = LOAD_WAIT_S,
        reload_s: float = RELOAD_S,
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
        self._memory_bytes, self._idle_s = memory_bytes, idle_s
        self._load_wait_s, self._reload_s = load_wait_s, reload_s
        self._changed = threading.Condition()
        self._loading: str | None = None
        self._loader: threading.Thread | None = None
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

    def failure(self, model_id: str) -> OscineError | None:
        """Why the last load of the model failed, if it did."""
        return self._slots[model_id].failure

    def retry_s(self, model_id: str) -> float:
        """Seconds until the model, whose load has failed, may be loaded again."""
        return max(self._slots[model_id].retry_at - time.monotonic(), 0.0)

    @property
    def engine_failure(self) -> EngineFailed | None:
        """What has ended the engine that all models share, if a fault has: the process has to be started again."""
        return self._engine.failure

    def pacing(self) -> PacingStats:
        """How those fare who listen to requests while they are made."""
        return self._engine.pacing()

    def forget_rates(self) -> None:
        """Has the engine measure anew how fast models are."""
        self._engine.forget_rates()

    def stats(self) -> EngineStats:
        """How full the engine that all models share is."""
        return self._engine.stats()

    @contextmanager
    def use(self, name: str, *, patient: bool = False) -> Iterator[Model]:
        """The model, loaded, and kept so until the block is left. `patient` waits for a load under way to its end.

        Raises UnknownModel; NotReady when it is still loading or no room is left; what loading raises (LoadFailed in
        the place of what is no OscineError); EngineFailed; and Cancelled (`check_cancelled`) while it waits.
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
        loader = self._loader
        if loader is not None:
            loader.join(timeout_s)  # a thread that torch runs in must not be cut off by the end of the process

    def _acquire(self, model_id: str, wait_s: float | None) -> Model:
        slot = self._slots[model_id]
        with self._changed:
            self._wait_for(lambda: slot.model or slot.failed or not self._loading, wait_s)
            self._check(slot)
            while slot.model is None:
                if self._loading is not None:
                    raise NotReady(f"{self._loading} is still loading; try again in a moment")
                self._make_room(slot.spec)
                loader = threading.Thread(target=self._load, args=(slot,), name="oscine-load", daemon=True)
                loader.start()
                self._loading, self._loader, slot.failure = model_id, loader, None
                self._wait_for(lambda: slot.model or slot.failure, None)
                self._check(slot, tried=True)
            slot.users += 1
            return slot.model

    def _wait_for(self, condition: Callable[[], object], wait_s: float | None) -> None:
        """Returns once `condition()` holds, `wait_s` have passed or the registry closes. Raises Cancelled."""
        wait_for(lambda timeout: self._changed.wait_for(lambda: self._closing or bool(condition()), timeout), wait_s)

    def _check(self, slot: _Slot, *, tried: bool = False) -> None:
        """Raises what keeps the model from being used, now and for a while; any failure if it has just been tried."""
        if self._engine.failure is not None:
            raise EngineFailed(self._engine.failure.message)
        if self._closing:
            raise NotReady("the server is shutting down")
        if slot.failure is not None and (tried or slot.failed):
            raise slot.failure.with_traceback(None)

    def _load(self, slot: _Slot) -> None:
        """Loads a model, in a thread of its own: it is ready for the next even if whoever asked for it has left."""
        started = time.perf_counter()
        model, failure = None, None
        try:
            model = slot.spec.load()
        except OscineError as error:
            failure = error
            _log.error("%s cannot be loaded: %s: %s", slot.spec.id, type(error).__name__, error.message)
        except BaseException as error:  # whatever it is, somebody waits for it
            failure = LoadFailed(
                f"loading {slot.spec.id} broke off: {type(error).__name__}; the server's log says more"
            )
            failure.__cause__ = error
            _log.critical("%s cannot be loaded", slot.spec.id, exc_info=error)
        with self._changed:
            slot.failure = failure
            if model is None:
                slot.retry_at = time.monotonic() + min(self._reload_s * 2**slot.num_failures, LONGEST_RELOAD_S)
                slot.num_failures += 1
            else:
                slot.model, slot.capabilities = model, model.capabilities
                slot.used, slot.num_failures = time.monotonic(), 0
                _log.info("loaded model=%s seconds=%.2f", slot.spec.id, time.perf_counter() - started)
            self._loading = None
            self._changed.notify_all()

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
