"""Blocks of Markdown and of plain text, with the metadata a Markdown file may begin with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from oscine.books.document import Block, paragraph_block
from oscine.books.html import parse_html
from oscine.errors import InvalidRequest, UnsupportedFeature

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.{0,20000}?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_CHAPTER_WORD = re.compile(
    r"(?:chapter|book|part|volume|canto|act|scene|letter|section|stave)\s+(?:\d{1,4}|[ivxlcdm]{1,12}|"
    r"(?:the\s+)?[a-z]+(?:-[a-z]+)?)\b.{0,80}|(?:prologue|epilogue|introduction|preface|foreword|afterword|interlude|"
    r"conclusion|appendix(?:\s+\w{1,3})?|acknowledge?ments?|contents)[.:]?",
    re.IGNORECASE,
)
_SPELLED = re.compile(r"[a-z]", re.ASCII)
_HEADING_LENGTH = 80


def parse_markdown(source: str) -> tuple[list[Block], dict[str, str]]:
    """The blocks of a Markdown text (CommonMark), and its YAML front matter where it has one.

    Raises UnsupportedFeature without the `markdown-it-py` package and InvalidRequest for broken front matter.
    """
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise UnsupportedFeature(
            "reading Markdown as a book needs markdown-it-py: pip install 'oscine[books]'", param="file"
        ) from error
    metadata, body = _front_matter(source)
    blocks, _ = parse_html(MarkdownIt("commonmark").enable("table").render(body))
    return blocks, metadata


def parse_plain(source: str) -> list[Block]:
    """The blocks of a plain text: paragraphs stand between empty lines, their lines are joined.

    A short paragraph that begins like "Chapter 7" is a heading, or else one in capitals that ends no sentence; the
    latter are below the former where a text has both.
    """
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n[^\S\n]*\n", source.replace("\r\n", "\n"))]
    named = any(_is_chapter_line(text) for text in paragraphs)
    blocks: list[Block] = []
    for text in paragraphs:
        block = paragraph_block(text)
        if block is None:
            continue
        if block.kind == "paragraph" and (_is_chapter_line(text) or _is_capitals(text)):
            block = Block(kind="heading", text=text, level=2 if named and not _is_chapter_line(text) else 1)
        blocks.append(block)
    return blocks


def _front_matter(source: str) -> tuple[dict[str, str], str]:
    import yaml

    match = _FRONT_MATTER.match(source)
    if not match:
        return {}, source
    try:
        found: Any = yaml.safe_load(match.group(1))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InvalidRequest(
            f"the front matter is not YAML: {' '.join(str(error).split())[:200]}", param="file"
        ) from None
    if not isinstance(found, Mapping):
        return {}, source
    simple = {str(key).lower(): _joined(value) for key, value in found.items()}
    return {key: value for key, value in simple.items() if value}, source[match.end() :]


def _joined(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value if isinstance(item, (str, int)))
    return "" if value is None or isinstance(value, Mapping) else str(value)


def _is_chapter_line(text: str) -> bool:
    if len(text) > _HEADING_LENGTH or not _CHAPTER_WORD.fullmatch(text):
        return False
    words = text.split()
    return len(words) <= 2 or not _SPELLED.search(text) or words[1][:1].isupper() or words[1][:1].isdigit()


def _is_capitals(text: str) -> bool:
    """Whether a paragraph is set in capitals as a heading is: short, and not an exclamation or a question."""
    return len(text) <= _HEADING_LENGTH and text.isupper() and len(text) > 1 and text[-1] not in "!?\"'”’,;"
