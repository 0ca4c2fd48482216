"""A WebSocket session: text comes in as it is written, each sentence goes out as audio once it is complete."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import deque
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import Field
from starlette.websockets import WebSocket, WebSocketDisconnect

from oscine.errors import Cancelled, InvalidRequest, OscineError
from oscine.seeds import fresh_seed
from oscine.server import forms
from oscine.server.errors import body_of, describe_invalid
from oscine.server.schemas import SpeechSettings
from oscine.server.speaking import check_speech, speech_maker
from oscine.server.state import ServerState
from oscine.server.stream import Delivery
from oscine.text.split import SentenceStream

_log = logging.getLogger(__name__)


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
        self._todo: deque[dict[str, Any]] = deque()
        self._more = asyncio.Event()
        self._current: Delivery | None = None

    async def run(self) -> None:
        """Serves the session until either side ends it; whatever is being spoken then is cancelled."""
        tasks = [asyncio.create_task(self._read_all()), asyncio.create_task(self._speak_all())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except WebSocketDisconnect:
            pass  # the usual end
        except TimeoutError:
            await self._say_error(InvalidRequest("the session was idle for too long"))
        finally:
            if self._current is not None:
                self._current.run.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_all(self) -> None:
        while await self._take():
            pass

    # In

    async def _take(self) -> bool:
        """Handles one message; False once the session is to end."""
        message = await asyncio.wait_for(self._socket.receive_text(), self._idle_limit())
        try:
            body = _parsed(message)
            kind = body.pop("type", None)
            if kind == "session.close":
                return False
            if kind == "session.config":
                await self._configure(body)
            elif self._config is None:
                raise InvalidRequest("the first message must be session.config", param="type")
            elif kind == "input.text":
                self._add_text(body)
            elif kind == "input.done":
                self._end_utterance()
            else:
                raise InvalidRequest(
                    f"unknown message type {kind!r}; known: session.config, input.text, input.done, session.close",
                    param="type",
                )
        except OscineError as error:
            await self._say_error(error)
        return True

    def _idle_limit(self) -> float | None:
        """Seconds to wait for a message: no limit while there is something to say."""
        return None if self._todo or self._current else self._state.settings.websocket_idle_s

    async def _configure(self, body: dict[str, Any]) -> None:
        try:
            config = forms.validated(body, SessionConfig)
        except RequestValidationError as error:
            message, param = describe_invalid(error)
            raise InvalidRequest(message, param=param) from error
        for name in ("stream", "stream_format"):
            if getattr(config, name) is not None:
                raise InvalidRequest(f"{name} has no meaning here: audio always comes as binary frames", param=name)
        model = self._state.models.resolve(config.model or self._state.models.default)
        seed = fresh_seed() if config.seed is None else config.seed
        config = config.model_copy(update={"model": model, "seed": seed})
        rate = await self._state.in_thread(self._check, config)
        self._config = config
        fields = {"model": model, "format": config.response_format, "sample_rate": rate, "seed": seed}
        await self._say({"type": "session.configured", **fields})

    def _check(self, config: SessionConfig) -> int:
        """The rate of the audio to come. Raises what is wrong with the settings, before any text is there."""
        with self._state.models.use(config.model or "") as model:
            check_speech(model, config)
            return config.target_rate(model.capabilities.sample_rate)

    def _add_text(self, body: dict[str, Any]) -> None:
        text = body.pop("text", None)
        if not isinstance(text, str) or body:
            raise InvalidRequest('input.text has one field, "text", a string', param="text")
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise InvalidRequest("text holds half of a surrogate pair", param="text")
        utterance, limit = self._utterance, self._state.settings.max_input_chars
        if utterance.num_chars + len(text) > limit:
            raise InvalidRequest(f"an utterance has {limit} characters at most on this server", param="text")
        utterance.num_chars += len(text)
        self._queue(utterance.sentences.push(text))

    def _end_utterance(self) -> None:
        self._queue(self._utterance.sentences.flush())
        self._put({"type": "session.done", "total_sentences": self._utterance.num_sentences})
        self._utterance = _Utterance(self._utterance.index + 1)

    def _queue(self, sentences: list[str]) -> None:
        for sentence in sentences:
            place = {"utterance_index": self._utterance.index, "sentence_index": self._utterance.num_sentences}
            self._utterance.num_sentences += 1
            self._put({"type": "audio.start", **place, "sentence_text": sentence, "config": self._config})

    def _put(self, task: dict[str, Any]) -> None:
        self._todo.append(task)
        self._more.set()

    # Out

    async def _speak_all(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            while self._todo:
                task = self._todo.popleft()
                config = task.pop("config", None)
                if config is None:
                    await self._say(task)
                else:
                    await self._speak(task, config)

    async def _speak(self, start: dict[str, Any], config: SessionConfig) -> None:
        """One sentence: `audio.start`, its bytes, `audio.done`; or `error` if it cannot even begin."""
        delivery = Delivery(self._state, {"chars": len(start["sentence_text"]), "format": config.response_format})
        outcome = "ok"
        try:
            await delivery.start(config.model or "", speech_maker(start["sentence_text"], config, whole=False))
            self._current = delivery
            data = await delivery.pull()
            rate = delivery.run.sample_rate
            await self._say({**start, "format": config.response_format, "sample_rate": rate})
            outcome = await self._send_audio(delivery, data, start)
        except OscineError as error:
            delivery.fail(error)
            outcome = "cancelled" if isinstance(error, Cancelled) else "invalid" if error.status < 500 else "failed"
            await self._say_error(error, {name: start[name] for name in ("utterance_index", "sentence_index")})
        finally:
            self._current = None
            delivery.close()
            self._report(outcome, delivery.facts)

    async def _send_audio(self, delivery: Delivery, data: bytes | None, start: dict[str, Any]) -> str:
        """Sends what comes after `audio.start`; returns how it went."""
        total, failure = 0, None
        try:
            while data is not None:
                await self._socket.send_bytes(data)
                total += len(data)
                data = await delivery.pull()
        except OscineError as error:
            delivery.fail(error)
            failure = error
        done: dict[str, Any] = {
            "type": "audio.done",
            "utterance_index": start["utterance_index"],
            "sentence_index": start["sentence_index"],
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


def _parsed(message: str) -> dict[str, Any]:
    try:
        body = json.loads(message)
    except ValueError as error:
        raise InvalidRequest(f"a message must be a JSON object: {error}") from error
    if not isinstance(body, dict):
        raise InvalidRequest("a message must be a JSON object")
    return body
