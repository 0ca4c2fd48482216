"""Narrates a book chapter by chapter into a folder of finished parts, from which the audio files are put together.

A part is a lossless file and its entry in `narration.json`. Both are written whole, so an interrupted narration goes on
with the chapter it was in, and what comes out is the same bytes either way.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscine.books.document import Book, Chapter
from oscine.errors import InvalidRequest, OutputError
from oscine.seeds import derive_seed, fresh_seed
from oscine.text.subtitles import Cue
from oscine.types import FinishReason, Samples

if TYPE_CHECKING:
    from oscine.api import Model
    from oscine.result import PieceReport
    from oscine.stream import SpeechStream

VERSION = 1
_INDEX = "narration.json"
_BLOCK_SAMPLES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Part:
    """A narrated chapter: its file in the folder of parts, its length, its sentences, and what went wrong in it."""

    number: int
    title: str
    file: str
    num_samples: int
    finish_reason: FinishReason
    cues: tuple[Cue, ...]
    doubtful: tuple[str, ...]
    """Words of the segments that did not end by themselves: likely cut, silent or repetitive."""


class Narration:
    """A book on its way to audio. `parts` are the chapters that are done, always the first ones.

    `options` are keyword arguments of `Model.stream`; `seed` among them repeats the whole book.
    """

    def __init__(self, book: Book, options: Mapping[str, Any], folder: Path, *, resume: bool) -> None:
        """Begins in `folder`, or goes on with what is there.

        Raises InvalidRequest if an unfinished narration lies there and `resume` is not asked for, or if it is one of
        another text or with other options.
        """
        self.book = book
        self.folder = folder
        self.parts: tuple[Part, ...] = ()
        self.sample_rate = 0
        self._model_name = ""
        self._options = {name: value for name, value in options.items() if name != "seed"}
        self._digest = _digest(book.chapters, self._options)
        self.seed = options["seed"] if options.get("seed") is not None else fresh_seed()
        stored = self._stored()
        if stored is not None and not resume:
            raise InvalidRequest(
                f"{str(folder)!r} holds an unfinished narration ({len(stored['parts'])} of {len(book.chapters)} "
                "chapters): go on with --resume, or remove the folder to begin anew",
                param="resume",
            )
        if stored is not None:
            self._adopt(stored, options.get("seed"))

    def _stored(self) -> dict[str, Any] | None:
        path = self.folder / _INDEX
        try:
            stored = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidRequest(f"{str(path)!r} cannot be read: {error}; remove the folder", param="resume") from None
        if not isinstance(stored, dict) or stored.get("version") != VERSION:
            raise InvalidRequest(f"{str(path)!r} is of another version of oscine; remove the folder", param="resume")
        return stored

    def _adopt(self, stored: Mapping[str, Any], seed: int | None) -> None:
        if stored["digest"] != self._digest or (seed is not None and seed != stored["seed"]):
            raise InvalidRequest(
                f"{str(self.folder)!r} holds a narration of another text or with other options or another seed; "
                "repeat the command as it was, or remove the folder",
                param="resume",
            )
        self.seed, self.sample_rate, self._model_name = stored["seed"], stored["sample_rate"], stored["model"]
        parts = tuple(_part(entry) for entry in stored["parts"])
        for part in parts:
            if not (self.folder / part.file).is_file():
                raise InvalidRequest(f"{str(self.folder / part.file)!r} is missing; remove the folder", param="resume")
        self.parts = parts

    @property
    def is_complete(self) -> bool:
        """Whether every chapter is done."""
        return len(self.parts) == len(self.book.chapters)

    def open_chapter(self, model: Model, on_progress: Callable[[float], None] | None = None) -> SpeechStream:
        """Starts the next chapter; `on_progress` gets the share of it that is done. Hand it to `record`."""
        if self._model_name not in ("", model.capabilities.model):
            raise InvalidRequest(
                f"{str(self.folder)!r} was begun with {self._model_name}, not {model.capabilities.model}", param="model"
            )
        self._model_name = model.capabilities.model
        chapter = self.book.chapters[len(self.parts)]
        return model.stream(
            chapter.text,
            **self._options,
            seed=derive_seed(self.seed, len(self.parts)),
            on_progress=on_progress,
        )

    def record(self, stream: SpeechStream, on_audio: Callable[[float], None] = lambda seconds: None) -> Part:
        """Writes the chapter of `open_chapter` into the folder. `on_audio` gets the seconds made so far."""
        from oscine.audio.write import AudioWriter

        number = len(self.parts)
        self.sample_rate = stream.sample_rate
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot make the folder {str(self.folder)!r}: {error.strerror or error}") from error
        file = f"{number + 1:04}.flac"
        with stream, AudioWriter(self.folder / file, stream.sample_rate, "flac", seed=stream.seed) as writer:
            for chunk in stream:
                writer.write(chunk.samples)
                on_audio(writer.num_samples / stream.sample_rate)
        part = Part(
            number=number + 1,
            title=self.book.chapters[number].title,
            file=file,
            num_samples=writer.num_samples,
            finish_reason=stream.finish_reason,
            cues=tuple(_cues(stream.pieces)),
            doubtful=tuple(piece.text for piece in stream.pieces if piece.finish_reason != "stop"),
        )
        self.parts += (part,)
        self._store()
        return part

    def samples(self, part: Part) -> Iterator[Samples]:
        """The audio of a part, in blocks."""
        import soundfile

        path = self.folder / part.file
        try:
            with soundfile.SoundFile(path) as file:
                yield from file.blocks(_BLOCK_SAMPLES, dtype="float32")
        except (OSError, soundfile.LibsndfileError) as error:
            raise OutputError(f"cannot read {str(path)!r} back: {error}") from error

    def discard(self) -> None:
        """Removes the folder of parts, once what was to be made of it is made."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _store(self) -> None:
        stored = {
            "version": VERSION,
            "digest": self._digest,
            "model": self._model_name,
            "seed": self.seed,
            "sample_rate": self.sample_rate,
            "parts": [asdict(part) for part in self.parts],
        }
        path = self.folder / _INDEX
        new = path.with_suffix(".new")
        try:
            with new.open("w", encoding="utf-8") as file:
                json.dump(stored, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path)
        except OSError as error:
            with suppress(OSError):
                new.unlink()
            raise OutputError(f"cannot write {str(path)!r}: {error.strerror or error}") from error


def _digest(chapters: Sequence[Chapter], options: Mapping[str, Any]) -> str:
    """What must be equal for two narrations to give the same audio with one seed."""
    texts = [(chapter.title, chapter.text) for chapter in chapters]
    known = {name: _identity(value) for name, value in options.items()}
    return hashlib.sha256(json.dumps([texts, known], sort_keys=True).encode()).hexdigest()


def _identity(value: Any) -> Any:
    """An option as JSON: recorded audio by its samples, all else by its value."""
    samples = getattr(value, "samples", None)
    return value if samples is None else [hashlib.sha256(samples.tobytes()).hexdigest(), value.sample_rate]


def _part(entry: Mapping[str, Any]) -> Part:
    cues = tuple(Cue(**cue) for cue in entry["cues"])
    return Part(**{**entry, "cues": cues, "doubtful": tuple(entry["doubtful"])})


def _cues(pieces: Sequence[PieceReport]) -> Iterator[Cue]:
    """One cue a sentence: segments are put together until one ends a sentence."""
    words: list[str] = []
    start = 0.0
    for piece in pieces:
        start = start if words else piece.start_s
        words.append(piece.text)
        if piece.ends != "clause":
            yield Cue(text=" ".join(words), start_s=start, end_s=piece.start_s + piece.duration_s)
            words = []
    if words:
        yield Cue(text=" ".join(words), start_s=start, end_s=pieces[-1].start_s + pieces[-1].duration_s)
