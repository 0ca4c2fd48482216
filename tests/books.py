"""Makes small books as files: EPUB 2 and 3 with a cover and a table of contents, for tests of reading and narrating."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

_CONTAINER = (
    '<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OPS/package.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)


def png(width: int = 8, height: int = 8) -> bytes:
    """A red picture."""
    rows = b"".join(b"\0" + bytes([200, 30, 30]) * width for _ in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def page(body: str, title: str = "page") -> str:
    """An XHTML document."""
    return (
        '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html><html xmlns="http://www.w3.org/1999/xhtml" '
        f'xmlns:epub="http://www.idpf.org/2007/ops"><head><title>{title}</title></head><body>{body}</body></html>'
    )


def write_epub(
    path: Path,
    documents: Sequence[tuple[str, str]],
    *,
    contents: Sequence[tuple[str, str]] = (),
    version: int = 3,
    title: str = "The Lamp",
    author: str = "A. Writer",
    cover: bytes | None = None,
    extra: Sequence[tuple[str, str]] = (),
) -> Path:
    """An EPUB of `documents` (name, XHTML) in reading order; `contents` are (link, title) of its table of contents."""
    items = [(name, "application/xhtml+xml", "") for name, _ in documents]
    files: dict[str, str | bytes] = {f"OPS/{name}": text for name, text in documents}
    if version == 3 and contents:
        links = "".join(f'<li><a href="{link}">{name}</a></li>' for link, name in contents)
        files["OPS/nav.xhtml"] = page(f'<nav epub:type="toc"><h1>Contents</h1><ol>{links}</ol></nav>')
        items.insert(0, ("nav.xhtml", "application/xhtml+xml", "nav"))
    if version == 2:
        points = "".join(
            f'<navPoint id="p{n}"><navLabel><text>{name}</text></navLabel><content src="{link}"/></navPoint>'
            for n, (link, name) in enumerate(contents)
        )
        files["OPS/toc.ncx"] = f'<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>{points}</navMap></ncx>'
        items.append(("toc.ncx", "application/x-dtbncx+xml", ""))
    if cover is not None:
        files["OPS/cover.png"] = cover
        items.append(("cover.png", "image/png", "cover-image" if version == 3 else ""))
    manifest = "".join(
        f'<item id="{name}" href="{name}" media-type="{kind}"' + (f' properties="{has}"' if has else "") + "/>"
        for name, kind, has in items
    )
    spine = "".join(f'<itemref idref="{name}"/>' for name, kind, _ in items if kind == "application/xhtml+xml")
    files["OPS/package.opf"] = (
        f'<package xmlns="http://www.idpf.org/2007/opf" version="{version}.0"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<dc:title>{title}</dc:title><dc:creator>{author}</dc:creator><dc:language>en</dc:language>"
        f'<dc:date>2020-05-01T00:00:00Z</dc:date><meta name="cover" content="cover.png"/></metadata>'
        f'<manifest>{manifest}</manifest><spine toc="toc.ncx">{spine}</spine></package>'
    )
    files["META-INF/container.xml"] = _CONTAINER
    files |= dict(extra)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip")
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def three_chapters(path: Path, *, version: int = 3) -> Path:
    """An EPUB with a cover and three short chapters."""
    documents = [
        (
            f"c{n}.xhtml",
            page(f"<h1>Chapter {n}</h1><p>It was day {n}. The lamp was lit.</p><p>Nobody came.</p>"),
        )
        for n in (1, 2, 3)
    ]
    contents = [(f"c{n}.xhtml", f"Chapter {n}") for n in (1, 2, 3)]
    return write_epub(path, documents, contents=contents, version=version, cover=png())
