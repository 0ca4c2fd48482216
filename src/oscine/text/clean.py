"""What is done to any user text before it is spoken, whatever the family and the language.

Text arrives as people write it: markdown, HTML, links, emoji, typographic quotes, control characters.
`clean_text` leaves the words and the punctuation that carries pauses; it never translates, expands or re-
orders anything.
"""

from __future__ import annotations

import html
import re
import unicodedata
from dataclasses import dataclass, replace
from typing import Literal

from oscine.cancellation import check_cancelled
from oscine.text.markup import BREAK_MARK, HEADING_MARK, ITEM_MARK, strip_html, strip_markdown
from oscine.text.scripts import is_cjk

LinkPolicy = Literal["site", "keep", "drop"]
"""`site`: a URL becomes its host name; `keep`: it stays; `drop`: it goes."""

_URL = re.compile(r"(?:https?|ftp)://[^\s<>\"'()（）]+|\bwww\.[^\s<>\"'()（）]+", re.IGNORECASE)
_HOST = re.compile(r"^(?:[a-z]+://)?(?:[^/@]*@)?(?:www\.)?([^/:?#]*)", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
_PICTURE = re.compile(
    "[\U0001f000-\U0001faff\U000e0020-\U000e007f\u2190-\u21ff\u2300-\u23ff\u2500-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\u20e3\ufe00-\ufe0f\u3030\u303d\u3297\u3299]+\u200d*"
)
_COMPATIBLE = re.compile(
    "[\u2102\u210a-\u2113\u2115\u2119-\u211d\u2124\u2128\u212c-\u2131\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\ufb00-\ufb06\U0001d400-\U0001d7ff]+"
)
_RUN = re.compile(r"([^\w\s])\1{3,}")  # shortened first: more of it says no more
_CIRCLED = {
    code: f" {number} "
    for first, count in (
        (0x2460, 20),
        (0x2474, 20),
        (0x2488, 20),
        (0x2776, 10),
        (0x2780, 10),
        (0x278A, 10),
        (0x24F5, 10),
    )
    for number, code in enumerate(range(first, first + count), 1)
}
"""Numbers in circles, in brackets and with stops."""
_OPENING_QUOTE = re.compile(r"«\s+")
_CLOSING_QUOTE = re.compile(r"(?<!\s)\s++»")
_BLANKS = re.compile(r"[^\S\n]{3,}")
_EMPTY_LINES = re.compile(r"\n(?:[^\S\n]*\n){2,}")
_QUOTES = str.maketrans(
    {**dict.fromkeys("‘’‚‛′`´ʼ＇", "'"), **dict.fromkeys("“”„‟″«»＂", '"'), "‹": "'", "›": "'"}
    | {
        **dict.fromkeys("‐‑‒−﹣", "-"),
        "―": "—",
        "…": "...",
        "‥": "..",
        "‼": "!",
        "⁇": "?",
        "⁈": "?!",
        "⁉": "!?",
    }
)
_QUESTION = re.compile("[?？]")
_REPEATS = (
    (re.compile(r"-{2,}"), "—"),
    (re.compile(r"\.{4,}"), "..."),
    (re.compile(r"(?<!\.)\.\.(?!\.)"), "."),
    (
        re.compile(r"([!?！？])(?:\s?[!?！？])+"),
        lambda m: "?" if _QUESTION.search(m.group()) else m.group(1),
    ),
    (re.compile(r"([,;:，；：、。—_=~*#|])\1+"), r"\1"),
    (re.compile(r"([^\W\d_])\1{3,}"), r"\1\1\1"),
    (re.compile(r"([\u0300-\u036f]{2})[\u0300-\u036f]+"), r"\1"),
)
_PARAGRAPH = re.compile(r"\n\s*\n")
_SPACES = re.compile(" +")
_SPACED_MARK = re.compile(r"(?<! ) ++([,.;:!?])(?=\s|$)")
_MARKS = HEADING_MARK + BREAK_MARK + ITEM_MARK
_NO_MARKS = dict.fromkeys(map(ord, _MARKS))
_KEPT_CONTROLS = "\u200c\u200d" + _MARKS
_LINE_ENDS = ".!?:;,。！？：；，、…—-"
_CLOSERS = "\"')]}」』）》】"


BlockKind = Literal["paragraph", "heading", "item", "scene_break"]


@dataclass(frozen=True, kw_only=True)
class TextBlock:
    """A part of a text that stands by itself: a paragraph, a heading, a list item or row; a scene break has no text."""

    kind: BlockKind
    text: str = ""


def clean_text(text: str, *, links: LinkPolicy = "site") -> str:
    """Returns the text a voice should read: no markup, links, emoji or controls; paragraphs stay apart.

    Paragraphs, headings, list items and table rows come out as blocks separated by an empty line, each but
    a lone block closed by a full stop if it had no punctuation; other line breaks become a space. Cleaning
    twice changes nothing more. The result may hold nothing to say: see `speakable`.
    """
    return "\n\n".join(block.text for block in clean_blocks(text, links=links) if block.text)


def clean_blocks(text: str, *, links: LinkPolicy = "site") -> list[TextBlock]:
    """Returns the blocks of `clean_text` with what they are, and the scene breaks (rules, `* * *`) between them."""
    text = text.translate(_NO_MARKS).replace("\r\n", "\n").replace("\r", "\n")
    text = text.replace("\u2028", "\n").replace("\u2029", "\n\n")
    text = _EMPTY_LINES.sub("\n\n", _BLANKS.sub("  ", _RUN.sub(r"\1\1\1", text)))
    text = strip_html(text)
    text = strip_markdown(text)
    text = _ENTITY.sub(lambda match: html.unescape(match.group()), text)
    text = _URL.sub(lambda match: _link(match.group(), links), text)
    text = _characters(text)
    for pattern, replacement in _REPEATS:
        check_cancelled()
        text = pattern.sub(replacement, text)
    return _blocks(text)


def plain_blocks(text: str) -> list[TextBlock]:
    """Returns the paragraphs of a text that is spoken as it is."""
    return [TextBlock(kind="paragraph", text=part) for part in _PARAGRAPH.split(text) if part.strip()]


def speakable(text: str) -> bool:
    """Whether a letter or digit of any script is left, i.e. whether there is anything to say."""
    return any(char.isalnum() for char in text)


def _link(url: str, links: LinkPolicy) -> str:
    """The URL by policy; punctuation that ends the sentence and not the URL stays."""
    bare = url.rstrip(".,;:!?")
    tail = url[len(bare) :]
    if links == "keep":
        return url
    host = _HOST.match(bare)
    return (host.group(1) if links == "site" and host else "") + tail


def _characters(text: str) -> str:
    """Character by character: compatible forms, quotes and dashes, emoji, controls, spaces."""
    text = unicodedata.normalize("NFC", text).translate(_CIRCLED)
    text = _COMPATIBLE.sub(lambda match: unicodedata.normalize("NFKC", match.group()), text)
    text = _OPENING_QUOTE.sub('"', _CLOSING_QUOTE.sub('"', text)).translate(_QUOTES)
    text = _PICTURE.sub(" ", text)
    return "".join(char if char == "\n" else _kept(char) for char in text)


def _kept(char: str) -> str:
    category = unicodedata.category(char)
    if category.startswith("Z") or char == "\t":
        return " "
    if category.startswith("C") and char not in _KEPT_CONTROLS:
        return ""
    return "" if char == "\ufffd" else char


def _blocks(text: str) -> list[TextBlock]:
    """Joins the lines of each paragraph and closes paragraphs that end without punctuation."""
    blocks: list[TextBlock] = []
    for paragraph in _PARAGRAPH.split(text):
        marks, words = _marks(paragraph)
        parts: list[str] = []
        for line in words.split("\n"):
            line = _SPACED_MARK.sub(r"\1", _SPACES.sub(" ", line).strip())
            if parts and line and not (is_cjk(parts[-1][-1]) and is_cjk(line[0])):
                parts.append(" ")
            if line:
                parts.append(line)
        block = "".join(parts)
        if BREAK_MARK in marks and blocks and blocks[-1].kind != "scene_break":
            blocks.append(TextBlock(kind="scene_break"))
        if block.strip(" ,;.!?"):
            kind: BlockKind = "heading" if HEADING_MARK in marks else "item" if ITEM_MARK in marks else "paragraph"
            blocks.append(TextBlock(kind=kind, text=block))
    if blocks and blocks[-1].kind == "scene_break":
        blocks.pop()
    if len(blocks) == 1:
        return blocks
    return [replace(block, text=_closed(block.text)) if block.text else block for block in blocks]


def _marks(paragraph: str) -> tuple[str, str]:
    """The marks of blocks in a paragraph, and the paragraph without them."""
    marks = "".join(mark for mark in _MARKS if mark in paragraph)
    return marks, paragraph.translate(_NO_MARKS) if marks else paragraph


def _closed(block: str) -> str:
    bare = block.rstrip(_CLOSERS + " ")
    if not bare or bare[-1] in _LINE_ENDS:
        return block
    return block + ("。" if is_cjk(bare[-1]) else ".")
