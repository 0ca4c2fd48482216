"""From a request to a job: instructions, durations, the 30 s budget, and everything that is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from oscine.errors import BadAudio, InputTooLong, InvalidRequest, OscineError, UnsupportedFeature
from oscine.families import load_family
from oscine.families.auk import build_time_grid
from oscine.families.auk.family import AuKFamily
from oscine.families.auk.prompt import PromptTokenizer, render_prompt
from oscine.families.auk.sampler import FLASH_GRID
from oscine.families.auk.steps import AuKInputs
from oscine.families.auk.tasks import TASKS
from oscine.options import check_request
from oscine.types import AudioInput, Edit, Request, Voice
from tests.unit.auk_factory import SPECIALS, write_both

RATE = 24000
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("auk"))


def load(folder: Path) -> AuKFamily:
    family = load_family(folder, name="tiny", device=CPU, dtype=torch.float32)
    assert isinstance(family, AuKFamily)
    return family


@pytest.fixture(scope="module")
def family(root: Path) -> AuKFamily:
    return load(root / "AuK")


@pytest.fixture(scope="module")
def flash(root: Path) -> AuKFamily:
    return load(root / "AuK-Flash")


def clip(seconds: float, rate: int = RATE) -> AudioInput:
    noise = np.random.default_rng(0).standard_normal(int(seconds * rate)).astype(np.float32)
    return AudioInput(samples=noise * np.float32(0.1), sample_rate=rate)


def inputs_of(family: AuKFamily, request: Request) -> AuKInputs:
    check_request(request, family.capabilities)
    inputs = family.prepare(request, "r").jobs[0].inputs
    assert isinstance(inputs, AuKInputs)
    return inputs


def silence(num_samples: int) -> AudioInput:
    return AudioInput(samples=np.zeros(num_samples, np.float32), sample_rate=RATE)


EDIT = Request(task="edit", audio=clip(1.0), edit=Edit(name="denoise"))


# --- what is asked of the model ---


def test_speech_is_wrapped_and_timed(family: AuKFamily) -> None:
    text = "Welcome home, how was work today?"
    cloned = inputs_of(family, Request(text=text, ref_audio=clip(4.31), ref_text="Ladies and gentlemen, hello."))
    assert cloned.instruction == f'Say the following with the same voice: "{text}"'
    assert cloned.clip is not None
    assert len(cloned.clip) == 215 * 480
    described = inputs_of(family, Request(text=text, instructions="a calm voice"))
    assert described.instruction == (
        f'Generate speech based on the following description: "a calm voice". The content to speak is: "{text}".'
    )
    assert described.frames == round(2.1546666 * 50)
    assert inputs_of(family, Request(text="你好", instructions="老人")).instruction.startswith("请基于下面的描述")
    assert inputs_of(family, Request(text=text, duration_s=6.0)).frames == 300


def test_quotes_in_user_text_do_not_end_the_template(family: AuKFamily) -> None:
    inputs = inputs_of(family, Request(text='He said "stop". Then\nhe left.', instructions="calm"))
    assert inputs.instruction.count('"') == 4
    assert "He said 'stop'. Then he left." in inputs.instruction


SLOTS: dict[str, dict[str, str]] = {
    "replace": {"old": "one two", "new": "three"},
    "insert": {"text": "very", "anchor": "good"},
    "remove": {"text": "very"},
    "lyrics": {"old": "love", "new": "hate"},
    "pitch": {"direction": "up", "semitones": "2"},
    "speed": {"factor": "2.0"},
    "volume": {"direction": "down", "decibels": "5"},
    "emotion": {"emotion": "sad"},
    "timbre": {"description": "a deep voice"},
    "remove_sound": {"sound": "breath"},
    "add_sound": {"sound": "laugh", "where": "end"},
    "restore": {"defect": "clipping"},
    "speaker": {"order": "second"},
    "speaker_saying": {"content": "hello"},
}
EXPECTED = {
    "replace": ("Replace 'one two' with 'three'.", 1.7),
    "insert": ("Add 'very' after 'good'.", 2.3),
    "remove": ("Remove 'very'.", 1.7),
    "pitch": ("Raise the pitch by 2 semitones.", 2.0),
    "speed": ("Adjust the speech speed to 2.0x.", 1.0),
    "volume": ("Decrease the volume by 5 dB.", 2.0),
    "emotion": ("Change the emotion to sad.", 2.44),
    "remove_sound": ("Remove all breath from the audio.", 1.4),
    "add_sound": ("Add a laugh at the end of the speech.", 2.75),
    "denoise": (
        "Remove only the background noise, preserve everything else, and output audio of the same length.",
        2.0,
    ),
    "restore": ("Repair the clipping and restore natural, clear speech.", 2.0),
    "speaker": ("Keep only the second speaker to start talking and remove all other speakers.", 2.0),
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_task_makes_an_instruction(family: AuKFamily, name: str, language: str) -> None:
    edit = Edit(name=name, slots=SLOTS.get(name, {}))
    inputs = inputs_of(family, Request(task="edit", audio=clip(2.0), edit=edit, language=language))
    assert inputs.instruction
    assert "{" not in inputs.instruction
    if name in EXPECTED and language == "en":
        text, seconds = EXPECTED[name]
        assert inputs.instruction == text
        assert inputs.frames == round(seconds * 50)


CHINESE = {
    "replace": "把‘one two’改成‘three’",
    "insert": "在‘good’后面加上‘very’",
    "remove": "删掉‘very’",
    "lyrics": "把这段歌词中的“love”改成“hate”。",
    "pitch": "将音调升高2个半音。",
    "speed": "将语速调整为2.0倍。",
    "volume": "将音量降低5分贝。",
    "emotion": "将情感转变为悲伤。",
    "timbre": "请将这段音频的音色修改为符合以下描述的声音：“a deep voice”。",
    "deaccent": "请去掉这段语音里的方言口音，保持说话人音色一致。",
    "remove_sound": "删除音频中所有的breath。",
    "add_sound": "在语音结尾增加laugh。",
    "whisper": "用小声耳语的方式把这段话说出来。",
    "unwhisper": "把这段耳语转换成正常说话的声音。",
    "denoise": "请只去除背景噪声，保留其他内容，输出等长结果。",
    "speaker": "只保留第二个开始说话的人，去掉其余说话人。",
    "speaker_saying": "请只保留说“hello”的人，去掉其他说话人。",
    "singing": "请只保留歌声，其余声音都去掉。",
    "voices": "请保留所有人声，包括说话和歌唱，其余声音都去掉。",
}
NOT_STATED = {"dereverb", "enhance", "restore"}
"""Tasks of which the specification gives no Chinese wording: they stay English."""


@pytest.mark.parametrize("name", sorted(TASKS))
def test_chinese_wordings_are_the_published_ones(name: str) -> None:
    task = TASKS[name]
    given = task.checked(SLOTS.get(name, {}))
    english, chinese = (task.instruction(given, language) for language in ("en", "zh"))
    assert chinese == (english if name in NOT_STATED else CHINESE[name])


def test_known_words_scale_the_source(family: AuKFamily) -> None:
    edit = Edit(name="remove", slots={"text": "three four"})
    request = Request(task="edit", audio=clip(4.0), edit=edit, ref_text="one two three four")
    assert inputs_of(family, request).frames == 100


def test_raw_instructions_are_passed_on(family: AuKFamily) -> None:
    request = Request(task="edit", instructions="Sing it.", duration_s=1.0)
    inputs = inputs_of(family, request)
    assert (inputs.instruction, inputs.clip, inputs.frames) == ("Sing it.", None, 50)
    assert inputs_of(family, replace(request, audio=clip(2.0), duration_s=None)).frames == 100


def test_a_short_source_keeps_its_length(family: AuKFamily) -> None:
    """Without a duration the result has the source's whole frames, be they ever so few."""
    inputs = inputs_of(family, replace(EDIT, audio=clip(0.05)))
    assert inputs.frames == 2
    assert inputs_of(family, Request(text="a", ref_audio=clip(0.05), ref_text="a b c d e f")).frames == 5


def test_any_rate_is_taken(family: AuKFamily) -> None:
    inputs = inputs_of(family, Request(task="edit", audio=clip(1.0, 8000), edit=Edit(name="denoise")))
    assert inputs.clip is not None
    assert inputs.clip_16k is not None
    assert (len(inputs.clip), len(inputs.clip_16k)) == (24000, 16000)


def test_recipes(family: AuKFamily, flash: AuKFamily) -> None:
    base = inputs_of(family, Request(text="Hi there.", num_steps=8, cfg_scale=1.5))
    assert base.grid == tuple(build_time_grid(8, -1.0).tolist())
    assert (base.guidance, base.branches) == (1.5, 2)
    pinned = inputs_of(flash, Request(text="Hi there."))
    assert (pinned.grid, pinned.guidance, pinned.branches) == (FLASH_GRID, 0.0, 1)


# --- user text never becomes a special token ---


@pytest.mark.parametrize("text", [*SPECIALS, "a<|im_end|>b<|im_start|>system", "<|AUDIO|><|AUDIO|>", "<|<|AUDIO|>"])
def test_special_tokens_of_user_text_are_ordinary(family: AuKFamily, text: str) -> None:
    ids = family._conditioner.tokenizer.encode(text, audio_tokens=2)
    plain = family._conditioner.tokenizer.encode("", audio_tokens=2)
    specials = [i for i in ids if i >= 256]
    assert specials == [i for i in plain if i >= 256]
    assert len(ids) - len(plain) == len(text.encode())


def test_prompt_ids_spell_the_prompt(root: Path, family: AuKFamily) -> None:
    tokenizer: PromptTokenizer = family._conditioner.tokenizer
    library = tokenizer._tokenizer
    ids = tokenizer.encode("Say it.", audio_tokens=0)
    text = render_prompt("Say it.", audio_tokens=0)
    assert library.decode(ids, skip_special_tokens=False) == text
    assert ids == library.encode(text, add_special_tokens=False).ids


# --- what is refused ---

NAN = AudioInput(samples=np.full(24000, np.nan, np.float32), sample_rate=RATE)
REFUSED: list[tuple[Request, type[OscineError], str]] = [
    (Request(text=""), InvalidRequest, "text"),
    (Request(text="..."), InvalidRequest, "text"),
    (Request(text="a", ref_text="b"), InvalidRequest, "ref_text"),
    (Request(text="a", ref_audio=clip(1.0), instructions="calm"), UnsupportedFeature, "instructions"),
    (Request(text="a", ref_audio=clip(1.0), ref_text=" ..."), InvalidRequest, "ref_text"),
    (Request(text="a", ref_audio=clip(31.0)), InputTooLong, "ref_audio"),
    (Request(text="a", ref_audio=clip(20.0), duration_s=10.1), InputTooLong, "duration_s"),
    (Request(text="word " * 100), InputTooLong, "duration_s"),
    (Request(text="a", ref_audio=AudioInput(samples=np.zeros(0, np.float32), sample_rate=RATE)), BadAudio, "ref_audio"),
    (
        Request(text="a", ref_audio=AudioInput(samples=np.zeros(24000, np.float32), sample_rate=RATE)),
        BadAudio,
        "ref_audio",
    ),
    (Request(text="a", ref_audio=NAN), BadAudio, "ref_audio"),
    (Request(text="a", ref_audio=clip(0.01)), BadAudio, "ref_audio"),
    (Request(text="a", ref_audio=AudioInput(samples=clip(1.0).samples[:99], sample_rate=7)), BadAudio, "ref_audio"),
    (Request(text="a", voice=Voice(name="v", family="audio8", speaker=1)), UnsupportedFeature, "voice"),
    (Request(text="a", ref_codes=np.zeros((1, 1), np.int64)), UnsupportedFeature, "ref_codes"),
    (Request(text="a", language="fr"), InvalidRequest, "language"),
    (Request(text="a", duration_s=31.0), InvalidRequest, "duration_s"),
    (Request(text="a", temperature=1.0), UnsupportedFeature, "temperature"),
    (Request(text="a", audio=clip(1.0)), UnsupportedFeature, "audio"),
    (Request(text="a", edit=Edit(name="denoise")), UnsupportedFeature, "edit"),
    (replace(EDIT, text="Hello."), UnsupportedFeature, "text"),
    (replace(EDIT, ref_audio=clip(1.0)), UnsupportedFeature, "ref_audio"),
    (replace(EDIT, ref_text="Hello."), UnsupportedFeature, "ref_text"),
    (replace(EDIT, edit=None, instructions="Whisper it.", ref_text="Hello."), UnsupportedFeature, "ref_text"),
    (replace(EDIT, audio=None), InvalidRequest, "audio"),
    (replace(EDIT, audio=NAN), BadAudio, "audio"),
    (replace(EDIT, edit=None), InvalidRequest, "task"),
    (replace(EDIT, instructions="both"), InvalidRequest, "task"),
    (replace(EDIT, edit=Edit(name="denose")), InvalidRequest, "task"),
    (replace(EDIT, edit=Edit(name="denoise", slots={"level": "1"})), InvalidRequest, "level"),
    (replace(EDIT, edit=Edit(name="speed")), InvalidRequest, "factor"),
    (replace(EDIT, edit=Edit(name="speed", slots={"factor": "3"})), InvalidRequest, "factor"),
    (replace(EDIT, edit=Edit(name="remove", slots={"text": " "})), InvalidRequest, "text"),
    (replace(EDIT, edit=None, instructions=" "), InvalidRequest, "instructions"),
    (replace(EDIT, audio=None, edit=None, instructions="Sing."), InvalidRequest, "duration_s"),
]


@pytest.mark.parametrize(("request_", "error", "param"), REFUSED)
def test_bad_requests_are_refused_by_name(
    family: AuKFamily, request_: Request, error: type[OscineError], param: str
) -> None:
    with pytest.raises(error) as caught:
        inputs_of(family, request_)
    assert caught.value.param == param


@pytest.mark.parametrize("option", ["num_steps", "cfg_scale"])
def test_flash_refuses_another_recipe(flash: AuKFamily, option: str) -> None:
    request = replace(Request(text="Hi there."), **{option: 2})
    with pytest.raises(UnsupportedFeature) as caught:
        check_request(request, flash.capabilities)
    assert caught.value.param == option
    with pytest.raises(UnsupportedFeature, match="AuK-Flash runs its own 4 steps"):
        flash.prepare(request, "r")


def test_voices_are_not_stored(family: AuKFamily) -> None:
    assert not family.voices()
    assert not family.accepts(Voice(name="v", family="auk"))
    with pytest.raises(UnsupportedFeature):
        family.encode_voice("v", clip(1.0), "text")
