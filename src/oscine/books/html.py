"""Blocks of an HTML or XHTML document: headings, paragraphs, list items, rows and rules, in reading order."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser

from oscine.books.document import Block, paragraph_block
from oscine.text.wordlist import word_set

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_SKIPPED = word_set("script style head template svg math audio video iframe object select textarea noscript")
_BREAKING = word_set(
    """
    address article aside blockquote body br caption center dd details div dl dt fieldset figcaption figure footer
    form header html li main nav ol p pre section summary table tbody tfoot thead tr ul
    """
)
_VOID = word_set("area base br col embed hr img input link meta source track wbr")
_SUBSCRIPTS = str.maketrans("0123456789+-=()", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎")
_SUPERSCRIPTS = str.maketrans("0123456789+-=()n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿ")
_NOTE_TYPES = ("noteref", "footnote", "endnote", "rearnote", "pagebreak")


def parse_html(source: str, chapter_titles: Mapping[str, str] | None = None) -> tuple[list[Block], str]:
    """The blocks of a document, and its `<title>`.

    `chapter_titles` maps ids of elements, "" for the start of the document, to the names of chapters that begin there.
    Marks and texts of footnotes (EPUB's semantic types) and numbers of printed pages are left out.
    """
    parser = _BlockParser(dict(chapter_titles or {}))
    parser.feed(source)
    parser.close()
    return parser.finish()


class _BlockParser(HTMLParser):
    def __init__(self, chapter_titles: dict[str, str]) -> None:
        super().__init__(convert_charrefs=True)
        self._titles = chapter_titles
        self._pending = chapter_titles.get("")
        self._blocks: list[Block] = []
        self._text: list[str] = []
        self._level = 0
        self._skipped: list[str] = []
        self._script: list[str] = []
        self._head: list[str] = []
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._in_title = not self._head
        if self._skipped:
            if tag == self._skipped[-1] and tag not in _VOID:
                self._skipped.append(tag)
            return
        attributes = dict(attrs)
        if tag in _SKIPPED or _is_note(attributes):
            if tag not in _VOID:
                self._skipped.append(tag)
            return
        if tag in _BREAKING or tag in _HEADINGS or tag == "hr":
            self._end_block()
        if (title := self._titles.get(attributes.get("id") or "")) is not None and attributes.get("id"):
            self._end_block()
            self._pending = title
        if tag in _HEADINGS:
            self._level = _HEADINGS[tag]
        elif tag == "hr":
            self._add(Block(kind="scene_break"))
        elif tag in ("td", "th") and self._text:
            self._text.append(", ")
        elif tag in ("sub", "sup"):
            self._script.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._skipped:
            if tag == self._skipped[-1]:
                self._skipped.pop()
            return
        if tag in ("sub", "sup") and self._script:
            self._script.pop()
        if tag in _HEADINGS or tag in _BREAKING:
            self._end_block()
            self._level = 0 if tag in _HEADINGS else self._level

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._head.append(data)
        elif not self._skipped:
            self._text.append(_scripted(data, self._script[-1]) if self._script else data)

    def finish(self) -> tuple[list[Block], str]:
        self._end_block()
        return self._blocks, " ".join("".join(self._head).split())

    def _end_block(self) -> None:
        text, self._text = "".join(self._text), []
        block = paragraph_block(text)
        if block is None:
            return
        if self._level and block.kind == "paragraph":
            block = Block(kind="heading", text=block.text, level=self._level)
        self._add(block)

    def _add(self, block: Block) -> None:
        if self._pending is not None:
            block = Block(kind=block.kind, text=block.text, level=block.level, chapter_title=self._pending)
            self._pending = None
        self._blocks.append(block)


def _is_note(attributes: Mapping[str, str | None]) -> bool:
    kinds = f"{attributes.get('epub:type') or ''} {attributes.get('role') or ''}".replace("doc-", "").split()
    return any(kind in _NOTE_TYPES for kind in kinds)


def _scripted(text: str, tag: str) -> str:
    """Digits and signs below or above the line as the characters for it; other text as it is."""
    moved = text.translate(_SUBSCRIPTS if tag == "sub" else _SUPERSCRIPTS)
    return moved if all(char.isspace() or char not in text for char in moved) else text
