"""Trimming: outer silence goes but for a little, what is heard stays to the bit, whatever the chunking."""

from __future__ import annotations

import numpy as np
import pytest

from oscine.audio.trim import SilenceTrimmer, trim_silence

RATE = 1000  # 50 and 150 ms are 50 and 150 samples
SPEECH = np.where(np.arange(400) % 200 < 120, 0.5, 0.0).astype(np.float32)  # with pauses inside


def padded(before: int, after: int) -> np.ndarray:
    hiss = np.random.default_rng(0).uniform(-0.001, 0.001, before + after).astype(np.float32)
    return np.concatenate([hiss[:before], SPEECH[:320], hiss[before:]])


@pytest.mark.parametrize(
    ("before", "after", "length"), [(300, 700, 50 + 320 + 150), (20, 100, 20 + 320 + 100), (0, 0, 320)]
)
def test_only_long_outer_silence_is_shortened(before: int, after: int, length: int) -> None:
    audio = padded(before, after)
    trimmed = trim_silence(audio, RATE)
    assert len(trimmed) == length
    kept = min(before, 50)
    np.testing.assert_array_equal(trimmed[kept : kept + 320], SPEECH[:320])
    if len(trimmed) == len(audio):
        np.testing.assert_array_equal(trimmed, audio)


@pytest.mark.parametrize("chunk", [1, 7, 64, 333, 5000])
def test_chunking_does_not_change_a_sample(chunk: int) -> None:
    audio = padded(310, 405)
    trimmer = SilenceTrimmer(RATE)
    parts = [trimmer.push(audio[i : i + chunk]) for i in range(0, len(audio), chunk)]
    np.testing.assert_array_equal(np.concatenate([*parts, trimmer.finish()]), trim_silence(audio, RATE))


def test_the_cut_end_fades_to_nothing() -> None:
    audio = np.concatenate([SPEECH[:120], np.full(600, 0.003, np.float32)])
    trimmed = trim_silence(audio, RATE)
    assert trimmed[-1] == 0
    assert trimmed[-10] == np.float32(0.003)


@pytest.mark.parametrize("length", [0, 10, 900])
def test_silence_alone_keeps_a_little(length: int) -> None:
    assert len(trim_silence(np.zeros(length, np.float32), RATE)) == min(length, 150)
