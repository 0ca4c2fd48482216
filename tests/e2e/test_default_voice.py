"""The bundled voice: what a newcomer's first commands run on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from training.report import active_level

import oscine
from oscine.checkpoint.hub import bundled_folder
from oscine.errors import UnsupportedFeature

TRAIN = "Your train leaves at 9:45 from platform 3."
LIMIT_BYTES = 30 * 2**20


@pytest.fixture(scope="module")
def voice() -> Iterator[oscine.Model]:
    with oscine.load(offline=True) as model:
        yield model


def test_it_speaks_a_sentence_of_plausible_length_and_level(voice: oscine.Model) -> None:
    result = voice.generate(TRAIN, seed=1)
    assert result.finish_reason == "stop"
    assert 1.0 < len(result.audio) / result.sample_rate < 8.0
    assert 0.05 < np.abs(result.audio).max() <= 1.0


@pytest.mark.parametrize("text", [TRAIN, "We need a longer rope and a better plan.", "It will be windy until Friday."])
def test_its_level_is_that_of_speech_and_nothing_is_clipped(voice: oscine.Model, text: str) -> None:
    """It was 4.4 dB quieter. Of sentences; one or two words are all vowel and louder."""
    result = voice.generate(text, seed=6)
    level = active_level(result.audio, result.sample_rate)
    assert level is not None
    assert -23.0 < level < -17.0
    assert np.abs(result.audio).max() < 0.99


def test_what_is_spoken_is_words_and_visible(voice: oscine.Model) -> None:
    (spoken,) = voice.plan(TRAIN).spoken_text
    assert "nine forty five" in spoken.replace("-", " ").lower()
    assert "three" in spoken


def test_streamed_equals_generated_and_a_seed_repeats(voice: oscine.Model) -> None:
    whole = voice.generate("Good morning.", seed=4).audio
    streamed = np.concatenate([chunk.samples for chunk in voice.stream("Good morning.", seed=4)])
    np.testing.assert_array_equal(streamed, whole)


@pytest.mark.parametrize("text", ["Good morning.", "Apples are red.", "Yes."])
def test_nothing_is_heard_before_the_voice_but_silence(voice: oscine.Model, text: str) -> None:
    """The codec's cold start, 100 ms that no code describes, used to be heard as a click."""
    result = voice.generate(text, seed=3)
    (piece,) = result.pieces
    codec = json.loads((bundled_folder() / "config.json").read_text(encoding="utf-8"))
    frame = codec["codec_frame_size"]
    assert len(result.audio) == (piece.num_frames - codec["codec_config"]["warm_up_frames"]) * frame
    first = result.audio[: result.sample_rate // 40]
    assert np.abs(first).max() < 0.003  # -50 dBFS


@pytest.mark.parametrize("text", ["Hi!", "a", "No", "1984", "SHOUTED WORDS", 'He said: "well,\n\nso what?" 🙂 Fine.'])
def test_short_and_odd_texts_end_by_themselves_within_their_budget(voice: oscine.Model, text: str) -> None:
    result = voice.generate(text, seed=2)
    assert result.finish_reason in ("stop", "length")
    assert 0.1 < len(result.audio) / result.sample_rate < 12.0


def test_no_piece_is_longer_than_the_voice_was_made_for(voice: oscine.Model) -> None:
    limit = json.loads((bundled_folder() / "preprocessor_config.json").read_text(encoding="utf-8"))["piece_weight"]
    text = (
        "When the lights came back on, the audience saw that the singer had left, and that nobody had noticed it. " * 3
    )
    plan = voice.plan(text)
    assert all(len(job.text) <= limit for job in plan.jobs)
    assert " ".join(job.text for job in plan.jobs).split() == text.split()


def test_another_script_is_refused_by_name(voice: oscine.Model) -> None:
    with pytest.raises(UnsupportedFeature, match="(?i)cyrillic"):
        voice.stream("Привет, как дела?")


def test_it_cannot_clone_and_says_so(voice: oscine.Model) -> None:
    noise = np.random.default_rng(0).standard_normal(24000).astype(np.float32) * 0.1
    with pytest.raises(UnsupportedFeature, match="clone"):
        voice.stream("Hello.", ref_audio=(noise, 24000), ref_text="x")


def test_the_licence_is_said_at_load(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="oscine"), oscine.load(offline=True) as model:
        assert f"loaded {model.capabilities.model}, licence: {model.capabilities.licence}" in caplog.messages


def test_the_package_stays_small_and_says_where_it_comes_from() -> None:
    folder: Path = bundled_folder()
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < LIMIT_BYTES
    assert "Kokoro" in (folder / "NOTICE").read_text(encoding="utf-8")
    assert (folder / "MODEL_CARD.md").is_file()
