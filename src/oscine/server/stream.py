"""One request's audio on its way out: pulled from the engine in a thread, stretched, encoded, sent.

The event loop never waits for the engine, and a client that leaves ends its jobs within a step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oscine.audio.encode import open_encoder
from oscine.audio.formats import check_available, content_type
from oscine.audio.stretch import TimeStretcher
from oscine.errors import Cancelled
from oscine.server.incoming import Incoming
from oscine.server.metrics import Playback
from oscine.server.schemas import OutputSettings
from oscine.server.state import ServerState
from oscine.server.waiting import Pulled

if TYPE_CHECKING:
    from oscine.api import Model
    from oscine.stream import SpeechStream


@dataclass(frozen=True, kw_only=True)
class Part:
    """Encoded bytes, never empty, and the seconds of audio that went into them."""

    data: bytes
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a request is: the share of it that is done, 0 to 1, and the seconds of audio it has given."""

    share: float
    audio_s: float

    def fields(self) -> dict[str, float]:
        """As clients are told."""
        return {"progress": round(self.share, 4), "audio_s": round(self.audio_s, 3)}


class AudioRun:
    """Audio being made. `pull` by one thread at a time, `cancel` by any.

    `start` gives the stream and may refuse the request; `output` is checked before it is called. With `whole`,
    `pull_all` gives a file that states its lengths.
    """

    def __init__(
        self,
        model: Model,
        start: Callable[[], SpeechStream],
        output: OutputSettings,
        *,
        speed: float = 1.0,
        whole: bool = False,
    ) -> None:
        rate = model.capabilities.sample_rate
        target = output.target_rate(rate)
        self._stretcher = TimeStretcher(rate, speed)
        check_available(output.response_format)
        self.stream = start()
        try:
            self._encoder = open_encoder(
                output.response_format, rate, target_rate=target, seekable=whole, seed=self.stream.seed
            )
        except BaseException:
            self.stream.cancel()
            raise
        self.sample_rate = self._encoder.sample_rate
        self.content_type = content_type(output.response_format, self.sample_rate)
        self._finished = False

    def pull(self) -> Part | None:
        """The next bytes, None after the last. Raises Cancelled, and what generation raises."""
        num_samples = 0
        while not self._finished:
            chunk = next(self.stream, None)
            if chunk is None:
                if self.stream.finish_reason == "cancelled":
                    raise Cancelled("the client has left")
                samples = self._stretcher.finish()
                data = self._encoder.push(samples) + self._encoder.finish()
                self._finished = True
            else:
                samples = self._stretcher.push(chunk.samples)
                data = self._encoder.push(samples)
            num_samples += len(samples)
            if data:
                return Part(data=data, seconds=num_samples / self.stream.sample_rate)
        return None

    def pull_all(self) -> tuple[bytes, float]:
        """The whole body, its header with the lengths that it could not know before, and its seconds of audio."""
        parts = list(iter(self.pull, None))
        body = bytearray().join(part.data for part in parts)
        for offset, piece in self._encoder.patches:
            body[offset : offset + len(piece)] = piece
        return bytes(body), sum(part.seconds for part in parts)

    def cancel(self) -> None:
        """Ends generation within a step. Idempotent."""
        self.stream.cancel()


class Delivery:
    """A run as the event loop sees it: admitted, watched, measured. Close it, whatever happens.

    `facts` collects what the log line of the request says.
    """

    def __init__(self, state: ServerState, facts: dict[str, Any]) -> None:
        self._state, self.facts = state, facts
        self._open = ExitStack()
        self._playback = Playback()
        self._started = time.perf_counter()
        self._ttfa_s: float | None = None
        self._audio_s = 0.0
        self._num_frames = 0
        self.run: AudioRun
        self._parts: Pulled[Part | None]

    def admit(self) -> None:
        """Counts as one of the requests being served until closed. Raises QueueFull."""
        self._open.enter_context(self._state.admit())

    async def start(self, model_name: str, make: Callable[[Model], AudioRun]) -> None:
        """Loads the model if need be and starts what `make` makes of it. Raises what can be refused."""
        model_id = self._state.models.resolve(model_name)
        self.facts["model"] = model_id
        model = await self._state.in_thread(self._open.enter_context, self._state.models.use(model_id))
        self.run = await self._state.in_thread(make, model)
        self._open.callback(self.run.cancel)
        self._parts = Pulled(self._state, self.run.pull)
        self._open.callback(self._parts.close)
        self.facts["seed"] = self.run.stream.seed

    def watch(self, incoming: Incoming) -> None:
        """Cancels the run when the client leaves, or at once if it has."""
        self._open.enter_context(incoming.calling(self.run.cancel))

    @property
    def progress(self) -> Progress:
        """How far the run is now."""
        return Progress(share=self.run.stream.progress, audio_s=self._audio_s)

    async def begin(self, *, patient: bool) -> None:
        """Returns once the first bytes are there, which stay for `pull`, and raises what came in their place.

        Unless `patient` also once there is progress to tell, after which a failure can no longer be a refusal.
        """
        if patient:
            await self._parts.arrives()
        else:
            await self._parts.arrives_in_time()

    async def pull(self) -> bytes | None:
        """The next bytes, None after the last."""
        part = await self._parts.take()
        if part is None:
            self._succeed(streamed=True)
            return None
        self._heard(part.seconds)
        return part.data

    async def pull_or_progress(self) -> bytes | Progress | None:
        """As `pull`, but when nothing comes for `progress_s`, how far the run is."""
        ready = await self._parts.arrives_in_time()
        self._parts.told()
        return await self.pull() if ready else self.progress

    async def pull_whole(self) -> bytes:
        """The whole body, its header with the exact lengths."""
        data, seconds = await self._state.in_thread(self.run.pull_all)
        self._heard(seconds)
        self._succeed(streamed=False)
        return data

    def refuse(self, error: BaseException) -> None:
        """Notes for the log why there is no audio; the status of the response says how to count it."""
        if isinstance(error, asyncio.CancelledError):
            self.facts["outcome"] = "cancelled"  # there will be no response
        self.facts["error"] = type(error).__name__

    def fail(self, error: BaseException) -> None:
        """Notes for the log how the run ended once its response had begun."""
        self.facts["outcome"] = "cancelled" if isinstance(error, (Cancelled, asyncio.CancelledError)) else "failed"
        self.facts["error"] = type(error).__name__

    def close(self) -> None:
        """Cancels what still runs and lets the model go. Idempotent."""
        self._open.close()

    def _count_frames(self) -> None:
        num_frames = self.run.stream.num_frames
        self._state.metrics.made(num_frames - self._num_frames)
        self._num_frames = num_frames

    def _heard(self, seconds: float) -> None:
        self._count_frames()
        now = time.perf_counter()
        if self._ttfa_s is None:
            self._ttfa_s = now - self._started
        self._audio_s += seconds
        self._playback.arrive(now, seconds)

    def _succeed(self, *, streamed: bool) -> None:
        self._count_frames()
        stream = self.run.stream
        total = time.perf_counter() - self._started
        ttfa = total if self._ttfa_s is None else self._ttfa_s
        self.facts |= {
            "audio_s": round(self._audio_s, 3),
            "ttfa_ms": round(1000 * ttfa),
            "rtf": round(total / self._audio_s, 4) if self._audio_s else None,
            "finish_reason": stream.finish_reason,
        }
        self._state.metrics.spoke(
            ttfa_s=ttfa,
            total_s=total,
            audio_s=self._audio_s,
            underrun_s=self._playback.underrun_s if streamed else None,
            usage=stream.usage,
        )
