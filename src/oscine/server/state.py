"""What all routes of one app share: its settings, its models, its counters, and who may start."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.to_thread

from oscine.cancellation import check_cancelled
from oscine.engine.pacing import Live
from oscine.errors import GenerationError, InvalidRequest, QueueFull
from oscine.options import RequestOptions
from oscine.server.budget import ByteBudget
from oscine.server.metrics import Metrics
from oscine.server.models import ModelRegistry
from oscine.server.origins import OriginPolicy
from oscine.server.recordings import Recordings
from oscine.server.uploads import Uploads

if TYPE_CHECKING:
    from oscine.stream import SpeechStream

_log = logging.getLogger(__name__)

T = TypeVar("T")

_SPARE_THREADS = 8


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """How a server runs; sizes in bytes, times in seconds. Without `api_key` everybody may ask.

    A request beyond `max_requests` at a time is refused with 429. `max_body_bytes` bounds references too, since they
    come in the body. `host` is what the server listens on, `hosts` and `origins` are what `OriginPolicy` takes.
    """

    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    api_key: str | None = None
    max_requests: int = 64
    max_sessions: int = 128
    """WebSocket sessions at a time; one that is speaking counts as a request too."""
    max_held_bytes: int = 128 << 20
    """Of clients' messages that are being received or worked on, all together."""
    max_input_chars: int = 100_000
    max_body_bytes: int = 32 << 20
    max_audio_s: float = 1800.0
    """Of a recording to edit or to listen to; a voice's reference is bounded by what models can use."""
    audio_memory_bytes: int = 1 << 30
    """Of decoded recordings, of all requests together."""
    decode_timeout_s: float = 30.0
    """How long decoding one recording may take."""
    upload_wait_s: float = 5.0
    """How long a recording waits for a free decoder, and for memory."""
    max_batch_items: int = 32
    max_batch_texts: int = 4
    """How many times `max_input_chars` the texts of a batch may have together."""
    batch_parallel: int = 4
    websocket_idle_s: float = 300.0
    max_wait_s: float = 30.0
    """How long a request that is heard while it is made may wait for its turn; beyond that it is refused with 429."""
    receive_timeout_s: float = 20.0
    """How long a client may take to send a request, besides the time of a long body at `budget.SLOWEST`."""
    send_timeout_s: float = 60.0
    """How long a client may leave what it is sent unread; then its request is cancelled and its connection closed."""
    progress_s: float = 2.0
    """An event stream without audio for so long tells how far the request is."""
    url_hosts: tuple[str, ...] = ()
    """Hosts that recordings may be fetched from when a client sends a URL; `*` means any."""
    path_folders: tuple[Path, ...] = ()
    """Folders whose files a client may name instead of sending a recording."""


class ServerState:
    """Shared by the routes of one app; used on its event loop."""

    def __init__(self, models: ModelRegistry, settings: ServerSettings) -> None:
        self.models, self.settings = models, settings
        self.metrics = Metrics()
        self.recordings = Recordings(
            max_bytes=settings.max_body_bytes, hosts=settings.url_hosts, folders=settings.path_folders
        )
        self.uploads = Uploads(
            memory_bytes=settings.audio_memory_bytes,
            max_bytes=settings.max_body_bytes,
            timeout_s=settings.decode_timeout_s,
            wait_s=settings.upload_wait_s,
        )
        self.origins = OriginPolicy(settings.host, settings.hosts, settings.origins)
        self.held = ByteBudget(settings.max_held_bytes)
        self.active = self.num_sessions = 0
        self._vacant = asyncio.Event()
        self.ready = False
        self.warm_up_fault = ""
        self._threads = anyio.CapacityLimiter(settings.max_requests * settings.batch_parallel + _SPARE_THREADS)

    async def in_thread(self, work: Callable[..., T], *args: Any) -> T:
        """The result of blocking work, done beside the event loop. Raises Cancelled instead of beginning in vain."""
        return await anyio.to_thread.run_sync(partial(_run, work, *args), limiter=self._threads)

    @property
    def unready(self) -> str:
        """Why the default model cannot be used; empty if it can."""
        name, broken = self.models.default, self.models.engine_failure
        if broken is not None:
            return broken.message
        if self.ready:
            return ""
        failure = self.models.failure(name)
        if failure is not None:
            return f"{name} cannot be loaded: {failure.message}"
        return self.warm_up_fault or f"{name} is still loading"

    def warm_up(self) -> None:
        """Loads the default model and lets it say a word, so that the first request finds everything in place."""
        with self.models.use(self.models.default, patient=True) as model:
            if "speech" in model.capabilities.tasks:
                options = {"seed": 0, "max_new_tokens": 8, "num_steps": 1}  # as little as can be asked for
                fitting = {name: value for name, value in options.items() if name in model.capabilities.options}
                try:
                    model.generate("Hello.", **cast(RequestOptions, fitting))
                except GenerationError as error:  # a bad draw is no reason to serve nobody
                    _log.warning("warm-up: %s", error.message)
                self.models.forget_rates()  # nothing will be as slow again as what is done for the first time
        self.ready = True

    def check_room(self) -> None:
        """Raises QueueFull when as many requests are being served as may be."""
        if self.active >= self.settings.max_requests:
            wait = max(self.metrics.mean_request_s, self.models.pacing().wait_s)
            message = f"{self.active} requests are being served already; try again later"
            raise QueueFull(message, retry_after_s=math.ceil(wait))

    def live(self, speed: float | None, after: SpeechStream | None = None, *, patient: bool = False) -> Live:
        """That somebody listens to a request while it is made, or goes on listening `after` another.

        Unless `patient` they are refused once they would wait too long.
        """
        return Live(
            speed=speed or 1.0,
            max_wait_s=None if patient else self.settings.max_wait_s,
            audible_until=after.audible_until if after else -math.inf,
        )

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Counts one request being served. Raises QueueFull as `check_room`."""
        self.check_room()
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1
            self._vacant.set()

    async def room(self) -> None:
        """Returns once there is room for a request."""
        while self.active >= self.settings.max_requests:
            self._vacant.clear()
            await self._vacant.wait()

    @contextmanager
    def session(self) -> Iterator[None]:
        """Counts one WebSocket session. Raises QueueFull when there are as many as may be."""
        if self.num_sessions >= self.settings.max_sessions:
            raise QueueFull(f"{self.num_sessions} sessions are open already; try again later")
        self.num_sessions += 1
        try:
            yield
        finally:
            self.num_sessions -= 1

    def check_text(self, text: str, param: str = "input") -> None:
        """Raises InvalidRequest for a text beyond the limit; what else can be wrong with it the model says."""
        limit = self.settings.max_input_chars
        if len(text) > limit:
            raise InvalidRequest(f"{param} has {len(text)} characters; this server takes {limit} at most", param=param)


def _run(work: Callable[..., T], *args: Any) -> T:
    """Does the work; what would end a thread ends the request alone, not the event loop that waits for it."""
    check_cancelled()
    try:
        return work(*args)
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(f"{type(error).__name__} in a request's thread") from error
