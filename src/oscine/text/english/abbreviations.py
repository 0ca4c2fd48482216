"""Abbreviations, titles, street names and Roman numerals in words: `Dr. Smith`, `Main St.`, `e.g.`, `Henry VIII`."""

from __future__ import annotations

import re

from oscine.text.english.numerals import cardinal, ordinal, roman
from oscine.text.sentences import SENTENCE_STARTERS
from oscine.text.wordlist import word_set

_TITLES = {
    "Mr": "Mister", "Mrs": "Missus", "Ms": "Miz", "Mx": "Mix", "Dr": "Doctor", "Prof": "Professor",
    "Rev": "Reverend", "Hon": "Honorable", "Sen": "Senator", "Rep": "Representative", "Gov": "Governor",
    "Gen": "General", "Col": "Colonel", "Capt": "Captain", "Cpt": "Captain", "Lt": "Lieutenant",
    "Sgt": "Sergeant", "Cpl": "Corporal", "Maj": "Major", "Adm": "Admiral", "Pres": "President", "Fr": "Father",
    "Messrs": "Messers", "Mme": "Madame", "Mlle": "Mademoiselle", "Mt": "Mount", "Ft": "Fort",
}  # fmt: skip
_BARE_TITLES = "Mr|Mrs|Ms|Dr|Prof|Mt|Sgt|Capt|Lt"
_PLACES = {
    "St": "Street", "Ave": "Avenue", "Av": "Avenue", "Blvd": "Boulevard", "Rd": "Road", "Ln": "Lane",
    "Hwy": "Highway", "Pkwy": "Parkway", "Sq": "Square",
    "Dr": "Drive", "Ct": "Court", "Pl": "Place", "Apt": "Apartment",
}  # fmt: skip
_ANYWHERE = {
    "Jr": "Junior", "Sr": "Senior", "Esq": "Esquire", "Inc": "Incorporated", "Ltd": "Limited", "Corp": "Corporation",
    "Co": "Company", "Bros": "Brothers", "Dept": "Department", "dept": "department", "Univ": "University",
    "Assn": "Association", "Govt": "Government", "govt": "government", "etc": "etcetera", "vs": "versus",
    "approx": "approximately", "est": "established", "incl": "including", "excl": "excluding", "max": "maximum",
    "min": "minimum", "avg": "average", "tel": "telephone", "Tel": "Telephone", "ext": "extension",
    "Ext": "Extension", "misc": "miscellaneous", "temp": "temperature", "esp": "especially", "cf": "compare",
    "ca": "circa", "viz": "namely",
    "ed": "edition", "al": "al", "pls": "please", "Hrs": "hours",
}  # fmt: skip
_NEVER_LAST = frozenset({"vs", "approx", "est", "incl", "excl", "avg", "esp", "cf", "ca", "viz", "tel", "Tel"})
_NO_DOT = {"vs": "versus", "Blvd": "Boulevard", "Jr": "Junior", "Sr": "Senior", "approx": "approximately"}
_BEFORE_NUMBER = {
    "No": "Number", "no": "number", "Nos": "Numbers", "nos": "numbers", "Vol": "Volume", "vol": "volume",
    "Fig": "Figure", "fig": "figure", "Figs": "Figures", "figs": "figures", "Ch": "Chapter", "ch": "chapter",
    "Sec": "Section", "sec": "section", "Eq": "Equation", "eq": "equation", "p": "page", "pp": "pages",
    "P": "Page", "Art": "Article", "art": "article", "Ver": "Version", "ver": "version", "Rm": "Room", "pt": "part",
    "Pt": "Part", "Bd": "Building", "Ext": "Extension", "ext": "extension",
}  # fmt: skip
_DOTTED = {
    "e.g": "for example", "i.e": "that is", "a.k.a": "A K A", "w.r.t": "with respect to", "n.b": "note", "q.v": "see",
}  # fmt: skip
_ROYAL = word_set(
    """
    Henry Edward George William Charles James Richard John Louis Philip Elizabeth Mary Catherine Peter Alexander
    Nicholas Frederick Ferdinand Alfonso Leopold Wilhelm Victoria Anne Ivan Paul Pius Benedict Gregory Leo Clement
    Innocent Urban Napoleon Ramesses Ramses Ptolemy Cleopatra Xerxes Darius Rudolf Maximilian Joseph Francis Christian
    Gustav Harald Haakon Olaf Baudouin Albert Isabella Umberto Emmanuel Sixtus Boniface Julius Otto Constantine
    """
)
_PARTS = word_set(
    """
    Chapter Part Volume Section Act Scene Type Phase War Bowl Title Class Level Book Appendix Article Stage Grade
    Episode Season Figure Table Unit Lesson Step Option Schedule Category Round Mark chapter part volume section act
    scene type phase title class level book appendix article stage grade episode season figure table unit category
    """
)
_ROMAN_WORD = re.compile(r"\b([A-Za-z][A-Za-z'-]+)(\s+)([IVXLCDM]+)\b(?!['.]\w|-\w)")
_NOT_ROMAN = frozenset(
    {"MD", "CD", "DC", "MC", "CV", "DI", "DM", "CC", "MI", "LCD", "MM", "CM", "ID", "CI", "MV", "DIM", "MIX"}
)
_TITLE = re.compile(r"\b(" + "|".join(_TITLES) + r")\.(?=\s*[A-Z(])|\b(Mr|Mrs|Ms|Mx|Messrs|Prof)\.(?=\s)")
_BARE_TITLE = re.compile(rf"\b({_BARE_TITLES})(?=\s+[A-Z][a-z])")
_SAINT = re.compile(r"(?:\b([A-Z][a-z]+|\d+(?:st|nd|rd|th))\s+)?\bSt\b\.?(?=\s+[A-Z][a-z])")
_PLACE = re.compile(
    r"\b([A-Z][a-z]+|\d+(?:st|nd|rd|th))(\s+)("
    + "|".join(_PLACES)
    + r")\b(\.|(?=\s*(?:,|$|[.!?)]|and\b|in\b|at\b|is\b|\d)))"
)
_WITH_DOT = re.compile(r"(?<!\d )(?<!\d)\b(" + "|".join(sorted(_ANYWHERE, key=len, reverse=True)) + r")\.(?!\w)")
_WITHOUT_DOT = re.compile(r"\b(" + "|".join(_NO_DOT) + r")\b(?!\.\w)")
_NUMBERED = re.compile(r"\b(" + "|".join(sorted(_BEFORE_NUMBER, key=len, reverse=True)) + r")\.?(?=\s?#?\d)")
_LATIN = re.compile(r"\b(" + "|".join(re.escape(key) for key in _DOTTED) + r")\b\.?(,?)", re.IGNORECASE)
_INITIALISM = re.compile(r"\b(?:[A-Za-z]\.\s?){1,5}[A-Za-z]\.(?!\w)|\bPh\.?\s?D\b\.?|\b(?:[A-Z]\.){2,}[A-Z]\b")
_INITIAL = re.compile(r"(?:(?<=^)|(?<=[a-z.,]\s)|(?<=[\"(]))\b([A-Z])\.(?=\s+([A-Z][a-z]+))")
_SLANG = {
    "w/o": "without",
    "w/": "with ",
    "b/c": "because",
    "c/o": "care of",
    "n/a": "not applicable",
    "N/A": "not applicable",
}
_SLASHED = re.compile(r"(?<![\w/])(w/o|w/(?=\s?\w)|b/c|c/o|n/a|N/A)(?![\w/]|(?<=w/)$)")


def say_abbreviations(text: str) -> str:
    """Returns the text with abbreviations in words; a stop that also ends the sentence stays."""
    text = _LATIN.sub(_latin, text)
    text = _SLASHED.sub(lambda m: _SLANG[m[1]], text)
    text = _NUMBERED.sub(lambda m: _BEFORE_NUMBER[m[1]] + " ", text) if re.search(r"\d", text) else text
    text = _SAINT.sub(_saint, text)
    text = _TITLE.sub(_title, text)
    text = _BARE_TITLE.sub(lambda m: _TITLES[m[1]], text)
    text = _PLACE.sub(lambda m: m[1] + m[2] + _PLACES[m[3]] + _kept_stop(m), text)
    text = _WITH_DOT.sub(_with_dot, text)
    text = _WITHOUT_DOT.sub(lambda m: _NO_DOT[m[1]], text)
    text = _INITIALISM.sub(_initialism, text)
    return _INITIAL.sub(lambda m: m[0] if m[2].lower() in SENTENCE_STARTERS else m[1], text)


def say_roman_numerals(text: str) -> str:
    """Returns the text with the numerals of monarchs as ordinals and those of parts and sequels as cardinals."""
    return _ROMAN_WORD.sub(_roman, text)


def _latin(match: re.Match[str]) -> str:
    words = _DOTTED[match[1].lower()]
    return (words.capitalize() if match[1][0].isupper() and words[0].islower() else words) + match[2]


def _kept_stop(match: re.Match[str]) -> str:
    rest = match.string[match.end() :]
    ends = re.match(r"[\"')\]]*(?:$|\s+[A-Z\"'(]|\n)", rest) is not None
    return "." if match.group().endswith(".") and ends else ""


def _with_dot(match: re.Match[str]) -> str:
    return _ANYWHERE[match[1]] + ("" if match[1] in _NEVER_LAST else _kept_stop(match))


def _saint(match: re.Match[str]) -> str:
    """Street after a name or an ordinal (Main St., 5th St.), Saint before one; Mount St. Helens is a saint's."""
    name = match[1]
    if name is None or name in ("Mount", "Fort", "Port", "The", "In", "At", "From", "Lake", "Of", "To"):
        return f"{name} Saint" if name else "Saint"
    rest = match.string[match.end() :]
    return f"{name} Street" + ("" if re.match(r"\s+(?:[NSEW]|NE|NW|SE|SW)\b", rest) else _kept_stop(match))


def _title(match: re.Match[str]) -> str:
    before = match.string[: match.start()]
    if match[2]:
        return _TITLES[match[2]]
    if match[1] == "Dr" and re.search(r"\d\s+(?:[A-Z]\w+\s+)+$", before):
        return "Drive" + _kept_stop(match)
    return _TITLES[match[1]]


def _initialism(match: re.Match[str]) -> str:
    letters = " ".join(re.sub(r"[^A-Za-z]", "", match.group()).upper())
    rest = match.string[match.end() :]
    following = re.match(r"[\"')\]]*(?:\s+(\w+)|$)", rest)
    starts = bool(following and (not following[1] or following[1].lower() in SENTENCE_STARTERS))
    ends = starts and match.group().endswith(".") and not re.match(r"\s+[a-z]", rest)
    return letters + ("." if ends else "")


def _roman(match: re.Match[str]) -> str:
    word, gap, numeral = match.groups()
    value = roman(numeral)
    if value is None or numeral in _NOT_ROMAN or value > 120:
        return match.group()
    rest = match.string[match.end() :]
    if word in _ROYAL:
        if (
            numeral == "I"
            and re.match(r"\s+(?:[a-z]+|')", rest)
            and not re.match(r"\s+(?:of|was|and|in|had|died)\b", rest)
        ):
            return match.group()
        return f"{word}{gap}the {ordinal(value)}"
    if word in _PARTS or (len(numeral) > 1 and word[0].isupper() and not word.isupper()):
        return word + gap + cardinal(value)
    return match.group()
