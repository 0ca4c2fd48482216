"""Reads a book from a file of any of the kinds people have: EPUB, HTML, Markdown, plain text."""

from __future__ import annotations

import re
import zipfile
from dataclasses import replace
from pathlib import Path

from oscine.books.document import Book, Cover, into_chapters
from oscine.books.epub import MAX_TEXT_BYTES, read_epub
from oscine.books.html import parse_html
from oscine.books.plain import parse_markdown, parse_plain
from oscine.errors import InvalidRequest

BOOK_SUFFIXES = (".epub", ".html", ".htm", ".xhtml", ".md", ".markdown", ".txt")
_MAGIC = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg"}
_CHARSET = re.compile(
    rb"<meta[^<>]{0,200}?charset\s*=\s*[\"']?([\w-]{1,40})|encoding=[\"']([\w-]{1,40})", re.IGNORECASE
)


def read_book(path: Path, *, cover: Path | None = None) -> Book:
    """The book in a file, by its content where that tells (EPUB) and else by its ending; `.txt` for other endings.

    `cover` is a PNG or JPEG in place of the book's own. Raises InvalidRequest if the file cannot be read, is not text
    of its kind, or has nothing to say.
    """
    try:
        book = _read(path)
    except OSError as error:
        raise InvalidRequest(f"cannot read {str(path)!r}: {error.strerror or error}", param="file") from error
    if not book.chapters:
        raise InvalidRequest(f"{path.name} holds nothing that can be spoken", param="file")
    if cover is None:
        return book
    return replace(book, cover=read_cover(cover))


def read_cover(path: Path) -> Cover:
    """The picture in a file. Raises InvalidRequest unless it is a PNG or a JPEG."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"cannot read {str(path)!r}: {error.strerror or error}", param="cover") from error
    media_type = next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), None)
    if media_type is None:
        raise InvalidRequest(f"{path.name} is neither a PNG nor a JPEG", param="cover")
    return Cover(data=data, media_type=media_type)


def _read(path: Path) -> Book:
    suffix = path.suffix.lower()
    if suffix == ".epub" or zipfile.is_zipfile(path):
        return read_epub(path)
    if path.stat().st_size > MAX_TEXT_BYTES:
        raise InvalidRequest(f"{path.name} is larger than {MAX_TEXT_BYTES >> 20} MiB", param="file")
    data = path.read_bytes()
    if suffix in (".html", ".htm", ".xhtml"):
        blocks, head = parse_html(_decoded(path, data, _charset(data)))
        title, chapters = into_chapters(blocks, book_title=head)
        return Book(title=title, chapters=chapters)
    text = _decoded(path, data, "utf-8-sig")
    if suffix in (".md", ".markdown"):
        blocks, metadata = parse_markdown(text)
        title, chapters = into_chapters(blocks, book_title=metadata.get("title", ""))
        return Book(
            title=title,
            author=metadata.get("author", ""),
            language=metadata.get("language") or metadata.get("lang", ""),
            publisher=metadata.get("publisher", ""),
            date=metadata.get("date", ""),
            description=metadata.get("description", ""),
            chapters=chapters,
        )
    title, chapters = into_chapters(parse_plain(text))
    return Book(title=title, chapters=chapters)


def _charset(data: bytes) -> str:
    """The encoding a document declares in its first kilobyte, else UTF-8."""
    match = _CHARSET.search(data[:1024])
    return (match.group(1) or match.group(2)).decode("ascii") if match else "utf-8-sig"


def _decoded(path: Path, data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except LookupError:
        raise InvalidRequest(f"{path.name} declares an unknown encoding, {encoding!r}", param="file") from None
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path.name} is not {encoding} text (byte {error.start})", param="file") from error
