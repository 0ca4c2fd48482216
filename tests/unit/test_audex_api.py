"""All tasks through the public API on the miniature checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import oscine
from oscine.errors import UnknownVoice, UnsupportedFeature
from tests.unit.audex_models import tiny_folder

TONE = (np.sin(np.arange(8000, dtype=np.float32) / 9), 16000)


@pytest.fixture(scope="module")
def model(golden_root: Path) -> Iterator[oscine.Model]:
    with oscine.load(tiny_folder(golden_root), device="cpu", dtype="float32") as model:
        yield model


def test_streamed_speech_is_the_whole_speech(model: oscine.Model) -> None:
    """Bit for bit, guided and not; the first chunk is one frame."""
    for scale in (1.0, 2.0):
        options = {"seed": 3, "temperature": 1.0, "cfg_scale": scale, "max_new_tokens": 60}
        whole = model.generate("Hello there.", **options)  # type: ignore[arg-type]
        with model.stream("Hello there.", **options) as stream:  # type: ignore[arg-type]
            chunks = [chunk.samples for chunk in stream]
        assert np.array_equal(np.concatenate(chunks), whole.audio)
        assert len(chunks[0]) == whole.sample_rate // 50
        assert whole.finish_reason in ("stop", "length")


def test_seeds(model: oscine.Model) -> None:
    made = [model.generate("Hello there.", seed=s, temperature=1.0, max_new_tokens=40).audio for s in (1, 1, 2)]
    assert np.array_equal(made[0], made[1])
    assert not np.array_equal(made[0], made[2])
    greedy = [model.generate("Hello there.", seed=s, temperature=0.0).audio for s in (1, 2)]
    assert np.array_equal(*greedy)


def test_sound(model: oscine.Model) -> None:
    result = model.sound("rain on a tin roof", duration_s=0.2, seed=1)
    assert 0 < len(result.audio) <= 0.2 * result.sample_rate
    assert len(result.audio) % 320 == 0


def test_text_tasks(model: oscine.Model) -> None:
    for result in (
        model.transcribe(TONE, max_new_tokens=8),
        model.ask(TONE, "How many dogs?", max_new_tokens=8),
    ):
        assert len(result.audio) == 0
        assert isinstance(result.text, str)
        assert result.usage["output_tokens"] <= 8
        assert result.usage["input_tokens"] > 750


def test_refusals_by_name(model: oscine.Model, golden_root: Path) -> None:
    with pytest.raises(UnknownVoice):
        model.generate("x", voice="Anna")
    with pytest.raises(UnsupportedFeature, match="num_steps"):
        model.generate("x", num_steps=3)
    with pytest.raises(UnsupportedFeature, match="'native' is not to be had"):
        oscine.load(tiny_folder(golden_root), device="cpu", backend="native")
    with pytest.raises(UnsupportedFeature, match="clone"):
        model.create_voice("me", TONE, "hello", store=False)
