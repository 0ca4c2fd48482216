"""Takes HTML and markdown marks off a text and leaves the words; what only looks like markup stays."""

from __future__ import annotations

import re

from oscine.text.wordlist import word_set

_TAGS = word_set(
    """
    a abbr article aside audio b big blockquote body br button center cite code dd del details div dl dt
    em figcaption figure font footer form h1 h2 h3 h4 h5 h6 head header hr html i img input ins kbd
    label li link main mark meta nav ol option p pre q s samp section select small source span strike
    strong sub summary sup svg table tbody td textarea tfoot th thead time title tr tt u ul var video
    wbr speak break prosody emphasis say-as phoneme voice audio mark sentence
    """
)
_NAME = "|".join(sorted(_TAGS, key=lambda name: (-len(name), name)))
_ATTRIBUTES = r"(?:\s+[\w:-]+(?:\s*=\s*(?:\"[^\"<>]*\"|'[^'<>]*'|[^\s\"'<>]+))?)*\s*/?"
_TAG = re.compile(rf"</?({_NAME}){_ATTRIBUTES}>", re.IGNORECASE)
_UNSPOKEN = re.compile(r"<(script|style)\b[^<>]*>.*?</\1\s*>|<!--.*?-->|<!doctype[^<>]*>", re.IGNORECASE | re.DOTALL)
_INLINE = word_set(
    """
    a abbr b big cite code del em font i ins kbd mark q s samp small span strike strong sub sup tt u var
    wbr emphasis prosody say-as phoneme voice speak
    """
)

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*$", re.MULTILINE)
_RULE = re.compile(r"^[ \t]*(?:(?:[-*_][ \t]*){3,}|=+)[ \t]*$", re.MULTILINE)
_DEFINITION = re.compile(r"^[ \t]*\[[^\]\n]+\]:[ \t]*\S+.*$", re.MULTILINE)
_TABLE_RULE = re.compile(r"^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+\|?[ \t]*$", re.MULTILINE)
_TABLE_ROW = re.compile(r"^[ \t]*\|(.+)\|[ \t]*$", re.MULTILINE)
_HEADING = re.compile(r"^[ \t]*#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*$", re.MULTILINE)
_BULLET = re.compile(r"^[ \t]*(?:[-*+•‣▪◦·][ \t]+(?:\[[ xX]\][ \t]+)?)(?=\S)", re.MULTILINE)
_NUMBERED = re.compile(r"^[ \t]*(?=\d{1,3}[.)][ \t]+\S)", re.MULTILINE)
_QUOTED = re.compile(r"^[ \t]*(?:>[ \t]?)+", re.MULTILINE)
_INLINE_RULES = (
    (
        re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:[ \t]+[\"'][^\n]*?[\"'])?\)"),
        r"\1",
    ),
    (re.compile(r"\[\^[^\]\s]+\]"), ""),
    (re.compile(r"\[([^\[\]\n]+)\]\[[^\[\]\n]*\]"), r"\1"),
    (re.compile(r"<((?:https?|ftp|mailto):[^\s<>]+)>", re.IGNORECASE), r"\1"),
    (re.compile(r"(?<!`)(`{1,3})(?=[^\s`])([^`\n]+)\1(?!`)"), r"\2"),
    (re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*"), r"\1"),
    (re.compile(r"(?<![\w*])\*(?=[^\s*])([^*\n]*?[^\s*])\*(?![\w*])"), r"\1"),
    (re.compile(r"(?<!\w)_{1,3}(?=[^\s_])([^\n]*?[^\s_])_{1,3}(?!\w)"), r"\1"),
    (re.compile(r"~~(?=\S)(.+?)(?<=\S)~~"), r"\1"),
    (re.compile(r"\\([\\`*_{}\[\]()#+.!|~>-])"), r"\1"),
)


def strip_html(text: str) -> str:
    """Returns the text without HTML or SSML tags, comments and scripts; a block tag is a paragraph break.

    Only known tag names count, so `a < b` and `x <y> z` stay as they are. Entities are left to the caller.
    """
    if "<" not in text:
        return text
    text = _UNSPOKEN.sub(" ", text)
    return _TAG.sub(lambda match: "" if match.group(1).lower() in _INLINE else "\n\n", text)


def strip_markdown(text: str) -> str:
    """Returns the text without markdown marks; headings, list items and rows become blocks.

    The words of a link, an image and a code span stay; addresses, rules, fences and footnote marks go.
    Numbers of a numbered list stay, since they are read. A lone mark that opens nothing (`2 * 3`,
    `snake_case`) stays too.
    """
    for pattern in (_FENCE, _DEFINITION, _TABLE_RULE, _RULE):
        text = pattern.sub("", text)
    text = _QUOTED.sub("", text)
    text = _TABLE_ROW.sub(lambda match: "\n" + _row(match.group(1)) + "\n", text)
    text = _HEADING.sub(r"\n\1\n", text)
    text = _BULLET.sub("\n\n", text)
    text = _NUMBERED.sub("\n\n", text)
    for inline, replacement in _INLINE_RULES:
        text = inline.sub(replacement, text)
    return text


def _row(cells: str) -> str:
    return ", ".join(cell.strip() for cell in cells.split("|") if cell.strip())
