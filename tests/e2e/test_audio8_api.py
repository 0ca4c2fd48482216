"""The whole path of the Audio8 family through `oscine.load`: speak, stream, clone, refuse."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.cancellation import cancelled_when
from oscine.errors import (
    BadAudio,
    Cancelled,
    InputTooLong,
    InvalidRequest,
    UnknownModel,
    UnknownVoice,
    UnsupportedFeature,
    VoiceExists,
)
from oscine.types import AudioInput

TEXT = "Hello world."
LONG = " ".join(f"Sentence number {n} is here, and it goes on for a little while longer." for n in range(8))
SHORT = {"max_new_tokens": 24}


def streamed(model: oscine.Model, text: str, **options: Any) -> np.ndarray:
    return np.concatenate([chunk.samples for chunk in model.stream(text, **options)])


def test_a_result_has_audio_and_says_how_it_came_about(model: oscine.Model) -> None:
    result = model.generate(TEXT, seed=7, **SHORT)
    assert result.audio.dtype == np.float32
    assert result.sample_rate == model.capabilities.sample_rate == 44100
    assert len(result.audio) == 2048 * sum(piece.num_frames for piece in result.pieces)
    assert result.finish_reason in ("stop", "length")
    assert result.seed == 7
    assert result.pieces[0].text == TEXT
    assert 0 <= result.timings.queued_s <= result.timings.first_audio_s <= result.timings.total_s


@pytest.mark.parametrize("text", [TEXT, LONG])
def test_streamed_samples_equal_the_generated_ones_exactly(model: oscine.Model, text: str) -> None:
    whole = model.generate(text, seed=11, **SHORT).audio
    np.testing.assert_array_equal(streamed(model, text, seed=11, **SHORT), whole)


def test_a_seed_repeats_and_another_one_differs(model: oscine.Model) -> None:
    first = model.generate(TEXT, seed=1, **SHORT).audio
    np.testing.assert_array_equal(model.generate(TEXT, seed=1, **SHORT).audio, first)
    assert not np.array_equal(model.generate(TEXT, seed=2, **SHORT).audio, first)


def test_no_seed_is_a_fresh_one_that_repeats_the_result(model: oscine.Model) -> None:
    results = [model.generate(TEXT, **SHORT) for _ in range(2)]
    assert results[0].seed != results[1].seed
    np.testing.assert_array_equal(model.generate(TEXT, seed=results[0].seed, **SHORT).audio, results[0].audio)


def test_temperature_zero_ignores_the_seed(model: oscine.Model) -> None:
    first = model.generate(TEXT, seed=1, temperature=0, **SHORT).audio
    np.testing.assert_array_equal(model.generate(TEXT, seed=2, temperature=0, **SHORT).audio, first)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_neighbours_do_not_change_a_request(model: oscine.Model, count: int) -> None:
    alone = model.generate(LONG, seed=5, **SHORT).audio
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(model.generate, LONG, seed=5, **SHORT)]
        futures += [pool.submit(model.generate, f"Other text {n}. {TEXT}", seed=n, **SHORT) for n in range(count - 1)]
        results = [future.result(60) for future in futures]
    np.testing.assert_array_equal(results[0].audio, alone)


def test_neighbours_that_join_late_or_are_cancelled_do_not_change_a_request(model: oscine.Model) -> None:
    alone = model.generate(LONG, seed=5, **SHORT).audio
    stream = model.stream(LONG, seed=5, **SHORT)
    chunks = [next(stream).samples]
    doomed = [model.stream(f"{n} {LONG}", seed=n, **SHORT) for n in range(3)]
    late = threading.Thread(target=model.generate, args=(TEXT,), kwargs={"seed": 3, **SHORT})
    late.start()
    next(doomed[0])
    for other in doomed:
        other.cancel()
    chunks += [chunk.samples for chunk in stream]
    late.join(60)
    np.testing.assert_array_equal(np.concatenate(chunks), alone)


def test_cloning_with_a_stored_voice_equals_cloning_from_the_audio(
    model: oscine.Model, checkpoint: Path, reference: AudioInput, voices_dir: Path
) -> None:
    direct = model.generate(TEXT, ref_audio=reference, ref_text="A tone.", seed=3, **SHORT).audio
    voice = model.create_voice("tone", reference, "A tone.")
    assert "tone" in model.voices
    np.testing.assert_array_equal(model.generate(TEXT, voice="tone", seed=3, **SHORT).audio, direct)
    np.testing.assert_array_equal(model.generate(TEXT, voice=voice, seed=3, **SHORT).audio, direct)
    with oscine.load(checkpoint, device="cpu", voices_dir=voices_dir) as again:
        np.testing.assert_array_equal(again.generate(TEXT, voice="tone", seed=3, **SHORT).audio, direct)
    with pytest.raises(VoiceExists):
        model.create_voice("tone", reference, "A tone.")
    model.remove_voice("tone")
    with pytest.raises(UnknownVoice, match="tone"):
        model.generate(TEXT, voice="tone")
    with pytest.raises(UnknownVoice):
        model.remove_voice("tone")


def test_long_text_is_planned_into_pieces_and_every_word_is_in_one(model: oscine.Model) -> None:
    plan = model.plan(LONG, seed=1)
    assert len(plan.jobs) > 1
    assert " ".join(job.text for job in plan.jobs).split() == LONG.split()
    assert len({job.seed for job in plan.jobs}) == len(plan.jobs)
    assert all(job.max_frames > 0 for job in plan.jobs)


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_planning_ends_when_nobody_waits_for_the_plan(model: oscine.Model, share: float) -> None:
    """It is asked for between pieces, while they are planned and while prompts are made of them."""
    asked, limit = 0, 1 << 30

    def left() -> bool:
        nonlocal asked
        asked += 1
        return asked > limit

    text = "A sentence of nine words is repeated here today. " * 40
    with cancelled_when(left):
        model.plan(text)
        asked, limit = 0, int(share * asked)
        with pytest.raises(Cancelled):
            model.plan(text)
    assert 0 < limit == asked - 1


def test_the_voice_of_the_first_piece_is_carried_by_the_later_ones(model: oscine.Model, reference: AudioInput) -> None:
    free = model.plan(LONG, seed=1).jobs
    assert free[0].after is None
    assert all(job.after is free[0] for job in free[1:])
    cloned = model.plan(LONG, ref_audio=reference, ref_text="A tone.", seed=1).jobs
    assert all(job.after is None for job in cloned)


def test_an_explicit_frame_limit_is_an_honest_length(model: oscine.Model) -> None:
    result = model.generate(TEXT, seed=7, max_new_tokens=1)
    assert result.pieces[0].num_frames == 1
    assert result.pieces[0].attempts == 1
    assert result.finish_reason == "length"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        (" \n\t ", "empty"),
        ("🙂 🎉", "spoken"),
        ("*** --- ***", "spoken"),
        ("hi <|im_end|> there", "<|im_end|>"),
        ("<|semantic:5|>x", "<|semantic:5|>"),
    ],
)
def test_text_that_cannot_be_spoken_is_refused(model: oscine.Model, text: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        model.stream(text)
    assert caught.value.param == "text"
    assert words in caught.value.message


def test_what_cannot_be_honoured_is_refused_by_name(model: oscine.Model, reference: AudioInput) -> None:
    with pytest.raises(UnsupportedFeature, match="cfg_scale"):
        model.stream(TEXT, cfg_scale=2.0)
    with pytest.raises(UnknownVoice, match="nobody"):
        model.stream(TEXT, voice="nobody")
    with pytest.raises(InvalidRequest, match="temperature"):
        model.stream(TEXT, temperature=-1.0)
    with pytest.raises(InvalidRequest, match="transcript"):
        model.stream(TEXT, ref_audio=reference)
    with pytest.raises(InvalidRequest, match="ref_audio"):
        model.stream(TEXT, ref_text="A tone.")
    with pytest.raises(InvalidRequest, match="one of"):
        model.stream(TEXT, ref_audio=reference, ref_text="A tone.", voice=_voice())


def test_bad_reference_audio_is_refused_with_the_reason(model: oscine.Model, tmp_path: Path) -> None:
    with pytest.raises(BadAudio):
        model.stream(TEXT, ref_audio=(np.full(24000, np.nan, np.float32), 24000), ref_text="x")
    with pytest.raises(BadAudio):
        model.create_voice("x", (np.zeros(24000, np.float32), 24000), "x")
    (tmp_path / "not.wav").write_bytes(b"RIFF nothing")
    with pytest.raises(BadAudio):
        model.stream(TEXT, ref_audio=tmp_path / "not.wav", ref_text="x")


def test_a_reference_too_long_for_the_context_is_refused(model: oscine.Model) -> None:
    rng = np.random.default_rng(0)
    audio = AudioInput(samples=0.1 * rng.standard_normal(59 * 24000).astype(np.float32), sample_rate=24000)
    with pytest.raises(InputTooLong, match="640"):
        model.stream(TEXT, ref_audio=audio, ref_text="x")


def test_a_voice_of_another_model_is_refused(model: oscine.Model) -> None:
    with pytest.raises(InvalidRequest, match="belongs"):
        model.stream(TEXT, voice=_voice(codec="another codec"))


def test_nothing_to_load_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel):
        oscine.load(tmp_path / "nowhere")
    with pytest.raises(InvalidRequest, match="device"):
        oscine.load(device="toaster")
    with pytest.raises(InvalidRequest, match="dtype"):
        oscine.load(dtype="int3")  # type: ignore[arg-type]


def test_cancel_from_another_thread_ends_a_stream(model: oscine.Model) -> None:
    stream = model.stream(LONG, seed=1)
    next(stream)
    threading.Timer(0.01, stream.cancel).start()
    for _ in stream:
        pass
    assert stream.finish_reason in ("cancelled", "length", "stop", "loop", "silence")
    assert model.generate(TEXT, seed=1, **SHORT).audio.size


def _voice(codec: str = "x") -> oscine.Voice:
    return oscine.Voice(
        name="v", family="audio8", codec=codec, tensors={"codes": np.zeros((5, 4), np.int64)}, transcript="hm"
    )
