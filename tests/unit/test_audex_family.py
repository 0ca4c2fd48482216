"""The family: defaults by task, limits, refusals, and whole requests through the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oscine.engine.engine import Engine
from oscine.errors import BadAudio, GenerationError, InputTooLong, InvalidRequest, UnknownVoice, UnsupportedFeature
from oscine.families.audex.family import AudexFamily
from oscine.families.audex.frontend import normalize
from oscine.families.audex.jobs import LMJob
from oscine.families.audex.sampling import Sampling, draw, probabilities
from oscine.options import check_request
from oscine.types import AudioInput, Done, Edit, Failed, Job, Request, Voice
from tests.unit.audex_models import dense_family, hybrid_family
from tests.unit.test_audex_neighbours import Listener

SILENCE = AudioInput(samples=np.zeros(4000, np.float32), sample_rate=16000)
TONE = AudioInput(samples=np.sin(np.arange(8000, dtype=np.float32) / 9), sample_rate=8000)


@pytest.fixture(scope="module")
def family(golden_root: Path) -> AudexFamily:
    return dense_family(golden_root)


def only(family: AudexFamily, **fields: Any) -> LMJob:
    (job,) = family.prepare(Request(**fields), "r").jobs
    assert isinstance(job.inputs, LMJob)
    return job.inputs


def test_defaults_by_task(family: AudexFamily, golden_root: Path) -> None:
    speech = only(family, text="Hello.")
    assert speech.sampling == Sampling(temperature=0.1, top_k=80)
    assert (speech.cfg_scale, speech.null_ids, speech.max_new_tokens) == (1.0, None, 2048)
    guided = only(family, text="Hello.", cfg_scale=1.5)
    assert guided.sampling.temperature == 0.05
    assert len(guided.null_ids or ()) == len(guided.prompt_ids)
    assert only(hybrid_family(golden_root), text="Hello.", cfg_scale=1.5).sampling.temperature == 0.1
    sound = only(family, task="sound", text="Rain.")
    assert sound.sampling == Sampling(temperature=1.0, top_k=80)
    # 4200 tokens do not fit the miniature's 4096 positions beside the prompt
    assert (sound.cfg_scale, sound.codec_cap) == (3.0, 4000)
    assert sound.max_new_tokens == 4096 - len(sound.prompt_ids)
    asked = only(family, task="ask", text="How many?", audio=SILENCE)
    assert (asked.sampling, asked.max_new_tokens, asked.is_transcript) == (Sampling(temperature=0.0), 256, False)
    said = only(family, task="transcribe", audio=SILENCE)
    assert said.is_transcript
    assert said.prompt_ids.count(family._model.tokens.sound) == 750


def test_options_are_honoured(family: AudexFamily) -> None:
    options = {"temperature": 0.7, "top_k": 3, "top_p": 0.9, "cfg_scale": 2.0, "max_new_tokens": 9}
    job = only(family, text="Hello.", **options)
    assert job.sampling == Sampling(temperature=0.7, top_k=3, top_p=0.9)
    assert (job.cfg_scale, job.max_new_tokens) == (2.0, 9)


@pytest.mark.parametrize(("seconds", "frames"), [(None, 500), (10.0, 500), (2.0, 100), (0.11, 6)])
def test_sounds_end_where_nothing_more_is_heard(family: AudexFamily, seconds: float | None, frames: int) -> None:
    (job,) = family.prepare(Request(task="sound", text="Rain.", duration_s=seconds), "r").jobs
    assert job.max_frames == frames


def test_long_text_becomes_pieces(family: AudexFamily) -> None:
    text = "This is a sentence of some length, spoken calmly. " * 20
    plan = family.prepare(Request(text=text, seed=4), "r")
    assert len(plan.jobs) > 2
    assert " ".join(job.text for job in plan.jobs) == text.strip()
    assert len({job.seed for job in plan.jobs}) == len(plan.jobs)
    assert plan.jobs[0].seed == plan.seed == 4
    (short,) = family.prepare(Request(text="  as it is \n"), "r").jobs
    assert short.text == "  as it is \n"


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "empty text": ({"text": " "}, InvalidRequest, "text"),
    "empty caption": ({"task": "sound", "text": ""}, InvalidRequest, "text"),
    "empty question": ({"task": "ask", "audio": SILENCE}, InvalidRequest, "text"),
    "no audio": ({"task": "ask", "text": "What?"}, InvalidRequest, "audio"),
    "nothing to transcribe": ({"task": "transcribe"}, InvalidRequest, "audio"),
    "text to transcribe": ({"task": "transcribe", "text": "x", "audio": SILENCE}, InvalidRequest, "text"),
    "audio to speak": ({"text": "x", "audio": SILENCE}, UnsupportedFeature, "audio"),
    "edit of speech": ({"text": "x", "edit": Edit(name="denoise")}, UnsupportedFeature, "edit"),
    "audio of NaN": (
        {"task": "transcribe", "audio": AudioInput(samples=np.full(99, np.nan, np.float32), sample_rate=16000)},
        BadAudio,
        "audio",
    ),
    "clone": ({"text": "x", "ref_audio": SILENCE}, UnsupportedFeature, "ref_audio"),
    "clone by codes": ({"text": "x", "ref_codes": np.zeros((1, 1), np.int64)}, UnsupportedFeature, "ref_codes"),
    "voice": ({"text": "x", "voice": "Anna"}, UnknownVoice, "voice"),
    "foreign voice": ({"text": "x", "voice": Voice(name="v", family="audio8", speaker=1)}, UnknownVoice, "voice"),
    "guided answer": ({"task": "transcribe", "audio": SILENCE, "cfg_scale": 2.0}, UnsupportedFeature, "cfg_scale"),
    "guidance low": ({"text": "x", "cfg_scale": 0.5}, InvalidRequest, "cfg_scale"),
    "guidance high": ({"text": "x", "cfg_scale": 10.5}, InvalidRequest, "cfg_scale"),
    "duration of speech": ({"text": "x", "duration_s": 1.0}, UnsupportedFeature, "duration_s"),
    "edit": ({"task": "edit", "text": "x"}, UnsupportedFeature, "task"),
    "long question": ({"task": "ask", "text": "x" * 40_000, "audio": SILENCE}, InputTooLong, "text"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(family: AudexFamily, case: str) -> None:
    fields, error, param = REFUSED[case]
    with pytest.raises(error) as raised:
        family.prepare(Request(**fields), "r")
    assert raised.value.param == param  # type: ignore[attr-defined]


@pytest.mark.parametrize("fields", [{"cfg_scale": 0.9}, {"cfg_scale": 11.0}, {"max_new_tokens": 5000}])
def test_ranges_are_stated_in_the_options(family: AudexFamily, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        check_request(Request(text="x", **fields), family.capabilities)


@pytest.mark.parametrize("voice", [None, "", "default", "Default"])
def test_the_built_in_voice_by_any_name(family: AudexFamily, voice: str | None) -> None:
    assert family.prepare(Request(text="x", voice=voice), "r").jobs
    assert family.prepare(Request(text="x", voice=family.voices()[0]), "r").jobs


def test_audio_beyond_thirty_clips(family: AudexFamily) -> None:
    long = AudioInput(samples=np.zeros(900 * 8000 + 1, np.float32), sample_rate=8000)
    with pytest.raises(InputTooLong, match="900 s"):
        family.prepare(Request(task="transcribe", audio=long), "r")


def test_no_audio_is_a_clip_of_silence(family: AudexFamily) -> None:
    empty = AudioInput(samples=np.zeros(0, np.float32), sample_rate=44100)
    jobs = [only(family, task="transcribe", audio=audio) for audio in (empty, SILENCE)]
    assert jobs[0].mel is not None
    assert jobs[1].mel is not None
    assert torch.equal(jobs[0].mel, jobs[1].mel)


@pytest.mark.parametrize("wave", [np.zeros((3, 4), np.float32), np.array([np.nan], np.float32)])
def test_bad_audio(wave: Any) -> None:
    with pytest.raises(BadAudio):
        normalize(wave)


def test_draws() -> None:
    logits = torch.tensor([0.0, 3.0, 1.0, 2.9])
    greedy = [draw(logits, Sampling(temperature=0.0), torch.Generator().manual_seed(i)) for i in range(3)]
    assert greedy == [1, 1, 1]
    sampling = Sampling(temperature=1.0, top_k=2)
    drawn = {draw(logits, sampling, torch.Generator().manual_seed(i)) for i in range(30)}
    assert drawn == {1, 3}
    again = [draw(logits, sampling, torch.Generator().manual_seed(5)) for _ in range(3)]
    assert len(set(again)) == 1
    assert probabilities(logits, Sampling(temperature=1.0, top_p=0.01)).tolist() == [0.0, 1.0, 0.0, 0.0]


def outcome(family: AudexFamily, jobs: list[Job]) -> list[Listener]:
    engine = Engine()
    try:
        listeners = [Listener() for _ in jobs]
        engine.submit(family, list(zip(jobs, listeners, strict=True)))
        assert all(listener.ended.wait(60) for listener in listeners)
        return listeners
    finally:
        engine.close()


def test_a_text_answer_has_frames_and_no_samples(family: AudexFamily) -> None:
    (job,) = family.prepare(Request(task="ask", text="How many?", audio=TONE, max_new_tokens=8), "r").jobs
    (listener,) = outcome(family, [job])
    assert isinstance(listener.outcome, Done)
    assert not listener.chunks
    assert len(job.frames) == 8 or listener.outcome.finish_reason == "stop"
    assert family.text_of(job) == family._maker.encoder.decode(job.frames).strip() == listener.words


def test_conversation(family: AudexFamily) -> None:
    """Three passes, each from the answer before; an answer without words fails by name, and so does what follows."""
    jobs = list(family.prepare(Request(task="converse", audio=TONE, seed=1, max_new_tokens=30), "r").jobs)
    assert [family._output(job) for job in jobs] == ["text", "text", "speech"]
    assert [job.after for job in jobs] == [None, jobs[0], jobs[1]]
    first, second, third = outcome(family, jobs)
    assert isinstance(first.outcome, Done)
    if not family.text_of(jobs[0]):
        assert isinstance(second.outcome, Failed)
    for listener in (second, third):
        if isinstance(listener.outcome, Failed):
            assert isinstance(listener.outcome.error, GenerationError)


def test_spoken_answer_is_guided_speech_of_the_text_before(family: AudexFamily) -> None:
    jobs = family.prepare(Request(task="converse", audio=TONE, seed=1), "r").jobs
    answer = family._maker.encoder.plain("It's a tone.")
    jobs[1].frames.extend([*answer, family._model.tokens.eos[0]])
    made = jobs[2].inputs.make(jobs[1])
    direct = only(family, text="It's a tone.", cfg_scale=1.5)
    assert (made.prompt_ids, made.null_ids, made.sampling) == (direct.prompt_ids, direct.null_ids, direct.sampling)
    assert made.max_length <= jobs[2].inputs.max_length
    jobs[0].frames.extend(family._maker.encoder.plain("It says: 'What's that?'"))
    chat = jobs[1].inputs.make(jobs[0])
    assert "What's that?" in family._maker.encoder.decode(chat.prompt_ids)
    assert "It says" not in family._maker.encoder.decode(chat.prompt_ids)


def test_first_audio_after_five_tokens(family: AudexFamily) -> None:
    sizes = family.chunk_sizes()
    (job,) = family.prepare(Request(text="x"), "r").jobs
    decoder = family.open_decoder(job)
    assert sizes[0] == 5
    assert len(decoder.push([1] * (sizes[0] - 1))) == 0
    assert len(decoder.push([1])) == 320


def test_memory_counts_both_lanes(family: AudexFamily) -> None:
    plain, guided = (family.prepare(Request(text="Hello.", cfg_scale=scale), "r").jobs[0] for scale in (1.0, 2.0))
    decoder = 2 * family._model.speech_decoder.cache_shape.row_bytes(plain.inputs.max_length)
    assert guided.memory - decoder == 2 * (plain.memory - decoder)
