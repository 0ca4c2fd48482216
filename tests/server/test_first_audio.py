"""The first audio comes after as much work for a long text as for a short one, and long before the last."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from oscine.engine.engine import Engine, EngineOptions
from oscine.server.app import create_app
from oscine.server.models import ModelRegistry
from oscine.types import AudioChunk, Event, Job

from .conftest import SPEECH, body, make_registry, reference_wav, serving, wait_until

SENTENCE = "The first of many sentences is as long as all the others that follow it. "
TEXTS = (SENTENCE, SENTENCE * 3, SENTENCE * 300)
MODES: dict[str, dict[str, Any]] = {"raw": {}, "sse": {"stream_format": "sse"}}


class Steps:
    """Counts the model's steps, and how many there had been whenever a request's first audio was there."""

    def __init__(self, registry: ModelRegistry) -> None:
        self.taken, self.before_audio = 0, []
        with registry.use(registry.default) as model:
            stepper, engine = model._family.step_model(), model._engine
        step, submit = stepper.step, engine.submit

        def counted(jobs: Sequence[Job]) -> Any:
            self.taken += 1
            return step(jobs)

        def noting(sink: Callable[[Event], None], begun: int) -> Callable[[Event], None]:
            heard: list[bool] = []

            def note(event: Event) -> None:
                if isinstance(event, AudioChunk) and not heard:
                    heard.append(True)
                    self.before_audio.append(self.taken - begun)
                sink(event)

            return note

        def noted(family: Any, jobs: Sequence[Any], *, admitted: bool = False, **pace: Any) -> None:
            begun = self.taken
            first = [] if admitted else [(job, noting(sink, begun)) for job, sink in jobs[:1]]
            submit(family, [*first, *jobs[len(first) :]], admitted=admitted, **pace)

        stepper.step, engine.submit = counted, noted  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize("mode", MODES)
def test_first_audio_takes_as_many_steps_however_long_the_text(tmp_path: Path, mode: str) -> None:
    options = EngineOptions(memory_bytes=1 << 30, max_waiting=None, decode_in_background=False)
    registry = make_registry(tmp_path, engine=Engine(options))
    with serving(create_app(registry)) as url, httpx.Client(base_url=url, timeout=60) as client:
        steps = Steps(registry)
        voice = {"ref_audio": base64.b64encode(reference_wav()).decode(), "ref_text": "A tone."}
        for text in (SENTENCE, *TEXTS):  # once more, since the first request also makes the voice
            wait_until(lambda: not registry.stats().running)
            fields = body(input=text, max_new_tokens=100, response_format="pcm", **MODES[mode], **voice)
            with client.stream("POST", SPEECH, json=fields) as response:
                chunks = response.iter_raw()  # held: an iterator that is dropped closes the connection
                next(chunks)
                assert text != TEXTS[-1] or registry.stats().running, "everything came at the end"
    _, *counts = steps.before_audio
    assert len(counts) == len(TEXTS)
    assert len(set(counts)) == 1, counts
    assert 1 < counts[0] < 20
