"""Answers in words as they come: joined they are the text; through the engine, the API and the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

import oscine
from oscine.cli.main import main
from oscine.families.audex.decoder import AnswerDecoder, answer_text
from oscine.types import AudioInput, Request
from tests.unit.audex_models import tiny_folder, wordy_folder

WAVE = np.sin(np.arange(8000, dtype=np.float32) / 9)
ANSWERS = (
    "",
    "   ",
    "Three dogs bark.",
    "  caf\u00e9 \u3000 \U0001f436 \n\n",
    "It says: 'It's \u4f60\u597d, isn't it?' I think.",
    "a" * 130 + " 'b' \u00e9 c",
    "one\xa0two \ufffd three",
)


def spoken(data: list[int]) -> str:
    """Byte tokens to text, as a byte-level tokenizer does."""
    return bytes(data).decode("utf-8", errors="replace")


@pytest.mark.parametrize("is_transcript", [False, True])
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_runs_of_words_make_the_answer(answer: str, is_transcript: bool, lost: int) -> None:
    """Byte by byte, even when the last sign is cut in its midst."""
    tokens = list(answer.encode())[: len(answer.encode()) - lost]
    decoder, words = AnswerDecoder(spoken, is_transcript=is_transcript), []  # type: ignore[arg-type]
    for token in tokens:
        assert len(decoder.push([token])) == 0
        words.append(decoder.take_text())
    assert len(decoder.flush()) == 0
    words.append(decoder.take_text())
    assert "".join(words) == answer_text(spoken(tokens), is_transcript=is_transcript)
    assert decoder.take_text() == ""


def test_a_token_is_decoded_a_few_times_however_long_the_answer() -> None:
    """The whole answer was decoded again for every token."""
    decoded: list[int] = []

    def counted(data: list[int]) -> str:
        decoded.append(len(data))
        return spoken(data)

    answer = "caf\u00e9 \U0001f436 and a word, " * 60
    decoder, words = AnswerDecoder(counted, is_transcript=False), []  # type: ignore[arg-type]
    for token in answer.encode():
        decoder.push([token])
        words.append(decoder.take_text())
    assert sum(decoded) < 10 * len(answer.encode())
    decoder.flush()
    assert "".join([*words, decoder.take_text()]) == answer.strip()


def test_words_come_before_the_end() -> None:
    """A plain answer at once; a transcript as soon as no sentence can be around it."""
    plain, transcript = AnswerDecoder(spoken, is_transcript=False), AnswerDecoder(spoken, is_transcript=True)  # type: ignore[arg-type]
    for decoder in (plain, transcript):
        decoder.push(list(b"Three dogs "))
    assert (plain.take_text(), transcript.take_text()) == ("Three dogs", "")
    transcript.push(list(b"bark " * 30))
    assert len(transcript.take_text()) > 120


@pytest.fixture(scope="module")
def folder(golden_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wordy_folder(tiny_folder(golden_root), tmp_path_factory.mktemp("wordy") / "audex")


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[oscine.Model]:
    with oscine.load(folder, device="cpu", dtype="float32") as model:
        yield model


def test_words_through_the_api(model: oscine.Model) -> None:
    heard: list[str] = []
    options = {"max_new_tokens": 12, "temperature": 1.0, "seed": 5}
    asked = model.ask((WAVE, 16000), "How many dogs?", on_text=heard.append, **options)  # type: ignore[arg-type]
    assert "".join(heard) == asked.text
    assert len(heard) > 1
    assert model.ask((WAVE, 16000), "How many dogs?", **options).text == asked.text  # type: ignore[arg-type]
    heard.clear()
    said = model.transcribe((WAVE, 16000), max_new_tokens=12, on_text=heard.append)
    assert "".join(heard) == said.text != ""


def test_words_of_a_run(model: oscine.Model) -> None:
    audio = AudioInput(samples=WAVE, sample_rate=16000)
    wanted = Request(task="ask", text="How many?", audio=audio, max_new_tokens=12, temperature=1.0, seed=5)
    with model.run(wanted) as stream:
        words = stream.words()
        first = next(words)
        assert first
        assert first + "".join(words) == stream.text
        assert stream.usage["output_tokens"] <= 12
    with model.run(wanted) as stream:
        assert list(stream) == []  # no audio
        assert stream.text


def test_leaving_ends_the_answer(model: oscine.Model) -> None:
    audio = AudioInput(samples=WAVE, sample_rate=16000)
    with model.run(Request(task="ask", text="How many?", audio=audio, seed=5, temperature=1.0)) as stream:
        next(stream.words())
        stream.cancel()
        assert list(stream.words()) == []
        assert stream.finish_reason == "cancelled"


def test_the_command_line_prints_the_answer(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "in.wav"
    soundfile.write(file, WAVE / 2, 16000)
    arguments = ["ask", str(file), "How many?", "--model", str(folder), "--device", "cpu"]
    arguments += ["--max-new-tokens", "12", "--temperature", "1.0", "--seed", "5"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    text = json.loads(capsys.readouterr().out)["text"]
    assert text
    assert printed == text + "\n"
