"""Web addresses, e-mail addresses, file names and telephone numbers in words."""

from __future__ import annotations

import re

from oscine.text.english.numerals import digits, number
from oscine.text.wordlist import word_list, word_set

_ENDINGS = "|".join(
    word_list(
        "com org net edu gov mil int io ai app dev info biz eu us uk de fr es it nl ca au jp cn in ch at tv me co xyz"
        " example"
    )
)
_SPOKEN_ENDINGS = word_set("com org net gov info app dev biz example edu in at me us it")
_MARKS = {
    "-": "dash", "_": "underscore", "/": "slash", ".": "dot", "?": "question mark", "=": "equals", "&": "and",
    "#": "hash", ":": "colon", "@": "at", "~": "tilde", "%": "percent", "+": "plus",
}  # fmt: skip
_URL = re.compile(
    r"(?:https?|ftp)://\S+|\bwww\.\S+|(?<![\w@.])(?:[\w-]+\.)+(?:" + _ENDINGS + r")\b(?![.-]\w)(?:/[^\s,;)]*)?"
)
_MAIL = re.compile(r"(?:mailto:)?([\w.+-]+)@([\w-]+(?:\.[\w-]+)+)")
_FILE = re.compile(r"(?<![\w.])([A-Za-z][\w-]*)\.([a-z][a-z\d]{0,4}|[A-Z]{2,4})(?![\w.]*\w)")
_SPOKEN_EXTENSIONS = {
    "js": "J S", "py": "pie", "md": "M D", "txt": "text", "exe": "E X E", "pdf": "P D F", "json": "jason",
    "csv": "C S V",
    "html": "H T M L", "css": "C S S", "zip": "zip", "jpg": "J peg", "png": "P N G", "mp3": "M P three", "wav": "wave",
    "yml": "yaml", "yaml": "yaml", "toml": "toml", "cpp": "C P P", "c": "C", "h": "H", "rs": "R S", "ts": "T S",
}  # fmt: skip
_PHONE = re.compile(
    r"(?<![\w.,$€£/-])(?:(\+\d{1,3})[\s.-]?)?(?:\((\d{2,4})\)\s?|(\d{3})[-.\s])(\d{3})[-.\s](\d{4})(?![\w-]|[.,]\d)"
    r"|(?<![\w.,])(1)-(\d{3})-(\d{3})-(\d{4})(?![\w-])"
    r"|(?<![\w.,-])(\d{3})-(\d{4})(?![\w-])"
    r"|(?<![\w.,])(\+\d{1,3})((?:[\s.-]?\d{2,4}){2,5})(?![\w-])"
)
_EMERGENCY = re.compile(r"\b([Cc]all|[Dd]ial|[Cc]alled|[Dd]ialed|[Cc]alling)\s+(\d{3})\b(?![-\d])")
_IP = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?![\w.]*\d)")
_VERSION = re.compile(r"(?<![\w.])(v\s?)?(\d+(?:\.\d+){2,4})(?!\w|\.\d)|\bv\s?(\d+(?:\.\d+)?)\b")


def say_addresses(text: str) -> str:
    """Returns the text with addresses and names of files read out: `me@a.com` → "me at a dot com"."""
    text = _MAIL.sub(lambda m: f"{_spell_marks(m[1])} at {_host(m[2])}", text)
    text = _URL.sub(_url, text)
    return _FILE.sub(_file, text)


def say_telephone_numbers(text: str) -> str:
    """Returns the text with telephone numbers digit by digit, a comma between groups; versions with points."""
    text = _PHONE.sub(_phone, text)
    text = _EMERGENCY.sub(lambda m: f"{m[1]} {digits(m[2])}", text)
    text = _IP.sub(lambda m: " dot ".join(digits(part) for part in m[1].split(".")), text)
    return _VERSION.sub(_version, text)


def _url(match: re.Match[str]) -> str:
    found = match.group()
    bare = found.rstrip(".,;:!?)\"'")
    tail = found[len(bare) :]
    bare = re.sub(r"^(?:https?|ftp)://", "", bare).rstrip("/")
    bare = re.sub(r"^www\.", "", bare)
    host, slash, path = bare.partition("/")
    words = _host(host)
    if slash:
        words += " slash " + _spell_marks(path)
    return words + tail


def _host(host: str) -> str:
    labels = host.split(".")
    last = labels[-1]
    spoken = last if last in _SPOKEN_ENDINGS or len(last) > 3 else " ".join(last.upper())
    return " dot ".join([*(_spell_marks(label) for label in labels[:-1]), spoken])


def _spell_marks(text: str) -> str:
    words = re.sub(r"[^\w\s]|_", lambda m: f" {_MARKS.get(m[0], '')} ", text)
    words = re.sub(r"\d+", lambda m: f" {number(m[0])} ", words)
    return " ".join(words.split())


def _file(match: re.Match[str]) -> str:
    name, extension = match.groups()
    if extension not in _SPOKEN_EXTENSIONS and extension.lower() not in _SPOKEN_EXTENSIONS:
        return match.group()
    return f"{name} dot {_SPOKEN_EXTENSIONS[extension.lower()]}"


def _phone(match: re.Match[str]) -> str:
    groups = []
    for group in match.groups():
        if group:
            groups += re.findall(r"\+?\d+", group)
    words = [("plus " if group.startswith("+") else "") + digits(group) for group in groups]
    return ", ".join(words)


def _version(match: re.Match[str]) -> str:
    marked, several, single = match.groups()
    if several and not marked and all(len(part) == 3 for part in several.split(".")[1:]):
        return number(several.replace(".", ""))  # 1.234.567: points that group thousands
    words = " point ".join(number(part) for part in (several or single).split("."))
    return f"version {words}" if marked or single else words
