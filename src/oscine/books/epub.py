"""Reads EPUB 2 and 3: metadata, cover, reading order and table of contents, from the archive alone.

Nothing outside the archive is opened, no entity is resolved, and what an archive may unpack to is bounded.
"""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote
from xml.etree import ElementTree

from oscine.books.document import Block, Book, Cover, into_chapters
from oscine.books.html import parse_html
from oscine.errors import InvalidRequest

MAX_FILE_BYTES = 32 << 20
"""The most that one file of the archive may unpack to."""
MAX_TEXT_BYTES = 256 << 20
"""The most that all documents of a book may unpack to."""

_CONTAINER = "META-INF/container.xml"
_DOCUMENTS = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
_PICTURES = ("image/jpeg", "image/png")


@dataclass(frozen=True, kw_only=True)
class _Item:
    """An entry of the manifest: where its file is in the archive, its media type and properties."""

    path: str
    media_type: str
    properties: tuple[str, ...]


def read_epub(path: Path) -> Book:
    """The book in an EPUB file: chapters in reading order, named by its table of contents or else its headings.

    Raises InvalidRequest if it is no EPUB, is damaged, is encrypted, or unpacks to more than the limits.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _Epub(archive).read()
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        _refuse(f"{path.name} is no EPUB that can be read: {error}")


class _Epub:
    """An open archive and its package document."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._text_bytes = 0
        container = self._xml(_CONTAINER)
        root = next((item.get("full-path") for item in _named(container, "rootfile")), None)
        if not root:
            _refuse(f"{_CONTAINER} names no package document")
        if "META-INF/encryption.xml" in archive.namelist() and _encrypts_text(self._xml("META-INF/encryption.xml")):
            _refuse("the book is encrypted (it has DRM); only books without it can be read")
        self._folder = posixpath.dirname(root)
        self._package = self._xml(root)
        self._items = {item.get("id", ""): self._item(item) for item in _named(self._package, "item")}

    def read(self) -> Book:
        metadata = {name: self._metadata(name) for name in ("title", "creator", "language", "publisher", "description")}
        blocks = list(self._blocks())
        _, chapters = into_chapters(blocks, book_title=metadata["title"])
        return Book(
            title=metadata["title"],
            author=metadata["creator"],
            language=metadata["language"],
            publisher=metadata["publisher"],
            description=metadata["description"],
            date=self._metadata("date")[:10],
            chapters=chapters,
            cover=self._cover(),
        )

    def _blocks(self) -> Iterator[Block]:
        titles = self._contents()
        for item in self._reading_order():
            source = self._read(item.path, text=True).decode("utf-8-sig", errors="replace")
            yield from parse_html(source, titles.get(item.path))[0]

    def _reading_order(self) -> Iterator[_Item]:
        """The documents of the spine, without the table of contents and what is outside the reading order."""
        for reference in _named(self._package, "itemref"):
            item = self._items.get(reference.get("idref", ""))
            if item is None:
                _refuse(f"the reading order names {reference.get('idref')!r}, which the book does not hold")
            if reference.get("linear") != "no" and item.media_type in _DOCUMENTS and "nav" not in item.properties:
                yield item

    def _contents(self) -> dict[str, dict[str, str]]:
        """Names of chapters by document and by the id they begin at ("" for its start)."""
        nav = next((item for item in self._items.values() if "nav" in item.properties), None)
        if nav is not None:
            entries = self._nav_entries(nav.path)
        else:
            spine = next(_named(self._package, "spine"), None)
            ncx = self._items.get(spine.get("toc", "") if spine is not None else "")
            entries = self._ncx_entries(ncx.path) if ncx else iter(())
        titles: dict[str, dict[str, str]] = {}
        for path, fragment, title in entries:
            if title:
                titles.setdefault(path, {}).setdefault(fragment, title)
        return titles

    def _nav_entries(self, path: str) -> Iterator[tuple[str, str, str]]:
        """EPUB 3: the links of the navigation document's table of contents."""
        root = self._xml(path)
        navs = list(_named(root, "nav"))
        kind = "{http://www.idpf.org/2007/ops}type"
        toc = next((nav for nav in navs if "toc" in (nav.get(kind) or "").split()), navs[0] if navs else None)
        for link in _named(toc, "a") if toc is not None else ():
            yield (*_target(path, link.get("href", "")), _text_of(link))

    def _ncx_entries(self, path: str) -> Iterator[tuple[str, str, str]]:
        """EPUB 2: the points of the NCX."""
        for point in _named(self._xml(path), "navPoint"):
            content = next((child for child in point if _local(child) == "content"), None)
            label = next((child for child in point if _local(child) == "navLabel"), None)
            if content is not None and label is not None:
                yield (*_target(path, content.get("src", "")), _text_of(label))

    def _cover(self) -> Cover | None:
        named = next(
            (item.get("content") for item in _named(self._package, "meta") if item.get("name") == "cover"), None
        )
        by_property = (item for item in self._items.values() if "cover-image" in item.properties)
        cover = next(by_property, self._items.get(named or ""))
        if cover is None or cover.media_type not in _PICTURES:
            return None
        return Cover(data=self._read(cover.path), media_type=cover.media_type)

    def _metadata(self, name: str) -> str:
        """All entries of a Dublin Core element, in order."""
        found = [_text_of(element) for element in _named(self._package, name) if "purl.org/dc" in element.tag]
        joined = found if name == "creator" else found[:1]
        return ", ".join(text for text in joined if text)

    def _item(self, element: ElementTree.Element) -> _Item:
        return _Item(
            path=posixpath.normpath(posixpath.join(self._folder, unquote(element.get("href", "")))),
            media_type=element.get("media-type", ""),
            properties=tuple((element.get("properties") or "").split()),
        )

    def _xml(self, name: str) -> ElementTree.Element:
        data = self._read(name)
        if b"<!ENTITY" in data:
            _refuse(f"{name} declares entities, which no book needs and which can be used to fill the memory")
        try:
            return ElementTree.fromstring(data)
        except (ElementTree.ParseError, RecursionError, ValueError) as error:
            _refuse(f"{name} is not well-formed: {error}")

    def _read(self, name: str, *, text: bool = False) -> bytes:
        try:
            info = self._archive.getinfo(name)
            if info.flag_bits & 1:
                _refuse(f"{name} is encrypted")
            with self._archive.open(info) as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except KeyError:
            _refuse(f"the book lacks its file {name!r}")
        except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, ValueError) as error:
            _refuse(f"{name} cannot be unpacked: {error}")
        self._text_bytes += len(data) if text else 0
        if len(data) > MAX_FILE_BYTES or self._text_bytes > MAX_TEXT_BYTES:
            _refuse(
                f"{name} unpacks to too much: a file may have {MAX_FILE_BYTES >> 20} MiB, all text of a book "
                f"{MAX_TEXT_BYTES >> 20} MiB"
            )
        return data


def _encrypts_text(encryption: ElementTree.Element) -> bool:
    """Whether more than fonts is encrypted."""
    methods = [item.get("Algorithm", "") for item in _named(encryption, "EncryptionMethod")]
    return any("idpf.org" not in method and "adobe.com" not in method for method in methods)


def _target(base: str, reference: str) -> tuple[str, str]:
    """The path in the archive and the fragment that a link in the document `base` leads to."""
    href, _, fragment = reference.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(base), unquote(href))) if href else base
    return path, unquote(fragment)


def _named(root: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return (element for element in root.iter() if _local(element) == name)


def _local(element: ElementTree.Element) -> str:
    """The name of an element without its namespace."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _text_of(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def _refuse(message: str) -> NoReturn:
    raise InvalidRequest(message, param="file")
