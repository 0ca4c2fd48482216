"""Takes HTML and markdown marks off a text and leaves the words; what only looks like markup stays.

No rule takes more time than the text is long: a pattern looks at each character a bounded number of times, and marks
that come in pairs any distance apart are paired in one pass (`_Ends`).
"""

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
_UNSPOKEN = re.compile(r"<(script|style)\b[^<>]*>|<!--|<!doctype[^<>]*>", re.IGNORECASE)
_UNSPOKEN_ENDS = {
    "script": re.compile(r"</script\s*>", re.IGNORECASE),
    "style": re.compile(r"</style\s*>", re.IGNORECASE),
    None: re.compile("-->"),
}
"""What ends an element of that name; for None, a comment."""
_INLINE = word_set(
    """
    a abbr b big cite code del em font i ins kbd mark q s samp small span strike strong sub sup tt u var
    wbr emphasis prosody say-as phoneme voice speak
    """
)

_HEADING_TAGS = word_set("h1 h2 h3 h4 h5 h6")
HEADING_MARK, BREAK_MARK, ITEM_MARK = "\ue000", "\ue001", "\ue002"
"""While markup is stripped, these stand before the words of a heading, for a scene break, and before a list item."""

_SCRIPTED = re.compile(r"<(sub|sup)>\s{0,3}([0-9+-]{1,9})\s{0,3}</\1>", re.IGNORECASE)
_SCRIPTS = {"sub": str.maketrans("0123456789+-", "₀₁₂₃₄₅₆₇₈₉₊₋"), "sup": str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")}
_SPELLING_KINDS = re.compile("characters|digits|spell-out")
_SPELLED_OUT = re.compile(r"<(spell|say-as)\b([^<>]{0,200})>([^<>]{0,200})</\1>", re.IGNORECASE)

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*$", re.MULTILINE)
_UNDERLINED = re.compile(r"^[ \t]*+(?![-*+>#|=])(\S[^\n]*+)\n[ \t]*+(?:=++|-{2,}+)[ \t]*+$", re.MULTILINE)
_RULE = re.compile(r"^[ \t]*+(?:(?:[-*_][ \t]*+){3,}+|⁂|=++)[ \t]*+$", re.MULTILINE)
_DEFINITION = re.compile(r"^[ \t]*\[[^\]\n]+\]:[ \t]*\S+.*$", re.MULTILINE)
_TABLE_RULE = re.compile(
    r"^[ \t]*+(?:\|[ \t]*+)?:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)++(?:\|[ \t]*+)?$", re.MULTILINE
)
_TABLE_ROW = re.compile(r"^[ \t]*\|(.+)\|[ \t]*$", re.MULTILINE)
_HEADING = re.compile(r"^[ \t]*+#{1,6}[ \t]++(.*+)", re.MULTILINE)
_BULLET = re.compile(r"^[ \t]*(?:[-*+•‣▪◦·][ \t]+(?:\[[ xX]\][ \t]+)?)(?=\S)", re.MULTILINE)
_NUMBERED = re.compile(r"^[ \t]*(?=\d{1,3}[.)][ \t]+\S)", re.MULTILINE)
_QUOTED = re.compile(r"^[ \t]*(?:>(?!\d|=)[ \t]?)+", re.MULTILINE)
_LINKS = (
    (
        re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*+(?:\([^()\s]*\)[^()\s]*+)*+(?:[ \t]++[\"'][^\n]{0,200}?[\"'])?\)"),
        r"\1",
    ),
    (re.compile(r"\[\^[^\]\s]{1,100}\]"), ""),
    (re.compile(r"\[([^\[\]\n]+)\]\[[^\[\]\n]*\]"), r"\1"),
    (re.compile(r"<((?:https?|ftp|mailto):[^\s<>]+)>", re.IGNORECASE), r"\1"),
    (re.compile(r"(?<!`)(`{1,3})(?=[^\s`])([^`\n]+)\1(?!`)"), r"\2"),
)
_Pair = tuple[re.Pattern[str], re.Pattern[str]]
"""Places where marks open and close; the mark itself is the group."""
_STRONG: _Pair = re.compile(r"(?=(\*\*)\S)"), re.compile(r"(?<=\S)(?=(\*\*))")
_EMPHASIS = re.compile(r"(?<![\w*])\*(?=[^\s*])([^*\n]*?[^\s*])\*(?![\w*])")
_UNDERSCORED: _Pair = re.compile(r"(?<!\w)(?=(_{1,3})[^\s_])"), re.compile(r"(?<=[^\s_])(?=(_{1,3})(?!\w))")
_STRUCK: _Pair = re.compile(r"(?=(~~)\S)"), re.compile(r"(?<=\S)(?=(~~))")
_ESCAPED = re.compile(r"\\([\\`*_{}\[\]()#+.!|~>-])")


def strip_html(text: str) -> str:
    """Returns the text without HTML or SSML tags, comments and scripts; a block tag is a paragraph break.

    Headings, list items and rules leave their mark (`HEADING_MARK` and so on). Only known tag names count, so `a < b`
    and `x <y> z` stay as they are. Entities are left to the caller.
    """
    if "<" not in text:
        return text
    text = _SCRIPTED.sub(lambda match: match.group(2).translate(_SCRIPTS[match.group(1).lower()]), text)
    text = _SPELLED_OUT.sub(_spelled_out, text)
    return _TAG.sub(_tag, _without_unspoken(text))


def strip_markdown(text: str) -> str:
    """Returns the text without markdown marks; headings, list items and rows become blocks.

    Headings, list items and rules leave their mark (`HEADING_MARK` and so on), which the caller takes off.
    The words of a link, an image and a code span stay; addresses, rules, fences and footnote marks go.
    Numbers of a numbered list stay, since they are read. A lone mark that opens nothing (`2 * 3`,
    `snake_case`) stays too.
    """
    for pattern in (_FENCE, _DEFINITION, _TABLE_RULE):
        text = pattern.sub("", text)
    text = _UNDERLINED.sub(lambda match: f"\n{HEADING_MARK}{match.group(1).rstrip()}\n", text)
    text = _RULE.sub(lambda match: "" if "=" in match.group() else f"\n{BREAK_MARK}\n", text)
    text = _QUOTED.sub("", text)
    text = _TABLE_ROW.sub(lambda match: f"\n{ITEM_MARK}{_row(match.group(1))}\n", text)
    text = _HEADING.sub(lambda match: f"\n{HEADING_MARK}{_heading(match.group(1))}\n", text)
    text = _BULLET.sub(f"\n\n{ITEM_MARK}", text)
    text = _NUMBERED.sub(f"\n\n{ITEM_MARK}", text)
    for link, replacement in _LINKS:
        text = link.sub(replacement, text)
    text = _EMPHASIS.sub(r"\1", _unmarked(text, _STRONG))
    text = _unmarked(_unmarked(text, _UNDERSCORED), _STRUCK)
    return _ESCAPED.sub(r"\1", text)


def _spelled_out(match: re.Match[str]) -> str:
    """What an element for spelling holds, character by character; other kinds of `say-as` keep their text."""
    if match.group(1).lower() == "say-as" and not _SPELLING_KINDS.search(match.group(2)):
        return match.group(3)
    return " ".join(char.upper() for char in match.group(3) if char.isalnum())


def _tag(match: re.Match[str]) -> str:
    name = match.group(1).lower()
    if name in _INLINE:
        return ""
    if name == "hr":
        return f"\n\n{BREAK_MARK}\n\n"
    if match.group().startswith("</"):
        return "\n\n"
    return "\n\n" + (HEADING_MARK if name in _HEADING_TAGS else ITEM_MARK if name in ("li", "tr") else "")


def _heading(words: str) -> str:
    """What a line begun by `#` says, without the marks that may close it."""
    return words.rstrip(" \t").rstrip("#").rstrip(" \t")


class _Ends:
    """Where a pattern is found in a text, asked for at places that rise: one pass in all."""

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self._found = pattern.finditer(text)
        self._next = next(self._found, None)

    def after(self, place: int) -> re.Match[str] | None:
        """The first match that begins at `place` or later."""
        while self._next is not None and self._next.start() < place:
            self._next = next(self._found, None)
        return self._next


def _without_unspoken(text: str) -> str:
    """The text with a space for each script, style sheet, comment and document type; what is never closed stays."""
    ends = {name: _Ends(pattern, text) for name, pattern in _UNSPOKEN_ENDS.items()}
    parts, done = [], 0
    for match in _UNSPOKEN.finditer(text):
        if match.start() < done:
            continue
        end: re.Match[str] | None = match
        if match.group(1):
            end = ends["script" if len(match.group(1)) == len("script") else "style"].after(match.end())
        elif match.group() == "<!--":
            end = ends[None].after(match.end())
        if end is not None:
            parts.append(text[done : match.start()])
            done = end.end()
    return " ".join([*parts, text[done:]])


def _unmarked(text: str, pair: _Pair) -> str:
    """The text without the marks of a pair: an opening one, a character or more, the next closing one in the line."""
    opening, closing = pair
    ends = _Ends(closing, text)
    parts, done, line_end = [], 0, -1
    for mark in opening.finditer(text):
        begin, inside = mark.span(1)
        if begin < done:
            continue
        end = ends.after(inside + 1)
        if end is None:
            break
        if line_end < inside:
            found = text.find("\n", inside)
            line_end = len(text) if found < 0 else found
        if end.start() <= line_end:
            parts += [text[done:begin], text[inside : end.start()]]
            done = end.end(1)
    return "".join([*parts, text[done:]])


def _row(cells: str) -> str:
    return ", ".join(cell.strip() for cell in cells.split("|") if cell.strip())
