"""Tempo changes: length, pitch, and the same bits however the stream is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio.stretch import TimeStretcher
from oscine.errors import NonFiniteOutput

RATE = 16000


def voice(num_samples: int, pitch_hz: float = 140.0) -> np.ndarray:
    """A buzz with formant-like harmonics and a slow envelope, float32 [sample]."""
    time = np.arange(num_samples) / RATE
    tone = sum(np.sin(2 * np.pi * pitch_hz * k * time + k) / k for k in range(1, 8))
    return (0.3 * tone * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * time))).astype(np.float32)


def stretched(samples: np.ndarray, speed: float, cuts: list[int] | None = None) -> np.ndarray:
    stretcher = TimeStretcher(RATE, speed)
    parts = np.split(samples, sorted(cuts or []))
    return np.concatenate([*(stretcher.push(part) for part in parts), stretcher.finish()])


@given(
    st.sampled_from([0.25, 0.5, 0.83, 1.0, 1.25, 2.0, 4.0]),
    st.integers(0, 4000),
    st.lists(st.integers(0, 4000), max_size=8),
)
@settings(max_examples=20, deadline=None)
def test_any_cut_gives_the_same_bits_and_the_exact_length(speed: float, length: int, cuts: list[int]) -> None:
    samples = voice(length)
    whole = stretched(samples, speed)
    assert len(whole) == round(length / speed)
    np.testing.assert_array_equal(stretched(samples, speed, [min(cut, length) for cut in cuts]), whole)


@pytest.mark.parametrize("speed", [0.5, 0.8, 1.5, 2.0])
def test_pitch_and_loudness_stay(speed: float) -> None:
    samples = voice(RATE)
    out = stretched(samples, speed)[2000:-2000]
    spectrum = np.abs(np.fft.rfft(out * np.hanning(len(out)), 1 << 17))
    low = spectrum[: 300 * (1 << 17) // RATE]
    assert abs(np.argmax(low) * RATE / (1 << 17) - 140.0) < 4.0
    assert np.sqrt(np.mean(out**2)) == pytest.approx(np.sqrt(np.mean(samples**2)), rel=0.1)
    assert np.abs(np.diff(out)).max() < 1.5 * np.abs(np.diff(samples)).max()  # no clicks at the seams


def test_speed_one_changes_nothing_and_silence_stays_silent() -> None:
    samples = voice(5000)
    np.testing.assert_array_equal(stretched(samples, 1.0, [700]), samples)
    assert not stretched(np.zeros(5000, np.float32), 1.7).any()


def test_what_cannot_be_stretched_is_refused() -> None:
    with pytest.raises(ValueError, match=r"between 0\.25 and 4"):
        TimeStretcher(RATE, 5.0)
    with pytest.raises(NonFiniteOutput):
        TimeStretcher(RATE, 2.0).push(np.array([0.0, np.nan], np.float32))
