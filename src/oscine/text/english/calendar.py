"""Dates and times in words: `2026-11-29`, `11/29/2026`, `Nov 29`, `9:45 pm`, `14:00`, `the 1990s`."""

from __future__ import annotations

import re

from oscine.text.english.numerals import cardinal, ordinal, plural, year
from oscine.text.wordlist import word_list

_MONTHS = word_list("January February March April May June July August September October November December")
_SHORT = {name[:3]: name for name in _MONTHS} | {"Sept": "September"}
_DAYS = {
    "Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Thu": "Thursday",
    "Thur": "Thursday", "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday", "Sun": "Sunday",
}  # fmt: skip
_MONTH = r"(?:" + "|".join(sorted([*_MONTHS, *_SHORT], key=len, reverse=True)) + r")"
_ISO = re.compile(r"(?<![\d-])(\d{4})-(\d{1,2})-(\d{1,2})(?:T(?=\d))?(?![\d-])")
_SLASHED = re.compile(r"(?<![\d/])(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})(?![\d/])")
_DOTTED = re.compile(r"(?<![\d.])(\d{1,2})\.(\d{1,2})\.((?:19|20)\d{2})(?![\d])")
_MONTH_FIRST = re.compile(
    rf"\b({_MONTH})\b\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?(?![\d:]|\.\d|,\d)(?:(,?)\s+(\d{{4}})(?!\d|[-:]))?"
)
_DAY_FIRST = re.compile(
    rf"\b(?:(the)\s+)?(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_MONTH})\b\.?(?:,?\s+(\d{{4}})(?!\d|[-:]))?"
)
_MONTH_YEAR = re.compile(rf"\b({_MONTH})\b\.?,?\s+(\d{{4}})(?!\d|[-:])")
_MONTH_ALONE = re.compile(r"\b(Jan|Feb|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)(?:\.|(?=,))(?=\s*[\d,]|\s[a-z])")
_WEEKDAY = re.compile(
    rf"\b(?:(Mon|Tues|Tue|Thurs|Thur|Thu|Fri)(?:\.(?=,|\s*\w)|(?=,\s))"
    rf"|(Wed|Sat|Sun)(?:\.(?=,|\s*[a-z\d])|(?=,\s+(?:\d|{_MONTH}\b))))"
)
_HALF = r"([ap])(?:\.\s?m\b\.?|\s?m\b)(?!\w)"
_CLOCK = re.compile(rf"(?<![\w:.,/])(\d{{1,2}}):(\d{{2}})(?::(\d{{2}}))?(?![\d:])(?:\s?{_HALF})?", re.IGNORECASE)
_CLOCK_RANGE = re.compile(r"(?<=\d:\d\d)\s?[-–—]\s?(?=\d{1,2}:\d\d)")
_HOUR = re.compile(rf"(?<![\w:.,/])(\d{{1,2}})(?:\s?[-–]\s?(\d{{1,2}}))?\s?{_HALF}", re.IGNORECASE)
_HALF_ALONE = re.compile(r"\b([ap])\.m\b\.?", re.IGNORECASE)
_RATIO = re.compile(r"(?<![\w:.,])(\d{1,3}):(\d{1,3})(?![\d:])")
_DECADE = re.compile(
    r"(?<![\w.,])(?:((?:1\d|20))(\d0)|(?:(?<=\bthe )|(?<=\bin )|(?<=\bhis )|(?<=\bher )|(?<=\bmid-)|(?<=\bmid )"
    r"|(?<=\blate )|(?<=\bearly )|(?<=\btheir ))(\d0)|'(\d0))'?s\b"
)
_YEAR_RANGE = re.compile(r"(?<![\w.,-])((?:1[1-9]|20)\d{2})\s?[-–—]\s?((?:1[1-9]|20)\d{2}|\d{2})(?![\w-]|[.,]\d)")
_YEAR = re.compile(r"(?<![\w.,$€£#/-])((?:1[1-9]|20)\d{2})(?![\w%°/-]|[.,:]\d)")
_EARLY_YEAR = re.compile(
    r"(?:(?<=\byear )|(?<=\bin )|(?<=\bsince )|(?<=\bof ))(10\d{2})(?![\w%°/-]|[.,:]\d|\s[a-z]{3,}s\b)"
)
_ERA = re.compile(r"(?<![\w.,])(\d{1,4})\s?(BCE|BC|AD|CE)\b")
_COUNTED = re.compile(r"\s+(?:people|men|women|children|feet|[a-z]{3,}s)\b")
_NOT_COUNTED = re.compile(r"\s+(?:was|has|this|his|its|does|as|is|us|yes|versus|plus|towards|across|always|perhaps)\b")


def say_dates(text: str) -> str:
    """Returns the text with dates in words; a date that does not exist is left alone."""
    text = _ISO.sub(lambda m: _date(m[0], int(m[2]), int(m[3]), int(m[1])), text)
    text = _SLASHED.sub(_slashed, text)
    text = _DOTTED.sub(lambda m: _date(m[0], int(m[2]), int(m[1]), int(m[3])), text)
    text = _DAY_FIRST.sub(_day_first, text)
    text = _MONTH_FIRST.sub(_month_first, text)
    return _MONTH_YEAR.sub(lambda m: f"{_name(m[1])} {year(int(m[2]))}", text)


def say_calendar_names(text: str) -> str:
    """Returns the text with short names of weekdays and months, as in `Mon.` and `in Jan. we`, written out."""
    text = _WEEKDAY.sub(lambda m: _DAYS[m[1] or m[2]], text)
    return _MONTH_ALONE.sub(lambda m: _SHORT[m[1]], text)


def say_times(text: str) -> str:
    """Returns the text with clock times and ratios in words."""
    text = _CLOCK_RANGE.sub(" to ", text)
    text = _CLOCK.sub(_clock, text)
    text = _HOUR.sub(_hour, text)
    text = _HALF_ALONE.sub(lambda m: f"{m[1].upper()} M" + _kept_stop(m), text)
    return _RATIO.sub(lambda m: f"{cardinal(int(m[1]))} to {cardinal(int(m[2]))}", text)


def say_decades(text: str) -> str:
    """Returns the text with `the 1990s`, `'80s` and `in his 30s` in words."""
    return _DECADE.sub(_decade, text)


def say_years(text: str) -> str:
    """Returns the text with eras and plain years in words; `1200 calories` is a count, not a year."""
    text = _ERA.sub(lambda m: f"{year(int(m[1]))} {' '.join(m[2])}", text)
    text = _YEAR_RANGE.sub(_year_range, text)
    text = _EARLY_YEAR.sub(lambda m: year(int(m[1])), text)
    return _YEAR.sub(_plain_year, text)


def _name(month: str) -> str:
    return _SHORT.get(month, month)


def _date(written: str, month: int, day: int, in_year: int) -> str:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return written
    return f"{_MONTHS[month - 1]} {ordinal(day)}, {year(in_year)}" + (" " if written.endswith("T") else "")


def _slashed(match: re.Match[str]) -> str:
    first, second = int(match[1]), int(match[2])
    in_year = int(match[3]) if len(match[3]) == 4 else 2000 + int(match[3])
    month, day = (second, first) if first > 12 else (first, second)
    return _date(match[0], month, day, in_year)


def _day_first(match: re.Match[str]) -> str:
    _, day, month, in_year = match.groups()
    if not 1 <= int(day) <= 31:
        return match.group()
    return f"the {ordinal(int(day))} of {_name(month)}" + (f", {year(int(in_year))}" if in_year else "")


def _month_first(match: re.Match[str]) -> str:
    month, day, _, in_year = match.groups()
    if not 1 <= int(day) <= 31:
        return match.group()
    return f"{_name(month)} {ordinal(int(day))}" + (f", {year(int(in_year))}" if in_year else "")


def _kept_stop(match: re.Match[str]) -> str:
    """A full stop if the abbreviation's own stop also ends the sentence."""
    rest = match.string[match.end() :]
    return "." if match.group().endswith(".") and re.match(r"[\"')]*(?:$|\s+[A-Z\"'(\d])", rest) else ""


def _half(letter: str | None, match: re.Match[str]) -> str:
    return f" {letter.upper()} M" + _kept_stop(match) if letter else ""


def _clock(match: re.Match[str]) -> str:
    hour, minute, second = int(match[1]), int(match[2]), match[3]
    if hour > 24 or minute > 59:
        return match.group()
    if minute == 0 and not second:
        words = cardinal(hour) + ("" if match[4] else " o'clock" if 1 <= hour <= 12 else " hundred")
    else:
        words = cardinal(hour) + (" oh " if minute < 10 else " ") + cardinal(minute)
    if second:
        words += f" and {cardinal(int(second))} second" + ("" if int(second) == 1 else "s")
    return words + _half(match[4], match)


def _hour(match: re.Match[str]) -> str:
    words = cardinal(int(match[1])) + (f" to {cardinal(int(match[2]))}" if match[2] else "")
    return words + _half(match[3], match)


def _decade(match: re.Match[str]) -> str:
    century, tens, *alone = match.groups()
    if century is None:
        return plural(cardinal(int(alone[0] or alone[1]))) if "00" not in alone else match.group()
    if tens == "00":
        return plural(year(int(century + tens)))
    return f"{cardinal(int(century))} {plural(cardinal(int(tens)))}"


def _year_range(match: re.Match[str]) -> str:
    last = match[2] if len(match[2]) == 4 else match[1][:2] + match[2]
    if int(last) <= int(match[1]):
        return match.group()
    return f"{year(int(match[1]))} to {year(int(last)) if len(match[2]) == 4 else cardinal(int(match[2]))}"


def _plain_year(match: re.Match[str]) -> str:
    rest = match.string[match.end() :]
    if _COUNTED.match(rest) and not _NOT_COUNTED.match(rest):
        return match.group()
    return year(int(match[1]))
