"""A WebSocket session: text comes in as it is written, each sentence goes out as audio once it is complete."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import Field
from starlette.websockets import WebSocket, WebSocketDisconnect

from oscine.cancellation import cancelled_when
from oscine.errors import Cancelled, InvalidRequest, OscineError, QueueFull
from oscine.seeds import fresh_seed
from oscine.server.errors import INTERNAL_ERROR, NORMAL, POLICY, body_of
from oscine.server.gate import SLICE
from oscine.server.inbox import Inbox, parsed
from oscine.server.parsing import limits_of, validated
from oscine.server.schemas import SpeechSettings, check_unicode
from oscine.server.speaking import check_speech, reference_of, speech_maker
from oscine.server.state import ServerState
from oscine.server.stream import Delivery, Progress
from oscine.text.split import SentenceStream
from oscine.types import AudioInput

if TYPE_CHECKING:
    from oscine.stream import SpeechStream

_log = logging.getLogger(__name__)

MESSAGES = ("session.config", "input.text", "input.done", "session.close")
_STOP_S = 5.0


class SessionConfig(SpeechSettings):
    """Body of `session.config`: the fields of the speech endpoint, without those about the transport."""

    model: str | None = Field(default=None, description="id of a served model. Default: the default one")


class _Utterance:
    """Text from the first `input.text` to `input.done`, and what has become of it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.sentences = SentenceStream()
        self.num_chars = 0
        self.num_sentences = 0


class SpeechSession:
    """Reads messages and speaks, at the same time; sentences are spoken one after the other."""

    def __init__(self, state: ServerState, socket: WebSocket) -> None:
        self._state, self._socket = state, socket
        self._id = f"ws_{secrets.token_hex(8)}"
        self._config: SessionConfig | None = None
        self._utterance = _Utterance(0)
        self._reference: AudioInput | None = None  # that of the settings
        self._todo: deque[dict[str, Any]] = deque()
        self._waiting_chars = 0
        self._more = asyncio.Event()
        self._speaking = self._closing = False
        self._busy_until = time.monotonic()
        self._current: Delivery | None = None
        self._spoken: SpeechStream | None = None  # the last sentence, which may still be heard
        self._failure: Exception | None = None
        self._inbox = Inbox(socket)
        self._limits = replace(limits_of(SessionConfig, state.settings), names=None)  # they depend on the type
        self._in_line = False

    async def run(self) -> int:
        """Serves the session until either side ends it and returns the code to close it with.

        Whatever is being worked on then is cancelled.
        """
        with cancelled_when(lambda: self._inbox.left or self._closing):
            return await self._run()

    async def _run(self) -> int:
        reader, speaker = asyncio.create_task(self._read_all()), asyncio.create_task(self._speak_all())
        listener = asyncio.create_task(self._inbox.listen())
        try:
            done, _ = await asyncio.wait([reader, speaker, listener], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except WebSocketDisconnect:
            pass  # the usual end
        except TimeoutError:
            return await self._broken(InvalidRequest("the session was idle for too long"), POLICY)
        except Exception as error:
            self._failure = error
            _log.exception("session %s failed", self._id)
            return await self._broken(error, INTERNAL_ERROR)
        finally:
            await self._stop(reader, speaker, listener)
        return NORMAL

    async def _broken(self, error: Exception, code: int) -> int:
        with suppress(WebSocketDisconnect):  # then nobody is left to be told
            await self._say_error(error)
        return code

    async def _stop(
        self, reader: asyncio.Task[None], speaker: asyncio.Task[None], listener: asyncio.Task[None]
    ) -> None:
        """Ends all tasks. The speaker ends by itself, so that nothing it has begun in a thread is lost."""
        self._closing = True
        self._todo.clear()
        self._more.set()
        if self._current is not None:
            self._current.run.cancel()
        reader.cancel()
        listener.cancel()
        if self._in_line:
            speaker.cancel()
        await asyncio.wait([speaker], timeout=_STOP_S)  # longer only if it is sending to who does not read
        speaker.cancel()
        for failure in await asyncio.gather(reader, speaker, listener, return_exceptions=True):
            expected = isinstance(failure, asyncio.CancelledError | WebSocketDisconnect | TimeoutError)
            if isinstance(failure, BaseException) and not expected and failure is not self._failure:
                _log.error("session %s failed while it ended", self._id, exc_info=failure)

    async def _read_all(self) -> None:
        while await self._take(await self._inbox.next(self._idle_s)):
            pass

    # In

    def _idle_s(self) -> float:
        """How long the session may still have nothing to do; less before its client has said what it wants."""
        settings = self._state.settings
        limit = settings.websocket_idle_s
        if self._speaking or self._todo:
            return limit
        if self._config is None:
            limit = min(limit, settings.receive_timeout_s)
        return self._busy_until + limit - time.monotonic()

    async def _take(self, message: str | None) -> bool:
        """Handles one message; False once the session is to end."""
        self._busy_until = time.monotonic()
        try:
            body = await parsed(message, self._limits)
            kind = body.pop("type", None)
            if kind not in MESSAGES:
                raise InvalidRequest(
                    f"unknown message type {str(kind)[:60]!r}; known: {', '.join(MESSAGES)}", param="type"
                )
            if kind == "session.close":
                return False
            if kind == "session.config":
                await self._configure(body)
            elif self._config is None:
                raise InvalidRequest("the first message must be session.config", param="type")
            elif kind == "input.text":
                await self._add_text(body)
            else:
                await self._end_utterance(body)
        except OscineError as error:
            await self._say_error(error)
        return True

    async def _configure(self, body: dict[str, Any]) -> None:
        config = validated(body, SessionConfig)
        for name in ("stream", "stream_format"):
            if getattr(config, name) is not None:
                raise InvalidRequest(f"{name} has no meaning here: audio always comes as binary frames", param=name)
        model = self._state.models.resolve(config.model or self._state.models.default)
        seed = fresh_seed() if config.seed is None else config.seed
        config = config.model_copy(update={"model": model, "seed": seed})
        rate, self._reference = await self._state.in_thread(self._check, config)
        self._config = config.model_copy(update={"ref_audio": None})  # which has become the reference
        fields = {"model": model, "format": config.response_format, "sample_rate": rate, "seed": seed}
        await self._say({"type": "session.configured", **fields})

    def _check(self, config: SessionConfig) -> tuple[int, AudioInput | None]:
        """The rate of the audio to come, and the voice to clone. Raises what is wrong, before any text is there."""
        with self._state.models.use(config.model or "") as model:
            rate = config.target_rate(model.capabilities.sample_rate)
            reference = reference_of(config, self._state, model)
            check_speech(model, config, reference)
            return rate, reference

    async def _add_text(self, body: dict[str, Any]) -> None:
        text = body.pop("text", None)
        if not isinstance(text, str) or body:
            raise InvalidRequest('input.text has one field, "text", a string', param="text")
        utterance, limit = self._utterance, self._state.settings.max_input_chars
        if utterance.num_chars + len(text) > limit:
            raise InvalidRequest(f"an utterance has {limit} characters at most on this server", param="text")
        if self._waiting_chars + len(text) > limit:
            raise QueueFull(f"{self._waiting_chars} characters wait to be spoken; send more once some have been")
        check_unicode(text, "text")
        utterance.num_chars += len(text)
        self._queue(await self._state.in_thread(utterance.sentences.push, text))

    async def _end_utterance(self, body: dict[str, Any]) -> None:
        if body:
            raise InvalidRequest("input.done has no further fields", param=next(iter(body))[:60])
        if len(self._todo) > self._state.settings.max_input_chars:  # only empty utterances can be so many
            raise QueueFull(f"{len(self._todo)} events wait already; send more once some have been answered")
        self._queue(await self._state.in_thread(self._utterance.sentences.flush))
        self._put({"type": "session.done", "total_sentences": self._utterance.num_sentences})
        self._utterance = _Utterance(self._utterance.index + 1)

    def _queue(self, sentences: list[str]) -> None:
        for sentence in sentences:
            place = {"utterance_index": self._utterance.index, "sentence_index": self._utterance.num_sentences}
            self._utterance.num_sentences += 1
            self._waiting_chars += len(sentence)
            how = {"config": self._config, "reference": self._reference}
            self._put({"type": "audio.start", **place, "sentence_text": sentence} | how)

    def _put(self, task: dict[str, Any]) -> None:
        self._todo.append(task)
        self._more.set()

    # Out

    async def _speak_all(self) -> None:
        while not self._closing:
            await self._more.wait()
            self._more.clear()
            self._speaking = bool(self._todo)
            while self._todo:
                task = self._todo.popleft()
                config, reference = task.pop("config", None), task.pop("reference", None)
                if config is None:
                    await self._say(task)
                else:
                    self._waiting_chars -= len(task["sentence_text"])
                    await self._speak(task, config, reference)
            self._speaking, self._busy_until = False, time.monotonic()

    async def _speak(self, start: dict[str, Any], config: SessionConfig, reference: AudioInput | None) -> None:
        """One sentence: `audio.start`, its bytes, `audio.done`; or `error` if it cannot even begin."""
        delivery = Delivery(self._state, {"chars": len(start["sentence_text"]), "format": config.response_format})
        outcome = "failed"
        try:
            live = self._state.live(config.speed, self._spoken, patient=start["sentence_index"] > 0)
            make = speech_maker(start["sentence_text"], config, lambda model: reference, live)
            await self._admit(delivery)
            await delivery.start(config.model or "", make)
            self._current, self._spoken = delivery, delivery.run.stream
            if self._closing:
                raise Cancelled("the client has left")
            data = await self._next(delivery, start)
            rate = delivery.run.sample_rate
            await self._say({**start, "format": config.response_format, "sample_rate": rate})
            outcome = await self._send_audio(delivery, data, start)
        except OscineError as error:
            delivery.fail(error)
            outcome = "cancelled" if isinstance(error, Cancelled) else "invalid" if error.status < 500 else "failed"
            if self._closing:
                return
            await self._say_error(error, _place(start))
        except WebSocketDisconnect:
            outcome = "cancelled"
            raise
        finally:
            self._current = None
            delivery.close()
            self._report(outcome, delivery.facts)

    async def _admit(self, delivery: Delivery) -> None:
        """Waits until there is room for a request, which a sentence is while it is spoken; the session is none."""
        self._in_line = True
        try:
            while not self._closing:
                await self._state.room()
                with suppress(QueueFull):  # another was quicker
                    return delivery.admit()
        finally:
            self._in_line = False

    async def _next(self, delivery: Delivery, start: dict[str, Any]) -> bytes | None:
        """The next bytes of a sentence; while there are none, its progress is told."""
        while isinstance(data := await delivery.pull_or_progress(), Progress):
            await self._say({"type": "audio.progress", **_place(start), **data.fields()})
        return data

    async def _send_audio(self, delivery: Delivery, data: bytes | None, start: dict[str, Any]) -> str:
        """Sends what comes after `audio.start`; returns how it went."""
        total, failure = 0, None
        try:
            while data is not None:
                for begin in range(0, len(data), SLICE):
                    await self._socket.send_bytes(data[begin : begin + SLICE])
                total += len(data)
                data = await self._next(delivery, start)
        except OscineError as error:
            delivery.fail(error)
            if self._closing:
                return "cancelled"
            failure = error
        done: dict[str, Any] = {
            "type": "audio.done",
            **_place(start),
            "total_bytes": total,
            "finish_reason": None if failure else delivery.run.stream.finish_reason,
            "error": body_of(failure)["error"] if failure else None,
        }
        await self._say(done)
        return "failed" if failure else "ok"

    async def _say(self, body: dict[str, Any]) -> None:
        await self._socket.send_text(json.dumps(body))

    async def _say_error(self, error: Exception, place: dict[str, Any] | None = None) -> None:
        await self._say({"type": "error", **(place or {}), **body_of(error)})

    def _report(self, outcome: str, facts: dict[str, Any]) -> None:
        self._state.metrics.count("/v1/audio/speech/stream", outcome)
        words = {"id": self._id, "outcome": outcome} | facts
        _log.info("sentence %s", " ".join(f"{name}={value}" for name, value in words.items()))


def _place(start: dict[str, Any]) -> dict[str, Any]:
    """Which sentence of which utterance it is."""
    return {name: start[name] for name in ("utterance_index", "sentence_index")}
