"""One stream's fault in a joint call of the speech decoder: that job alone fails, the others sound as if alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from oscine.engine.engine import Engine
from oscine.errors import NonFiniteOutput
from oscine.families.audex.codec.speech_decoder import Chunk, SpeechDecoder
from oscine.families.audex.decoder import SpeechStreamDecoder
from oscine.families.audex.family import AudexFamily
from oscine.runtime.cache import Lane
from oscine.types import Done, Failed, Job, Request, Samples
from tests.unit.audex_models import dense_family
from tests.unit.test_audex_neighbours import Listener, through_engine

FAILING = 1
COUNT = 4


@pytest.fixture(scope="module")
def loaded(golden_root: Path) -> AudexFamily:
    return dense_family(golden_root)


@pytest.fixture
def family(loaded: AudexFamily) -> Iterator[AudexFamily]:
    """The miniature, freed of what a test has put in its decoder's place."""
    yield loaded
    loaded._model.speech_decoder.__dict__.pop("decode", None)
    loaded._model.speech_decoder.__dict__.pop("new_lane", None)


def jobs_of(family: AudexFamily, numbers: Sequence[int]) -> list[Job]:
    """Jobs in step with each other, each of more than the frames that its decoder's first calls take."""
    requests = [Request(text="Hello there.", seed=n, temperature=1.0, top_k=0, max_new_tokens=120) for n in numbers]
    return [family.prepare(request, f"j{n}").jobs[0] for n, request in zip(numbers, requests, strict=True)]


def outcomes_of(family: AudexFamily) -> list[Listener]:
    engine = Engine()
    try:
        listeners = [Listener() for _ in range(COUNT)]
        engine.submit(family, list(zip(jobs_of(family, range(COUNT)), listeners, strict=True)))
        assert all(listener.ended.wait(60) for listener in listeners)
        return listeners
    finally:
        engine.close()


def alone(family: AudexFamily) -> dict[int, Samples]:
    return {n: through_engine(family, jobs_of(family, [n]))[0] for n in range(COUNT) if n != FAILING}


class Caches:
    """Notes the cache of each stream in the order they are opened."""

    def __init__(self, decoder: SpeechDecoder) -> None:
        self.made: list[Lane] = []
        self.caught = False
        """Whether the failing stream has been seen in company."""
        original = decoder.new_lane

        def spy() -> Lane:
            self.made.append(original())
            return self.made[-1]

        decoder.new_lane = spy  # type: ignore[method-assign]

    def failing(self, chunks: Sequence[Chunk]) -> Chunk | None:
        """The failing stream's chunk among these, from its first call with others on."""
        chunk = next((c for c in chunks if c.lane is self.made[FAILING]), None)
        self.caught |= chunk is not None and len(chunks) > 1
        return chunk if self.caught else None


Decode = Callable[[Sequence[Chunk]], list[Tensor]]


def install(decoder: SpeechDecoder, replace: Callable[[Decode, Caches, Sequence[Chunk]], list[Tensor]]) -> Caches:
    """Puts `replace` in the place of `decode`."""
    caches, original = Caches(decoder), decoder.decode
    decoder.decode = lambda chunks: replace(original, caches, chunks)  # type: ignore[method-assign]
    return caches


def check(family: AudexFamily, expected: dict[int, Samples], error: type[Exception], match: str) -> None:
    listeners = outcomes_of(family)
    failed = listeners[FAILING].outcome
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, error)
    assert match in str(failed.error)
    for number, samples in expected.items():
        assert isinstance(listeners[number].outcome, Done)
        assert np.array_equal(listeners[number].audio(), samples)


def test_a_call_that_raises_fails_the_failing_job_alone(family: AudexFamily) -> None:
    """The call breaks after it has moved the other streams on; they are decoded again by themselves."""
    expected = alone(family)

    def broken(decode: Decode, caches: Caches, chunks: Sequence[Chunk]) -> list[Tensor]:
        failing = caches.failing(chunks)
        if failing is None:
            return decode(chunks)
        if rest := [chunk for chunk in chunks if chunk is not failing]:
            decode(rest)
        raise RuntimeError("these frames are broken")

    caches = install(family._model.speech_decoder, broken)
    check(family, expected, RuntimeError, "frames are broken")
    assert caches.caught


def test_samples_that_are_no_numbers_fail_their_job_alone(family: AudexFamily) -> None:
    """NaN in one stream's keys and values reaches its own samples and no other's."""
    expected = alone(family)

    def poisoned(decode: Decode, caches: Caches, chunks: Sequence[Chunk]) -> list[Tensor]:
        if (failing := caches.failing(chunks)) is not None:
            for layer in failing.lane._cache.layers:
                layer.fill_(torch.nan)
        return decode(chunks)

    caches = install(family._model.speech_decoder, poisoned)
    check(family, expected, NonFiniteOutput, "NaN")
    assert caches.caught


def test_a_bad_token_leaves_every_stream_where_it_was(family: AudexFamily) -> None:
    model = family._model.speech_decoder
    runs = [[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5], [8, 9, 7, 9, 3, 2]]
    together, single = ([SpeechStreamDecoder(model) for _ in runs] for _ in range(2))
    for decoder, run in zip(together, runs, strict=True):
        decoder.push(run)
    bad = [7, model.config.codebook_size]
    pushes = list(zip(together, [[1, 2, 3], bad, [4]], strict=True))
    with pytest.raises(ValueError, match="speech tokens must be in"):
        SpeechStreamDecoder.push_all(pushes)
    with pytest.raises(ValueError, match="speech tokens must be in"):
        together[1].push(bad)
    made = SpeechStreamDecoder.push_all([(together[0], [1, 2, 3]), (together[1], [2, 2]), (together[2], [4])])
    for decoder, run, more, samples in zip(single, runs, [[1, 2, 3], [2, 2], [4]], made, strict=True):
        decoder.push(run)
        assert np.array_equal(decoder.push(more), samples)
        assert len(samples)
