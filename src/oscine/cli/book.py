"""`oscine say --file` for books: chapters found, narrated one by one, resumed, and put together with marks."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscine.cli.arguments import loaded_model, print_json
from oscine.cli.render import shorten
from oscine.errors import InvalidRequest

if TYPE_CHECKING:
    from oscine.books.assemble import BookOutput
    from oscine.books.document import Book
    from oscine.books.narrate import Narration

CHAPTER_PAUSE_S = 2.0
_DOCUMENTS = (".epub", ".html", ".htm", ".xhtml", ".md", ".markdown")


def add_book_arguments(parser: argparse.ArgumentParser) -> None:
    """What a book can be told beside what any text can."""
    group = parser.add_argument_group(
        "books",
        "A --file of .epub, .html or .md is narrated by chapters, any other text with one of these options or to .m4b.",
    )
    group.add_argument("--split", choices=("chapters",), help="one file a chapter, in a folder named like OUT")
    group.add_argument("--subtitles", choices=("srt", "vtt"), help="write subtitles beside the audio, a cue a sentence")
    group.add_argument("--resume", action="store_true", help="go on with the chapter that was interrupted")
    group.add_argument("--cover", metavar="PICTURE", help="a PNG or JPEG to put into the file; default: the book's own")
    group.add_argument(
        "--chapter-pause-s", type=float, default=None, metavar="X", help="silence between chapters (default: 2)"
    )


def is_book(args: argparse.Namespace) -> bool:
    """Whether the command line asks for a narration by chapters. Raises InvalidRequest for options that need one."""
    asked = [name for name in ("split", "subtitles", "resume", "cover", "chapter_pause_s") if getattr(args, name)]
    file, output = args.file or "-", args.output or "-"
    if output == "-" and not args.dry_run and file.lower().endswith(".epub"):
        raise InvalidRequest("a book is written to a file; name it with -o", param="output")
    if file == "-" or (output == "-" and not args.dry_run):
        if asked:
            raise InvalidRequest(
                f"--{asked[0].replace('_', '-')} is for a --file that is written to a file", param=asked[0]
            )
        return False
    return bool(asked) or Path(file).suffix.lower() in _DOCUMENTS or output.lower().endswith(".m4b")


def run_book(args: argparse.Namespace, options: dict[str, Any]) -> int:
    """Narrates `args.file` with `options`, the keyword arguments of `Model.stream` but for the text."""
    from oscine.books.assemble import BookOutput
    from oscine.books.narrate import Narration
    from oscine.books.reader import read_book

    for name in ("format", "stream", "trim"):
        if getattr(args, name):
            raise InvalidRequest(f"--{name} is not for books", param=name)
    book = read_book(Path(args.file), cover=Path(args.cover) if args.cover else None)
    if args.dry_run:
        return _show(args, book, options)
    output = BookOutput(
        Path(args.output),
        book,
        split=args.split is not None,
        subtitles=args.subtitles,
        chapter_pause_s=CHAPTER_PAUSE_S if args.chapter_pause_s is None else args.chapter_pause_s,
    )
    if args.subtitles:
        options = {**options, "by_sentence": True}
    narration = Narration(book, options, output.parts_folder, resume=args.resume)
    if len(book.chapters) > 1 and args.split is None and not output.marks_chapters:
        print(
            f"oscine: {args.output} will have no chapter marks; m4b, mp3, opus and flac have them where PyAV is "
            "installed",
            file=sys.stderr,
        )
    started = time.perf_counter()
    paths = [output.write_chapter(narration, part) for part in narration.parts]
    if narration.is_complete:
        print("oscine: all chapters were narrated before; writing the files", file=sys.stderr)
    else:
        try:
            paths += _narrate(args, narration, output)
        except KeyboardInterrupt:
            print(f"oscine: {len(narration.parts)} chapters are done; go on with --resume", file=sys.stderr)
            raise
    paths.append(output.write_book(narration))
    took_s = time.perf_counter() - started
    _report(args, narration, [str(path) for path in paths if path], output.duration_s(narration), took_s)
    narration.discard()
    return 0


def _narrate(args: argparse.Namespace, narration: Narration, output: BookOutput) -> list[Path | None]:
    """Narrates the chapters that are left; the files of single chapters are written at once."""
    paths = []
    with loaded_model(args) as model, _Progress(narration) as progress:
        while not narration.is_complete:
            progress.begin_chapter()
            stream = narration.open_chapter(model, progress.work_done)
            part = narration.record(stream, progress.audio)
            for words in part.doubtful:
                progress.say(
                    f"oscine: warning: chapter {part.number}: a segment ended by {part.finish_reason!r} at worst: "
                    f"{shorten(words)!r}; check it, or try another --seed"
                )
            paths.append(output.write_chapter(narration, part))
    return paths


def _report(args: argparse.Namespace, narration: Narration, paths: list[str], seconds: float, took_s: float) -> None:
    if args.json:
        chapters = [
            {
                "title": part.title,
                "duration_s": part.num_samples / narration.sample_rate,
                "finish_reason": part.finish_reason,
                "doubtful": list(part.doubtful),
            }
            for part in narration.parts
        ]
        print_json({"paths": paths, "duration_s": seconds, "seed": narration.seed, "chapters": chapters})
        return
    where = paths[0] if len(paths) == 1 else f"{len(paths)} files in {Path(paths[0]).parent}"
    print(
        f"{where}: {len(narration.parts)} chapters, {seconds:.1f} s in {took_s:.1f} s, seed {narration.seed}",
        file=sys.stderr,
    )


def _show(args: argparse.Namespace, book: Book, options: dict[str, Any]) -> int:
    """What would be spoken: the chapters and, for each, its segments."""
    with loaded_model(args) as model:
        chapters = [
            {"title": chapter.title, "spoken": list(model.plan(chapter.text, **options).spoken_text)}
            for chapter in book.chapters
        ]
    if args.json:
        print_json({"title": book.title, "author": book.author, "chapters": chapters})
        return 0
    print(f"{book.title or 'untitled'}, by {book.author or 'an unknown author'}: {len(chapters)} chapters")
    for number, chapter in enumerate(chapters, 1):
        print(f"\n{number:3}  {chapter['title']}")
        for spoken in chapter["spoken"]:
            print(f"     {spoken}")
    return 0


class _Progress:
    """A bar over the characters of the book on stderr, if that is a terminal; it names the chapter."""

    def __init__(self, narration: Narration) -> None:
        from tqdm import tqdm

        self._narration = narration
        self._lengths = [len(chapter.text) for chapter in narration.book.chapters]
        done = sum(self._lengths[: len(narration.parts)])
        layout = "{desc}{percentage:3.0f}% {bar}| {elapsed}, {remaining} left{postfix}"
        self._bar = tqdm(
            total=sum(self._lengths), initial=done, bar_format=layout, leave=False, disable=None, file=sys.stderr
        )

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()

    def begin_chapter(self) -> None:
        """The next chapter begins."""
        number = len(self._narration.parts)
        title = shorten(self._narration.book.chapters[number].title, 30)
        self._bar.set_description_str(f"{number + 1}/{len(self._lengths)} {title} ")

    def work_done(self, share: float) -> None:
        """`share` of the chapter, 0 to 1, is done."""
        number = len(self._narration.parts)
        self._bar.update(sum(self._lengths[:number]) + share * self._lengths[number] - self._bar.n)

    def audio(self, seconds: float) -> None:
        """So much of the chapter's audio has been made."""
        self._bar.set_postfix_str(f"{seconds:.0f} s")

    def say(self, message: str) -> None:
        """A line on stderr that leaves the bar whole."""
        self._bar.write(message, file=sys.stderr)
