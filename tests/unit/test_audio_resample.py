"""Resampling: a stream is the whole signal bit for bit, lengths are exact, tones survive, memory is bounded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio.resample import StreamResampler, resample, resampled_length

RATES = st.sampled_from([8000, 11025, 16000, 22050, 24000, 44100, 48000, 44099, 22257])


@settings(max_examples=60, deadline=None)
@given(RATES, RATES, st.integers(0, 3000), st.lists(st.integers(0, 700), max_size=8), st.integers(0, 99))
def test_stream_equals_whole(from_hz: int, to_hz: int, n: int, cuts: list[int], seed: int) -> None:
    audio = np.random.default_rng(seed).standard_normal(n).astype(np.float32)
    whole = resample(audio, from_hz, to_hz)
    stream = StreamResampler(from_hz, to_hz)
    pieces, position = [], 0
    for cut in [*cuts, n]:
        pieces.append(stream.push(audio[position : position + cut]))
        position += cut
    pieces.append(stream.finish())
    got = np.concatenate(pieces)
    assert got.dtype == np.float32
    assert len(whole) == resampled_length(n, from_hz, to_hz)
    np.testing.assert_array_equal(got, whole)


@pytest.mark.parametrize(("from_hz", "to_hz"), [(24000, 48000), (44100, 48000), (48000, 16000), (44100, 44099)])
def test_a_tone_stays_that_tone(from_hz: int, to_hz: int) -> None:
    def tone(rate: int) -> np.ndarray:
        return np.sin(2 * np.pi * 440 * np.arange(rate // 2) / rate).astype(np.float32)

    got, want = resample(tone(from_hz), from_hz, to_hz), tone(to_hz)
    middle = slice(200, min(len(got), len(want)) - 200)
    assert np.abs(got[middle] - want[middle]).max() < 3e-3


def test_stream_does_not_hold_back_more_than_its_reach() -> None:
    stream = StreamResampler(24000, 48000)
    assert len(stream.push(np.ones(2400, np.float32))) >= 4800 - 2 * 16


def test_the_future_never_changes_the_past() -> None:
    audio = np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    first, second = StreamResampler(44100, 48000), StreamResampler(44100, 48000)
    early = first.push(audio[:1000])
    np.testing.assert_array_equal(second.push(audio)[: len(early)], early)


def test_long_input_needs_little_memory_beyond_its_output() -> None:
    import tracemalloc

    audio = np.zeros(2_000_000, np.float32)
    tracemalloc.start()
    out = resample(audio, 44100, 48000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * (audio.nbytes + out.nbytes)


@pytest.mark.parametrize("rate", [0, -1, 44100.5, 10**9])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="sample rate"):
        resample(np.zeros(10, np.float32), rate, 16000)  # type: ignore[arg-type]


def test_only_mono_is_taken() -> None:
    with pytest.raises(ValueError, match="mono"):
        resample(np.zeros((2, 10), np.float32), 8000, 16000)


def test_a_finished_stream_refuses_more() -> None:
    stream = StreamResampler(8000, 16000)
    stream.finish()
    with pytest.raises(RuntimeError):
        stream.push(np.zeros(1, np.float32))
    with pytest.raises(RuntimeError):
        stream.finish()
