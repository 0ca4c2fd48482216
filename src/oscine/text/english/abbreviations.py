"""Abbreviations, titles and initials in words: `Dr. Smith`, `e.g.`, `No. 5`, `Vol. II`, `the U.S.`, `J. K. Rowling`."""

from __future__ import annotations

import re

from oscine.text.english.places import kept_stop, say_places
from oscine.text.english.romans import NO_NUMERAL
from oscine.text.english.verses import say_verses
from oscine.text.sentences import SENTENCE_STARTERS, begins_a_count, is_word_before_number

_TITLES = {
    "Mr": "Mister", "Mrs": "Missus", "Ms": "Miz", "Mx": "Mix", "Dr": "Doctor", "Prof": "Professor",
    "Rev": "Reverend", "Hon": "Honorable", "Sen": "Senator", "Rep": "Representative", "Gov": "Governor",
    "Gen": "General", "Col": "Colonel", "Capt": "Captain", "Cpt": "Captain", "Lt": "Lieutenant",
    "Sgt": "Sergeant", "Cpl": "Corporal", "Maj": "Major", "Adm": "Admiral", "Pres": "President", "Fr": "Father",
    "Messrs": "Messers", "Mme": "Madame", "Mlle": "Mademoiselle", "Mt": "Mount", "Ft": "Fort",
}  # fmt: skip
_BARE_TITLES = "Mr|Mrs|Ms|Dr|Prof|Mt|Sgt|Capt|Lt"
_ANYWHERE = {
    "Jr": "Junior", "Sr": "Senior", "Esq": "Esquire", "Inc": "Incorporated", "Ltd": "Limited", "Corp": "Corporation",
    "Co": "Company", "Bros": "Brothers", "Dept": "Department", "dept": "department", "Univ": "University",
    "Assn": "Association", "Govt": "Government", "govt": "government", "etc": "etcetera", "vs": "versus",
    "approx": "approximately", "est": "established", "incl": "including", "excl": "excluding", "max": "maximum",
    "min": "minimum", "avg": "average", "tel": "telephone", "Tel": "Telephone", "ext": "extension",
    "Ext": "Extension", "misc": "miscellaneous", "temp": "temperature", "esp": "especially", "cf": "compare",
    "ca": "circa", "viz": "namely",
    "Temp": "Temperature", "Approx": "Approximately", "ed": "edition", "al": "al", "Bldg": "Building",
    "pls": "please", "Hrs": "hours",
}  # fmt: skip
_NEVER_LAST = frozenset(
    {"Temp", "Approx", "vs", "approx", "est", "incl", "excl", "avg", "esp", "cf", "ca", "viz", "tel", "Tel"}
)
_NO_DOT = {
    "vs": "versus", "Blvd": "Boulevard", "Jr": "Junior", "Sr": "Senior", "approx": "approximately",
    "Inc": "Incorporated", "Ltd": "Limited", "Corp": "Corporation", "Dept": "Department", "Govt": "Government",
    "eg": "for example", "ie": "that is", "aka": "A K A", "TL;DR": "T L D R", "tl;dr": "T L D R",
    "cont'd": "continued", "int'l": "international", "gov't": "government", "dep't": "department", "nat'l": "national",
    "thx": "thanks", "plz": "please", "gr8": "great", "l8r": "later", "b4": "before",
}  # fmt: skip
_BEFORE_NUMBER = {
    "No": "Number", "no": "number", "Nos": "Numbers", "nos": "numbers", "Vol": "Volume", "vol": "volume",
    "Fig": "Figure", "fig": "figure", "Figs": "Figures", "figs": "figures", "Ch": "Chapter", "ch": "chapter",
    "Sec": "Section", "sec": "section", "Eq": "Equation", "eq": "equation", "p": "page", "pp": "pages",
    "P": "Page", "Art": "Article", "art": "article", "Ver": "Version", "ver": "version", "Rm": "Room", "pt": "part",
    "Pt": "Part", "Bd": "Building", "Ext": "Extension", "ext": "extension", "Apt": "Apartment", "Ste": "Suite",
    "Bk": "Book", "Op": "Opus",
    "NO": "NUMBER", "VOL": "VOLUME", "FIG": "FIGURE", "SEC": "SECTION", "APT": "APARTMENT",
}  # fmt: skip
_WORDS_TOO = frozenset(
    {"no", "nos", "Nos", "art", "Art", "sec", "pt", "P", "p", "Bd", "Ste", "No", "Bk"}
    | {"NO", "VOL", "FIG", "SEC", "APT"}
)  # need their dot
_DOTTED = {
    "e.g": "for example", "i.e": "that is", "a.k.a": "A K A", "w.r.t": "with respect to", "n.b": "note", "q.v": "see",
}  # fmt: skip
_TITLE = re.compile(r"\b(" + "|".join(_TITLES) + r")\.(?=\s*[A-Z(])|\b(Mr|Mrs|Ms|Mx|Messrs|Prof)\.(?=\s)")
_BARE_TITLE = re.compile(rf"\b({_BARE_TITLES})(?=\s+[A-Z][a-z])")
_WITH_DOT = re.compile(r"(?<!\d )(?<!\d)\b(" + "|".join(sorted(_ANYWHERE, key=len, reverse=True)) + r")\.(?!\w)")
_WITHOUT_DOT = re.compile(r"(?<![\w.@/-])(" + "|".join(_NO_DOT) + r")\b(?!\.\w|[@/-])")
_ALL_NUMBERED = "|".join(sorted(_BEFORE_NUMBER, key=len, reverse=True))
_SURELY_NUMBERED = "|".join(sorted(set(_BEFORE_NUMBER) - _WORDS_TOO, key=len, reverse=True))
_NUMBERED = re.compile(
    rf"(?<![&/'-])\b(?:({_ALL_NUMBERED})\.\s?(?=#?\d)|({_SURELY_NUMBERED}|p(?=\s))\s?(?=#?\d)"
    r"|(No)\s(?=\d+\b(?!\s[a-z])))#?"
)
_ROMAN_NUMBERED = re.compile(r"\b([Vv]ol|[Cc]h|[Pp]t|[Ss]ec|[Ff]ig|Art|Bk)\.\s?(?=[IVXLC]+\b)")
_FEATURING = re.compile(r"((?:^|[(\[]|\b[A-Z][\w']{0,60}\"?\)? ))feat\.(?= [A-Z])")
_ESTABLISHED = re.compile(r"\b(?:EST|Est)\b\.?(?= (?:in )?1[5-9]\d\d\b| (?:in )?20\d\d\b)")
_VS = re.compile(r"(?<![\w.@/-])[Vv]s\b\.?(?![\w.])")
_VERSUS = re.compile(r"(?<=[A-Za-z] )v\.(?= [A-Z])")
_LATIN = re.compile(r"\b(" + "|".join(re.escape(key) for key in _DOTTED) + r")\b(?!\.[A-Za-z])\.?(,?)", re.IGNORECASE)
_INITIALISM = re.compile(r"\b(?:[A-Za-z]\.\s?){1,5}[A-Za-z]\.(?!\w)|\bPh\.?\s?D\b\.?|\b(?:[A-Z]\.){2,}[A-Z]\b")
_INITIAL = re.compile(r"(?:(?<=^)|(?<=[a-z.,]\s)|(?<=[\"(]))\b([A-Z])\.(?=\s+([A-Za-z][a-z]+))")
_SLANG = {
    "w/o": "without",
    "w/": "with ",
    "b/c": "because",
    "c/o": "care of",
    "n/a": "not applicable",
    "N/A": "not applicable",
}
_SLASHED = re.compile(r"(?<![\w/])(w/o|w/(?=\s?\w)|b/c|c/o|n/a|N/A)(?![\w/]|(?<=w/)$)")

_HOUSE_NUMBER = re.compile(r"\d\s{1,3}(?:[A-Z]\w{1,40}\s{1,3}){1,8}$")
_STREET = 100  # characters before `Dr.` that may be a number and the name of a street
_NO_LETTER = re.compile("[^A-Za-z]")
_WORD_NEXT = re.compile(r"[\"')\]]{0,9}(?:\s{1,20}(\w+)|$)")
_SMALL_NEXT = re.compile(r"\s{1,20}[a-z]")


def say_abbreviations(text: str) -> str:
    """Returns the text with abbreviations in words; a stop that also ends the sentence stays."""
    text = _LATIN.sub(_latin, text)
    text = _ESTABLISHED.sub("established", text)
    text = _VS.sub("versus", say_verses(text))
    text = _SLASHED.sub(lambda m: _SLANG[m[1]], text)
    text = _NUMBERED.sub(_numbered, text)
    text = _ROMAN_NUMBERED.sub(lambda m: _BEFORE_NUMBER[m[1]] + " ", text)
    text = _VERSUS.sub("versus", text)
    text = _FEATURING.sub(r"\1featuring", text)
    text = say_places(text)
    text = _TITLE.sub(_title, text)
    text = _BARE_TITLE.sub(lambda m: _TITLES[m[1]], text)
    text = _WITH_DOT.sub(_with_dot, text)
    text = _WITHOUT_DOT.sub(lambda m: _NO_DOT[m[1]], text)
    text = _INITIALISM.sub(_initialism, text)
    return _INITIAL.sub(_initial, text)


def _initial(match: re.Match[str]) -> str:
    """The letter without its stop; one that could be a numeral is marked as none."""
    if match[2].lower() in SENTENCE_STARTERS:
        return match[0]
    return match[1] + (NO_NUMERAL if match[1] in "IVX" else "")


def _numbered(match: re.Match[str]) -> str:
    if match[1] and is_word_before_number(match.string, match.end(1), match.end()):
        return match[0]
    return _BEFORE_NUMBER[match[1] or match[2] or match[3]] + " "


def _latin(match: re.Match[str]) -> str:
    words = _DOTTED.get(match[1].lower())
    if words is None:  # a letter that is only like one of these, as the dotless i is
        return match.group()
    return (words.capitalize() if match[1][0].isupper() and words[0].islower() else words) + match[2]


def _with_dot(match: re.Match[str]) -> str:
    return _ANYWHERE[match[1]] + ("" if match[1] in _NEVER_LAST else kept_stop(match))


def _title(match: re.Match[str]) -> str:
    if match[2]:
        return _TITLES[match[2]]
    before = match.string[max(match.start() - _STREET, 0) : match.start()]
    if match[1] == "Dr" and _HOUSE_NUMBER.search(before):
        return "Drive" + kept_stop(match)
    return _TITLES[match[1]]


def _initialism(match: re.Match[str]) -> str:
    letters = " ".join(_NO_LETTER.sub("", match.group()).upper())
    text, end = match.string, match.end()
    following = _WORD_NEXT.match(text, end)
    starts = bool(following and (not following[1] or following[1].lower() in SENTENCE_STARTERS))
    starts = starts or begins_a_count(text, end)
    ends = starts and match.group().endswith(".") and not _SMALL_NEXT.match(text, end)
    return letters + ("." if ends else "")
