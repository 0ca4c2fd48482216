"""References to verses of the Bible: `Gen. 1:1`, `1 Cor. 13:4-7`, `John 3:16`."""

from __future__ import annotations

import re

from oscine.text.english.numerals import cardinal

_SHORT = {
    "Gen": "Genesis", "Exod": "Exodus", "Ex": "Exodus", "Lev": "Leviticus", "Num": "Numbers", "Deut": "Deuteronomy",
    "Josh": "Joshua", "Judg": "Judges", "Sam": "Samuel", "Kgs": "Kings", "Chron": "Chronicles", "Chr": "Chronicles",
    "Neh": "Nehemiah", "Esth": "Esther", "Ps": "Psalm", "Pss": "Psalms", "Prov": "Proverbs", "Eccl": "Ecclesiastes",
    "Isa": "Isaiah", "Jer": "Jeremiah", "Lam": "Lamentations", "Ezek": "Ezekiel", "Dan": "Daniel", "Hos": "Hosea",
    "Mic": "Micah", "Hab": "Habakkuk", "Zech": "Zechariah", "Mal": "Malachi", "Matt": "Matthew", "Mt": "Matthew",
    "Mk": "Mark", "Lk": "Luke", "Jn": "John", "Rom": "Romans", "Cor": "Corinthians", "Gal": "Galatians",
    "Eph": "Ephesians", "Phil": "Philippians", "Col": "Colossians", "Thess": "Thessalonians", "Tim": "Timothy",
    "Heb": "Hebrews", "Jas": "James", "Pet": "Peter", "Rev": "Revelation",
}  # fmt: skip
_FULL = (
    "Genesis|Exodus|Leviticus|Numbers|Deuteronomy|Joshua|Judges|Samuel|Kings|Chronicles|Psalms?|Proverbs|Ecclesiastes"
    "|Isaiah|Jeremiah|Ezekiel|Matthew|Luke|John|Acts|Romans|Corinthians|Galatians|Ephesians|Philippians|Colossians"
    "|Thessalonians|Timothy|Hebrews|Revelation"
)
_ORDINALS = {"1": "First", "2": "Second", "3": "Third", "I": "First", "II": "Second", "III": "Third"}
_VERSE = re.compile(
    rf"\b(?:([123]|I{{1,3}})\s)?(?:({'|'.join(sorted(_SHORT, key=len, reverse=True))})\.?|({_FULL}))\s"
    r"(\d{1,3}):(\d{1,3})(?:\s?[-–]\s?(\d{1,3}))?(?![\d:]|\s?[apAP]\.?[mM]\b)"
)


def say_verses(text: str) -> str:
    """Returns the text with references to verses in words: "First Corinthians thirteen, four to seven"."""
    return _VERSE.sub(_verse, text)


def _verse(match: re.Match[str]) -> str:
    book, short, full, chapter, first, last = match.groups()
    name = (f"{_ORDINALS[book]} " if book else "") + (full or _SHORT[short])
    verses = cardinal(int(first)) + (f" to {cardinal(int(last))}" if last else "")
    return f"{name} {cardinal(int(chapter))}, {verses}"
