"""The loop and silence detector on code sequences."""

from __future__ import annotations

import random

import pytest

from oscine.engine.guard import CodeGuard
from oscine.types import Guard

LIMITS = Guard(suspect_frames=10, fail_frames=40, max_period=20)


def first(codes: list[int], *verdicts: str) -> int | None:
    """Index of the first code judged as one of `verdicts`."""
    guard = CodeGuard(LIMITS)
    for index, code in enumerate(codes):
        if guard.observe(code) in verdicts:
            return index
    return None


def speech(length: int, seed: int = 1) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1000) for _ in range(length)]


@pytest.mark.parametrize("period", [2, 3, 7, 13])
def test_a_loop_is_suspected_early_and_failed_at_the_limit(period: int) -> None:
    codes = speech(30) + speech(period, seed=2) * 40
    guard = CodeGuard(LIMITS)
    verdicts = [guard.observe(code) for code in codes]
    kind = "silence" if period == 2 else "loop"  # two codes in turn are what room tone looks like
    assert verdicts.index(kind) == 30 + 40 - 1
    assert verdicts.index("suspect") <= 30 + max(LIMITS.suspect_frames, 3 * period)


def test_one_constant_code_and_a_flicker_of_two_are_silence() -> None:
    assert first(speech(20) + [5] * 60, "silence") == 58  # the code before it counts as the second of two
    assert first(speech(20) + [5, 5, 5, 9, 5, 5] * 10, "silence") == 59


def test_a_natural_pause_and_a_phrase_said_twice_are_not_failed() -> None:
    phrase = speech(18, seed=3)
    pause = [5] * 25
    codes = speech(30) + phrase + phrase + pause + speech(30, seed=4) + pause + phrase
    assert first(codes, "loop", "silence") is None


def test_long_random_speech_is_never_even_suspected() -> None:
    assert first(speech(3000), "suspect", "loop", "silence") is None


def test_reset_starts_a_new_run() -> None:
    guard = CodeGuard(LIMITS)
    for _ in range(39):
        guard.observe(1)
    guard.reset()
    assert guard.observe(1) == "clean"
