"""What a book is once it is read: chapters of blocks, with the metadata and the cover it came with."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

BlockKind = Literal["heading", "paragraph", "scene_break"]

_BLOCK_MARK = re.compile(r"^(?=[#>+|=*-](?:\s|$))")
_SCENE_BREAK = re.compile(r"[\s*⁂#~•·—–_=-]+|\[?\s*(?:\*\s*){1,7}\]?")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A heading (`level` 1 is the highest), a paragraph, or a scene break, which has no text.

    `chapter_title` is set where a table of contents says that a chapter begins with this block.
    """

    kind: BlockKind
    text: str = ""
    level: int = 0
    chapter_title: str | None = None


@dataclass(frozen=True, kw_only=True)
class Cover:
    """A picture of the book: the bytes of a PNG or JPEG file and its media type."""

    data: bytes
    media_type: str


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """A part of a book that has a name of its own."""

    title: str
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        """The chapter as Markdown: what the text pipeline takes apart again into headings, paragraphs and breaks."""
        return "\n\n".join(_markdown(block) for block in self.blocks)

    @property
    def is_speakable(self) -> bool:
        """Whether there is anything to say."""
        return any(char.isalnum() for block in self.blocks for char in block.text)


@dataclass(frozen=True, kw_only=True)
class Book:
    """A whole book. `title`, `author`, `language`, `publisher`, `date` and `description` are empty where unknown."""

    title: str = ""
    author: str = ""
    language: str = ""
    publisher: str = ""
    date: str = ""
    description: str = ""
    chapters: tuple[Chapter, ...] = ()
    cover: Cover | None = field(default=None, repr=False)


def paragraph_block(text: str) -> Block | None:
    """The block of a paragraph: None if it is blank, a scene break if it is made of asterisks, dashes and the like."""
    text = " ".join(text.split())
    if not text:
        return None
    return Block(kind="scene_break") if _SCENE_BREAK.fullmatch(text) else Block(kind="paragraph", text=text)


def into_chapters(blocks: Sequence[Block], *, book_title: str = "") -> tuple[str, tuple[Chapter, ...]]:
    """The book's title and its chapters, from blocks in reading order.

    Chapters begin where blocks carry a `chapter_title`; where none does, at the headings of the highest level that
    occurs more than once. A single heading above them names the book. Headings in a row begin one chapter, what
    precedes the first one is a chapter too, and chapters with nothing to say are left out.
    """
    by_contents = any(block.chapter_title is not None for block in blocks)
    level = 0 if by_contents else _chapter_level(blocks)
    title = book_title
    chapters: list[list[Block]] = [[]]
    for block in blocks:
        starts = block.chapter_title is not None if by_contents else block.kind == "heading" and block.level <= level
        if starts and any(other.kind != "heading" for other in chapters[-1]):
            chapters.append([])
        if not title and not by_contents and block.kind == "heading" and block.level < level:
            title = block.text
        chapters[-1].append(block)
    made = (Chapter(title=_title(own, number, title), blocks=_trimmed(own)) for number, own in enumerate(chapters, 1))
    return title, tuple(chapter for chapter in made if chapter.is_speakable)


def _chapter_level(blocks: Iterable[Block]) -> int:
    counts = Counter(block.level for block in blocks if block.kind == "heading")
    return min((level for level, count in counts.items() if count > 1), default=min(counts, default=0))


def _title(blocks: Sequence[Block], number: int, book_title: str) -> str:
    """The name of a chapter: what the table of contents calls it, else its own headings, else its number."""
    named = [block.chapter_title for block in blocks if block.chapter_title]
    headings: list[str] = []
    for block in blocks:
        if block.kind != "heading":
            break
        if block.text != book_title:
            headings.append(block.text.strip(" .:"))
    return (named[0] if named else ". ".join(headings)) or f"Part {number}"


def _trimmed(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Without scene breaks at either end, where the pause of a chapter is."""
    kept = list(blocks)
    while kept and kept[-1].kind == "scene_break":
        kept.pop()
    while kept and kept[0].kind == "scene_break":
        kept.pop(0)
    return tuple(kept)


def _markdown(block: Block) -> str:
    if block.kind == "scene_break":
        return "* * *"
    text = _BLOCK_MARK.sub(r"\\", block.text)
    return f"{'#' * min(max(block.level, 1), 6)} {text}" if block.kind == "heading" else text
