"""Streams that share calls of the speech decoder: each is, bit for bit, what it is alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from oscine.families.audex.bench import SPEECH_DECODER
from oscine.families.audex.codec.speech_decoder import Chunk, SpeechDecoder, SpeechSession
from oscine.runtime.exact import MIN_MANY, fixed_rows
from oscine.types import Request
from tests.unit.audex_models import dense_family
from tests.unit.test_audex_neighbours import through_engine

GRIDS = ([5, 4, 5, 10, 25, 25], [9, 25, 25, 25], [1] * 9 + [40, 7], [30, 30, 3], [6, 2, 2, 50])
"""Frames of each push of five streams, so that few and many frames meet at different positions."""


@pytest.fixture(scope="module")
def decoder() -> SpeechDecoder:
    """Random weights, wide enough that products of different row counts take different kernels."""
    width = {"hidden_dim": 192, "vq_dim": 192, "heads": 6, "pos_meb_dim": 32, "depth": 2, "hop_length": 40}
    config = replace(SPEECH_DECODER, **width, codebook_levels=(4,) * 3, codebook_size=64, token_embed_dim=3)
    decoder = SpeechDecoder(config).eval()
    generator = torch.Generator().manual_seed(1)
    for value in decoder.parameters():
        spread = 0.3 if value.dim() == 1 else 1.5 * value[0].numel() ** -0.5
        value.requires_grad_(False).normal_(0, spread, generator=generator)
    decoder.measure_rules()
    return decoder


def ids_of(number: int, count: int) -> list[int]:
    return [(i * i + 7 * number + 3 * i) % 64 for i in range(count)]


@torch.inference_mode()
def alone(decoder: SpeechDecoder, number: int, grid: Sequence[int]) -> Tensor:
    session, at, made = SpeechSession(decoder), 0, []
    for size in grid:
        made += session.push(ids_of(number, sum(grid))[at : at + size])
        at += size
    return torch.cat(made + session.flush())


@torch.inference_mode()
def together(decoder: SpeechDecoder, grids: Sequence[Sequence[int]]) -> list[Tensor]:
    """The streams step by step; the chunks of a step in one call."""
    sessions = [SpeechSession(decoder) for _ in grids]
    made: list[list[Tensor]] = [[] for _ in grids]
    for step in range(max(map(len, grids))):
        taken = []
        for number, grid in enumerate(grids):
            start, size = sum(grid[:step]), grid[step] if step < len(grid) else 0
            taken.append(sessions[number].take(ids_of(number, sum(grid))[start : start + size]) if size else None)
        samples = iter(decoder.decode([chunk for chunk in taken if chunk is not None]))
        for number, chunk in enumerate(taken):
            made[number] += [next(samples)] if chunk is not None else []
    return [torch.cat([*parts, *session.flush()]) for parts, session in zip(made, sessions, strict=True)]


@pytest.mark.parametrize("copies", [1, 4])
def test_a_stream_is_what_it_is_alone(decoder: SpeechDecoder, copies: int) -> None:
    for number, samples in enumerate(together(decoder, GRIDS * copies)):
        expected = alone(decoder, number, GRIDS[number % len(GRIDS)])
        assert len(samples) == sum(GRIDS[number % len(GRIDS)]) * decoder.config.hop_length
        assert torch.equal(samples, expected), f"stream {number}: {(samples - expected).abs().max()}"


def test_the_same_under_rules_that_hold_anywhere(decoder: SpeechDecoder) -> None:
    measured = decoder.rules
    decoder.rules = fixed_rows(8, "a test"), fixed_rows(64, "a test")
    try:
        for number, samples in enumerate(together(decoder, GRIDS)):
            assert torch.equal(samples, alone(decoder, number, GRIDS[number]))
    finally:
        decoder.rules = measured


@torch.inference_mode()
def test_cutting_changes_rounding_only(decoder: SpeechDecoder) -> None:
    for number, grid in enumerate(GRIDS):
        whole = decoder(torch.tensor([ids_of(number, sum(grid))]))[0, 0]
        assert torch.allclose(alone(decoder, number, grid), whole, atol=2e-5)


def test_few_and_many_do_not_mix(decoder: SpeechDecoder) -> None:
    """A call has frames of one kind, and no more calls than kinds."""
    seen: list[list[int]] = []
    original = decoder.module.backbone.run

    def spy(x: Tensor, call: object) -> Tensor:
        seen.append([stretch.frames for stretch in call.stretches])  # type: ignore[attr-defined]
        return original(x, call)  # type: ignore[arg-type]

    decoder.module.backbone.run = spy  # type: ignore[method-assign, assignment]
    try:
        frames = [1, 25, MIN_MANY, MIN_MANY - 1, 4]
        chunks = [
            Chunk(ids=ids_of(n, count + 4), frames=count, lane=decoder.new_lane()) for n, count in enumerate(frames)
        ]
        with torch.inference_mode():
            made = decoder.decode(chunks)
    finally:
        del decoder.module.backbone.run
    assert seen == [[1, MIN_MANY - 1, 4], [25, MIN_MANY]]
    assert [len(samples) for samples in made] == [count * decoder.config.hop_length for count in frames]
    assert [chunk.lane.length for chunk in chunks] == frames


def test_requests_share_calls_in_the_engine(golden_root: Path) -> None:
    """Eight requests of one text and different seeds and lengths; their samples are those of each alone."""
    family = dense_family(golden_root)
    decoder = family._model.speech_decoder
    counts: list[int] = []
    original = decoder.decode

    def spy(chunks: Sequence[Chunk]) -> list[Tensor]:
        counts.append(len(chunks))
        return original(chunks)

    def jobs(numbers: Sequence[int]) -> list[object]:
        requests = [
            Request(text="Hello there.", seed=n, temperature=1.0, top_k=0, max_new_tokens=90 + n) for n in numbers
        ]
        return [family.prepare(request, f"j{n}").jobs[0] for n, request in zip(numbers, requests, strict=True)]

    decoder.decode = spy  # type: ignore[method-assign, assignment]
    try:
        samples = through_engine(family, jobs(range(8)))  # type: ignore[arg-type]
    finally:
        del decoder.decode
    assert max(counts) > 1
    for number in (0, 5):
        (expected,) = through_engine(family, jobs([number]))  # type: ignore[arg-type]
        assert np.array_equal(expected, samples[number])
