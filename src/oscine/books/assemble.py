"""Puts narrated parts together: one marked file, or one a chapter, and subtitles beside them."""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from oscine.audio.marked import MARKED_FORMATS, ChapterMark, check_marked, write_marked
from oscine.audio.write import AudioWriter, format_of
from oscine.books.document import Book
from oscine.books.narrate import Narration, Part
from oscine.errors import InvalidRequest, OutputError
from oscine.text.subtitles import Cue, SubtitleFormat, write_subtitles
from oscine.types import Samples

_UNSAFE = re.compile(r"[^\w\s.,'()&+-]+")
_NAME_LENGTH = 60


class BookOutput:
    """Where the audio of a book goes: `path` itself, or with `split` files in a folder named like it.

    `chapter_pause_s` seconds of silence stand between chapters of one file. Raises OutputError, InvalidRequest or
    UnsupportedFeature for what cannot be written, before any work.
    """

    def __init__(
        self, path: Path, book: Book, *, split: bool, subtitles: SubtitleFormat | None, chapter_pause_s: float
    ) -> None:
        self.path = path
        self._split, self._subtitles, self._pause_s = split, subtitles, chapter_pause_s
        self._digits = max(2, len(str(len(book.chapters))))
        self._format = path.suffix.lower().lstrip(".")
        if self._format != "m4b":
            format_of(path)
        self._marked = self._format in MARKED_FORMATS and (self._format == "m4b" or _has_pyav())
        if self._marked:
            check_marked(book.cover.data if book.cover else None)
        if not path.parent.is_dir():
            raise OutputError(f"cannot write {str(path)!r}: no folder {str(path.parent)!r}")
        if not split and path.is_dir():
            raise OutputError(f"cannot write {str(path)!r}: it is a folder")
        if not 0 <= chapter_pause_s <= 60:
            raise InvalidRequest(
                f"chapter_pause_s must be between 0 and 60, got {chapter_pause_s!r}", param="chapter_pause_s"
            )

    @property
    def parts_folder(self) -> Path:
        """Where parts are kept until the book is complete."""
        return self.path.with_name(f"{self.path.name}.parts")

    @property
    def marks_chapters(self) -> bool:
        """Whether the file will have chapter marks: the format has them and PyAV is there to write them."""
        return self._marked

    def duration_s(self, narration: Narration) -> float:
        """Seconds of audio in all files together, pauses between chapters included."""
        spoken = sum(part.num_samples for part in narration.parts) / narration.sample_rate
        return spoken + (0.0 if self._split else self._pause_s * (len(narration.parts) - 1))

    def write_chapter(self, narration: Narration, part: Part) -> Path | None:
        """With `split`, writes the file of one part and its subtitles, and returns its path."""
        if not self._split:
            return None
        folder = self.path.with_suffix("")
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot make the folder {str(folder)!r}: {error.strerror or error}") from error
        name = _UNSAFE.sub(" ", part.title)
        name = " ".join(name.split())[:_NAME_LENGTH].strip(" .") or "chapter"
        path = folder / f"{part.number:0{self._digits}} {name}.{self._format}"
        tags = _tags(narration.book, title=part.title, track=f"{part.number}/{len(narration.book.chapters)}")
        self._write(path, narration, [part], tags)
        return path

    def write_book(self, narration: Narration) -> Path | None:
        """Without `split`, writes the whole book and its subtitles, and returns its path."""
        if self._split:
            return None
        self._write(self.path, narration, narration.parts, _tags(narration.book, title=narration.book.title))
        return self.path

    def _write(self, path: Path, narration: Narration, parts: Sequence[Part], tags: Mapping[str, str]) -> None:
        rate = narration.sample_rate
        pause = round(self._pause_s * rate)
        marks: list[ChapterMark] = []
        position = 0
        for number, part in enumerate(parts):
            end = position + part.num_samples + (pause if number < len(parts) - 1 else 0)
            marks.append(ChapterMark(title=part.title, start=position, end=end))
            position = end
        if self._marked:
            cover = narration.book.cover
            blocks = _blocks(narration, parts, pause)
            write_marked(path, blocks, rate, marks=marks, tags=tags, cover=cover.data if cover else None)
        else:
            with AudioWriter(path, rate, seed=narration.seed) as writer:
                for block in _blocks(narration, parts, pause):
                    writer.write(block)
        if self._subtitles:
            cues = [
                Cue(text=cue.text, start_s=mark.start / rate + cue.start_s, end_s=mark.start / rate + cue.end_s)
                for part, mark in zip(parts, marks, strict=True)
                for cue in part.cues
            ]
            _write_text(path.with_suffix(f".{self._subtitles}"), write_subtitles(cues, self._subtitles))


def _has_pyav() -> bool:
    return importlib.util.find_spec("av") is not None


def _blocks(narration: Narration, parts: Sequence[Part], pause: int) -> Iterator[Samples]:
    for number, part in enumerate(parts):
        if number:
            yield np.zeros(pause, np.float32)
        yield from narration.samples(part)


def _tags(book: Book, *, title: str, track: str = "") -> dict[str, str]:
    """The tags of a file, by FFmpeg's names; those that are unknown are left out."""
    tags = {
        "title": title,
        "album": book.title,
        "artist": book.author,
        "album_artist": book.author,
        "publisher": book.publisher,
        "date": book.date,
        "language": book.language,
        "comment": " ".join(book.description.split())[:1000],
        "track": track,
        "genre": "Audiobook",
    }
    return {name: value for name, value in tags.items() if value}


def _write_text(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        os.replace(part, path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
