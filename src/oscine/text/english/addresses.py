"""Web addresses, e-mail addresses, file names and telephone numbers in words."""

from __future__ import annotations

import re

from oscine.text.english.lexicon import lookup
from oscine.text.english.numerals import in_pairs, number
from oscine.text.english.spelling import is_spelled
from oscine.text.wordlist import word_list, word_set

_ENDINGS = "|".join(
    word_list(
        "com org net edu gov mil int io ai app dev info biz eu us uk de fr es it nl ca au jp cn in ch at tv me co xyz"
        " example ly gg fm ac nz za br ru pl se dk ie cz kr mx tw hk sg tr gr ua edu"
    )
)
_SPOKEN_ENDINGS = word_set("com org net gov info app dev biz example edu in at me us it")
_MARKS = {
    "-": "dash", "_": "underscore", "/": "slash", ".": "dot", "?": "question mark", "=": "equals", "&": "and",
    "#": "hash", ":": "colon", "@": "at", "~": "tilde", "%": "percent", "+": "plus",
}  # fmt: skip
_URL = re.compile(
    r"(?:https?|ftp)://\S+|\bwww\.\S+|(?<![\w@.])(?:[\w-]{1,63}\.){1,10}(?:"
    + _ENDINGS
    + r")\b(?![.-]\w)(?::\d{2,5})?(?:/[^\s,;)]*)?"
)
_MAIL = re.compile(r"(?:mailto:)?([\w.+-]{1,64})@([\w-]{1,63}(?:\.[\w-]{1,63}){1,10})")
_SPOKEN_EXTENSIONS = {
    "js": "J S", "py": "pie", "md": "M D", "txt": "text", "exe": "E X E", "pdf": "P D F", "json": "jason",
    "csv": "C S V", "docx": "doc X", "doc": "doc", "xlsx": "X L S X", "xls": "X L S", "pptx": "P P T X",
    "html": "H T M L", "css": "C S S", "zip": "zip", "jpg": "J peg", "jpeg": "J peg", "png": "P N G", "gif": "gif",
    "svg": "S V G", "mp3": "M P three", "mp4": "M P four", "wav": "wave", "flac": "flack", "mov": "mov", "mkv": "M K V",
    "yml": "yaml", "yaml": "yaml", "toml": "toml", "xml": "X M L", "cpp": "C P P", "c": "C", "h": "H", "rs": "R S",
    "ts": "T S", "tsx": "T S X", "sh": "S H", "rb": "R B", "php": "P H P", "java": "java", "sql": "S Q L", "ini": "ini",
    "log": "log", "cfg": "C F G", "tar": "tar", "gz": "G Z", "iso": "iso", "epub": "E pub", "ics": "I C S",
    "git": "git", "ipynb": "I P Y N B", "apk": "A P K", "dmg": "D M G", "bak": "bak", "tmp": "temp",
}  # fmt: skip
_EXTENSIONS = "|".join(sorted(_SPOKEN_EXTENSIONS, key=len, reverse=True))
_FILE = re.compile(
    rf"(?<![\w.@-])(?=[\w-]*?[A-Za-z])([\w-]++)((?:\.[A-Za-z\d]{{1,8}}){{0,2}})\.({_EXTENSIONS})(?!\.{{0,9}}\w)",
    re.IGNORECASE,
)
_DOT_NAME = re.compile(r"(?<![\w.!?…)\]\"'])\.(?=[A-Za-z]{2,}\b)")
_DRIVE = re.compile(r"\b([A-Z]):(?=\\)")
_ROOT = re.compile(r"(?<![\w/.:<)])/(?=[a-z][\w.-]*/[\w.-])")

_SCHEME = re.compile(r"^(?:(?:https?|ftp)://)?")
_WWW = re.compile(r"^www\.")
_VOWEL = re.compile("[aeiouy]")
_MARK = re.compile(r"[^\w\s]|_")
_FIGURES = re.compile(r"\d+")


def say_addresses(text: str) -> str:
    """Returns the text with addresses and names of files read out: `me@a.com` → "me at a dot com"."""
    text = _MAIL.sub(lambda m: f"{_spell_marks(m[1])} at {_host(m[2])}", text)
    text = _URL.sub(_url, text)
    text = _FILE.sub(_file, text)
    text = _ROOT.sub("slash ", _DRIVE.sub(r"\1", text))
    return _DOT_NAME.sub("dot ", text)


def _url(match: re.Match[str]) -> str:
    found = match.group()
    bare = found.rstrip(".,;:!?)\"'")
    tail = found[len(bare) :]
    bare = _WWW.sub("", _SCHEME.sub("", bare).rstrip("/"))
    host, slash, path = bare.partition("/")
    host, _, port = host.partition(":")
    words = _host(host) + (f" colon {in_pairs(port)}" if port.isdecimal() else "")
    if slash:
        words += " slash " + _spell_marks(path)
    return words + tail


def _host(host: str) -> str:
    labels = [_label(label) for label in host.split(".")]
    last = labels[-1]
    spoken = last if last in _SPOKEN_ENDINGS or len(last) > 3 else " ".join(last.upper())
    return " dot ".join([*(_spell_marks(label) for label in labels[:-1]), spoken])


def _label(label: str) -> str:
    """A part of a host name; one that nobody could say as a word is spelled: `bbc` as B B C."""
    known = lookup(label.lower())
    rare = label != "co" and label.isalpha() and (known is None or not known.curated)
    if is_spelled(label.upper()) or (rare and (len(label) <= 3 or not _VOWEL.search(label.lower()))):
        return " ".join(label.upper())
    return label


def _spell_marks(text: str) -> str:
    words = _MARK.sub(lambda m: f" {_MARKS.get(m[0], '')} ", text)
    words = _FIGURES.sub(lambda m: f" {number(m[0])} ", words)
    return " ".join(words.split())


def _file(match: re.Match[str]) -> str:
    name, inner, extension = match.groups()
    if len(name) == 1 and name.isupper() and extension.isupper():
        return match.group()  # D.C., U.S.C.: initials
    if not extension.isascii() or not (extension.islower() or extension.isupper()):
        return match.group()
    middle = [_SPOKEN_EXTENSIONS.get(part.lower(), part) for part in inner.split(".") if part]
    return " dot ".join([name, *middle, _SPOKEN_EXTENSIONS[extension.lower()]])
