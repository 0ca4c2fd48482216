"""What an English text says: every number, date, sum, abbreviation and symbol in words.

The rules run in a fixed order, the most specific first, each on what the ones before left: addresses before
abbreviations before dates before money before plain numbers. What comes out holds letters, apostrophes, spaces and the
punctuation that carries pauses; single capitals are letters to be read by name.
"""

from __future__ import annotations

import re
import unicodedata

from oscine.text.english.abbreviations import say_abbreviations
from oscine.text.english.addresses import say_addresses
from oscine.text.english.arithmetic import plain_notation, say_arithmetic, say_superscripts
from oscine.text.english.calendar import say_calendar_names, say_dates, say_decades, say_years
from oscine.text.english.clock import say_times
from oscine.text.english.codes import say_codes, say_telephone_numbers
from oscine.text.english.formulas import say_formulas
from oscine.text.english.money import say_money
from oscine.text.english.numerals import NUMBER, cardinal, fraction, number, ordinal
from oscine.text.english.quantities import join_ranges, say_bare_units, say_measures
from oscine.text.english.romans import say_roman_numerals
from oscine.text.english.scripts import to_plain_latin
from oscine.text.english.spelling import say_capitals, say_consonants, say_mixed_words, say_symbols

_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "−": "-", "…": "..."})
_RUN = re.compile(r"([^\w\s])\1{3,}")  # shortened first: more of it says no more
_GIANT = re.compile(r"\S{200}")  # no word; broken up, so that it is not looked up as one
_BLANKS = re.compile(r"\s+")
_ROMAN_LETTERS = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0x2160, 0x2180)}
_VULGAR = re.compile(r"(\d)?([¼-¾⅐-⅞])")
_ABOUT = re.compile(r"(?<!\w)~\s?(?=[\d$€£])")
_IDIOMS = {"24/7": "twenty four seven", "9/11": "nine eleven", "50/50": "fifty fifty", "20/20": "twenty twenty"}
_IDIOM = re.compile(r"(?<![\w/.])(24/7|9/11|50/50|20/20)(?![\w/])")
_MIXED_FRACTION = re.compile(r"(?<![\w.,/])(\d{1,3})(?:\s|-)(\d{1,2})/(\d{1,3})(?![\w/])")
_FRACTION = re.compile(r"(?<![\w.,/])(\d{1,3})/(\d{1,4})(?![\w/])")
_ORDINAL = re.compile(r"(?<![\w.])(\d{1,3}(?:,\d{3}){1,20}|\d{1,9})(?:st|nd|rd|th)\b", re.IGNORECASE)
_RANGE = re.compile(rf"(?<![\w.,$€£-])({NUMBER})(\s?)[-–—]\s?({NUMBER})(?![\w-]|[.,]\d)")
_SUM_FOLLOWS = re.compile(r"\s?=")
_SPREAD = re.compile(rf"(?<![\w.,])({NUMBER})\s?\+(?!\s?[\d\w])")
_TEAM = re.compile(r"(?<![\w.,])(\d{2})ers\b")
_NEGATIVE = re.compile(rf"(?<![\w.)\]-])-(?={NUMBER})")
_NUMBER = re.compile(NUMBER)
_GLUED_STOP = re.compile(r"(?<=[a-z\d)][.!?])(?=[A-Z][a-z])")
_INNER_QUOTE = re.compile(r"(?<![A-Za-z])'|'(?![A-Za-z])")
_TAKEN_OUT = re.compile(r"[^A-Za-z',.?!;:—\s-]")
_SHORTENED = re.compile(r"(?<![A-Za-z])'(?=(?:em|til|cause|tis|twas|bout|n)\b)", re.IGNORECASE)
_SPACING = (
    (re.compile(r"\s{0,2}(?<![()\[\]{}])[()\[\]{}]++\s{0,2}(?=[,.?!;:])"), ""),
    (re.compile(r"(?<=[,.?!;:])\s*[(\[{]+\s*|\s{0,2}(?<![)\]}])[)\]}]++\s{0,2}$|^\s*[(\[{]+\s*"), " "),
    (re.compile(r"\s{0,2}[()\[\]{}]+\s{0,2}"), ", "),
    (re.compile(r"(?:^|(?<=\s))[-–]+(?=\s|$)|[–—]+|(?<=\w)-{2,}(?=\w)"), " — "),
    (re.compile(r"(?<![A-Za-z])-|-(?![A-Za-z])"), " "),
    (re.compile(r"(?<!\.)\.{2,}+(?=\s*[A-Z\"']|\s*$)"), "."),
    (re.compile(r"\.{2,}"), ","),
    (re.compile(r"(?<!\s)\s++([,.?!;:])"), r"\1"),
    (re.compile(r"(?<![,;:])[,;:]++(?=[.?!])|(?<=[,;:.?!])[,;:]+"), ""),
    (re.compile(r"(?<![.?!])[.?!]*\?[.?!]*"), "?"),
    (re.compile(r"(?<![.!])[.!]*![.!]*"), "!"),
    (re.compile(r"\.+"), "."),
    (re.compile(r"^[\s,.;:!?—]+(?=[A-Za-z'])"), ""),
    (re.compile(r"([,;:.?!])(?=[A-Za-z])"), r"\1 "),
    (re.compile(r"(?<![\s—])\s*+—[\s—]*+(?=[,.?!;:]|$)|(?<=[,.?!;:])\s*+—"), ""),
    (re.compile(r"\s+"), " "),
)


def normalize(text: str) -> str:
    """Returns the words an English reader says for `text`, e.g. "nine forty five" for 9:45.

    Doing it twice changes nothing more. Letters of other alphabets are taken out or, if Latin with marks, replaced by
    plain ones; `oscine.text.english.scripts.check_script` refuses a text that is not in Latin script at all.
    """
    text = unicodedata.normalize("NFC", text).translate(_QUOTES)
    text = _GIANT.sub(r"\g<0> ", _BLANKS.sub(" ", _RUN.sub(r"\1\1\1", text)))
    text = text.translate(_ROMAN_LETTERS)
    text = say_superscripts(say_formulas(_VULGAR.sub(_vulgar, text)))
    text = _GLUED_STOP.sub(" ", text) if "://" not in text else text
    text = say_addresses(text)
    text = say_abbreviations(text)
    text = say_roman_numerals(text)
    if any(char.isdigit() for char in text):
        text = _say_numbers(text)
    text = say_calendar_names(text)
    text = say_bare_units(text)
    text = say_mixed_words(text)
    text = say_symbols(text)
    text = _NUMBER.sub(lambda m: f" {number(m[0])} ", text)
    text = to_plain_latin(text)
    text = say_consonants(say_capitals(text))
    return _tidy(text)


def _say_numbers(text: str) -> str:
    text = "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in text)
    text = join_ranges(_ABOUT.sub("about ", text))
    text = _IDIOM.sub(lambda m: _IDIOMS[m[1]], text)
    text = say_dates(text)
    text = say_times(text)
    text = say_telephone_numbers(text)
    text = plain_notation(text)
    text = say_money(text)
    text = say_arithmetic(text)
    text = say_codes(text)
    text = _MIXED_FRACTION.sub(lambda m: f"{cardinal(int(m[1]))} and {_part(int(m[2]), int(m[3]))}", text)
    text = _FRACTION.sub(lambda m: fraction(int(m[1]), int(m[2])) if int(m[2]) else m[0], text)
    text = say_decades(text)
    text = say_measures(text)
    text = say_years(text)
    text = _ORDINAL.sub(lambda m: ordinal(int(m[1].replace(",", ""))), text)
    text = _RANGE.sub(_range, text)
    text = _TEAM.sub(lambda m: _people_of(cardinal(int(m[1]))), text)
    text = _SPREAD.sub(lambda m: f"{number(m[1])} plus", text)
    return _NEGATIVE.sub("minus ", text)


def _people_of(number_words: str) -> str:
    """`49ers` as forty niners."""
    return number_words + ("rs" if number_words.endswith("e") else "ers")


def _range(match: re.Match[str]) -> str:
    """`5-10` is a range; `5 - 3`, spaced and falling, and `5-3=2` are subtractions."""
    first, gap, last = match.groups()
    sum_follows = _SUM_FOLLOWS.match(match.string, match.end()) is not None
    falling = sum_follows or (gap and float(first.replace(",", "")) > float(last.replace(",", "")))
    return f"{number(first)} {'minus' if falling else 'to'} {number(last)}"


def _part(above: int, below: int) -> str:
    words = fraction(above, below) if below else f"{above} over zero"
    return {"one half": "a half", "one quarter": "a quarter"}.get(words, words)


def _vulgar(match: re.Match[str]) -> str:
    parts = unicodedata.normalize("NFKC", match[2]).replace("⁄", "/")
    return f"{match[1]} {parts}" if match[1] else parts


def _tidy(text: str) -> str:
    text = _SHORTENED.sub("", text.replace('"', " "))
    text = _BLANKS.sub(" ", text)
    for pattern, replacement in _SPACING[:3]:
        text = pattern.sub(replacement, text)
    text = _TAKEN_OUT.sub(" ", text.replace("–", "—"))
    text = _BLANKS.sub(" ", _INNER_QUOTE.sub(" ", text))
    for pattern, replacement in _SPACING[3:]:
        text = pattern.sub(replacement, text)
    return text.strip()
