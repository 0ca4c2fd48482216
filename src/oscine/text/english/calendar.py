"""Dates and years in words: `2026-11-29`, `11/29/2026`, `Nov 29`, `May 5-7`, `the 1990s`, `1914-18`."""

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
_DAY = "|".join(sorted([*_DAYS, *_DAYS.values()], key=len, reverse=True))
_NTH = r"(\d{1,2})(?:st|nd|rd|th)?"
_ISO = re.compile(
    r"(?<![\d/-])(\d{4})([-/])(\d{1,2})\2(\d{1,2})"
    r"(?:T(\d\d:\d\d(?::\d\d)?)(?:[.,]\d{1,9})?(Z|[+-]\d\d:?\d\d)?(?!\w)|(?!\d|[-/]\d|T\d))"
)
_SLASHED = re.compile(r"(?<![\d/])(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})(?![\d/])")
_DASHED = re.compile(r"(?<![\w-])(\d{1,2})-(\d{1,2})-((?:19|20)\d{2})(?![\w-])")
_DOTTED = re.compile(
    r"(?<![\d.])(\d{1,2})\.(\d{1,2})\.((?:19|20)\d{2})(?![\d])|(?<![\d.])(\d\d)\.(\d\d)\.(\d\d)(?!\.?\d)"
)
_NO_YEAR = re.compile(
    rf"\b((?:{_DAY})\.?,?\s+)(\d{{1,2}})/(\d{{1,2}})(?![\w/])"
    r"|\b((?:[Oo]n|[Bb]y|[Uu]ntil|[Ss]ince|[Dd]ue|[Dd]ated)\s+)(\d{1,2})/(\d{1,2})(?![\w/])"
    r"(?=$|\s?[.,;:!?)]|\s(?:at|and|or|we|I|he|she|they|it|you|from|to|in|the)\b)"
)
_ANY_CASE = re.compile(
    r"\b(january|february|april|june|july|august|september|october|november|december|jan|feb|apr|jul|aug|sept?|oct|nov"
    r"|dec)\b(?=\.?\s\d{1,2}(?:st|nd|rd|th)?(?![\w.:]))",
    re.IGNORECASE,
)
_MONTH_FIRST = re.compile(
    rf"\b({_MONTH})\b\.?\s+{_NTH}(?:(\s?[-–—]\s?|\s+to\s+){_NTH}(?!\w))?(?![\d:]|\.\d|,\d|-\d)(?:,?\s+(\d{{4}})(?!\d|[-:]))?"
)
_DAY_FIRST = re.compile(
    rf"\b(?:the\s+)?(?:{_NTH}(\s?[-–—]\s?)(?:the\s+)?)?{_NTH}\s+(?:of\s+)?({_MONTH})\b\.?(?:,?\s+(\d{{4}})(?!\d|[-:]))?"
)
_DAY_MONTH_YEAR = re.compile(rf"(?<![\w-])(\d{{1,2}})-({_MONTH})-(\d{{4}}|\d{{2}})(?![\w-])")
_DATE_RANGE = re.compile(rf"\b({_MONTH}\.?\s+\d{{1,2}})\s?[-–—]\s?(?={_MONTH}\b)")
_MONTH_YEAR = re.compile(rf"\b({_MONTH})\b\.?,?\s+(\d{{4}})(?!\d|[-:])")
_MONTH_ALONE = re.compile(r"\b(Jan|Feb|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)(?:\.|(?=,))(?=\s*[\d,]|\s[a-z])")
_WEEKDAY = re.compile(
    rf"\b(?:(Mon|Tues|Tue|Thurs|Thur|Thu|Fri)(?:\.|(?=,\s))|(Wed|Sat|Sun)(?:\.(?=,|\s*[a-z\d])"
    rf"|(?=,\s+(?:\d|the\s+[a-z ]+ of {_MONTH}\b|{_MONTH}\b))))"
    rf"|(?<=\bon )(Wed|Sat|Sun)(?:\.|(?=$|[,;!?]))"
)
_OPEN_DAY = re.compile(
    r"\b(Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)(?=\s\d{1,2}(?::\d\d)?\s?(?:[-–—]|to\b|[ap]\.?m\b|o'clock))"
    r"|\b((?:[Cc]losed|[Oo]pen|[Ee]very|[Uu]ntil|[Tt]ill|[Nn]ext|[Ll]ast)\s)(Wed|Sat|Sun)\b\.?(?=$|[\s,;!?)])"
)
_CLASS_YEAR = re.compile(r"(?<![\w'])'(\d\d)(?!['\w])")
_NAME_RANGE = re.compile(rf"\b({_DAY})\b\.?\s?[-–—]\s?({_DAY})\b\.?(?=\W|$)|\b({_MONTH})\b\.?[-–]({_MONTH})\b\.?")
_DECADE = re.compile(
    r"(?<![\w.,])(?:((?:1\d|20))(\d0)|(?:(?<=\bthe )|(?<=\bin )|(?<=\bhis )|(?<=\bher )|(?<=\bmid-)|(?<=\bmid )"
    r"|(?<=\blate )|(?<=\bearly )|(?<=\btheir )|(?<=\bmy )|(?<=\bour )|(?<=\byour )|(?<=\blow )|(?<=\bhigh )"
    r"|(?<=\bupper ))(\d0)|'(\d0))'?s\b"
)
_YEAR_RANGE = re.compile(r"(?<![\w.,-])((?:1[1-9]|20)\d{2})\s?[-–—]\s?((?:1[1-9]|20)\d{2}|\d{2})(?![\w-]|[.,]\d)")
_YEAR = re.compile(r"(?<![\w.,$€£#/-])((?:1[1-9]|20)\d{2})(?![\w%°/-]|[.,:]\d)")
_EARLY_YEAR = re.compile(
    r"(?:(?<=\byear )|(?<=\b[Ii]n )|(?<=\b[Ss]ince )|(?<=\bof ))(10\d{2})(?![\w%°/-]|[.,:]\d|\s[a-z]{3,}s\b)"
)
_SEASON = re.compile(r"(?<![\w.,$€£#/-])((?:19|20)\d{2})/(\d{2})(?![\w/-]|[.,]\d)")
_LAST_CENTURY = 50  # 12/31/50 is of the last century, 12/31/49 of this one
_ERA = re.compile(r"(?<![\w.,])(\d{1,4})\s?(BCE|BC|AD|CE)\b")
_COUNTED = re.compile(r"\s{1,20}(?:people|men|women|children|feet|[a-z]{3,}s)\b")
_NOT_COUNTED = re.compile(
    r"\s{1,20}(?:was|has|this|his|its|does|as|is|us|yes|versus|plus|towards|across|always|perhaps)\b"
)

_NEW_SENTENCE = re.compile(r"[\"')]{0,9}(?:$|\s{1,20}[A-Z])")
_DATE_FOLLOWS = re.compile(rf"\s{{1,20}}(?:{_MONTH}\b|[A-Z][a-z]+day\b)")


def say_dates(text: str) -> str:
    """Returns the text with dates in words; a date that does not exist is left alone."""
    text = _OPEN_DAY.sub(_open_day, text)
    text = _ISO.sub(_iso, text)
    text = _SLASHED.sub(_month_or_day_first, text)
    text = _DASHED.sub(_month_or_day_first, text)
    text = _DOTTED.sub(lambda m: _date(m[0], *(int(part) for part in (m[2] or m[5], m[1] or m[4], m[3] or m[6]))), text)
    text = _NO_YEAR.sub(_no_year, _ANY_CASE.sub(lambda m: m[1].capitalize(), text))
    text = _DAY_MONTH_YEAR.sub(_day_month_year, text)
    text = _DATE_RANGE.sub(r"\1 to ", text)
    text = _DAY_FIRST.sub(_day_first, text)
    text = _MONTH_FIRST.sub(_month_first, text)
    return _MONTH_YEAR.sub(lambda m: f"{_name(m[1])} {year(int(m[2]))}", text)


def say_calendar_names(text: str) -> str:
    """Returns the text with short names of weekdays and months, as in `Mon.` and `in Jan. we`, written out."""
    text = _NAME_RANGE.sub(_name_range, text)
    text = _WEEKDAY.sub(_weekday, _OPEN_DAY.sub(_open_day, text))
    return _MONTH_ALONE.sub(lambda m: _SHORT[m[1]], text)


def say_decades(text: str) -> str:
    """Returns the text with `the 1990s`, `'80s` and `in his 30s` in words."""
    return _DECADE.sub(_decade, text)


def say_years(text: str) -> str:
    """Returns the text with eras and plain years in words; `1200 calories` is a count, not a year."""
    text = _CLASS_YEAR.sub(lambda m: "two thousand" if m[1] == "00" else _short_year(m[1]), text)
    text = _ERA.sub(lambda m: f"{year(int(m[1]))} {' '.join(m[2])}", text)
    text = _YEAR_RANGE.sub(_year_range, text)
    text = _SEASON.sub(lambda m: f"{year(int(m[1]))} slash {_short_year(m[2])}", text)
    text = _EARLY_YEAR.sub(lambda m: year(int(m[1])), text)
    return _YEAR.sub(_plain_year, text)


def _name(month: str) -> str:
    return _SHORT.get(month, month)


def _short_year(digits: str) -> str:
    return ("oh " if digits[0] == "0" else "") + cardinal(int(digits))


def _date(written: str, month: int, day: int, in_year: int) -> str:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return written
    if in_year < 100:
        in_year += 1900 if in_year >= _LAST_CENTURY else 2000
    return f"{_MONTHS[month - 1]} {ordinal(day)}, {year(in_year)}"


def _iso(match: re.Match[str]) -> str:
    """A date, and the time of day that follows its T; that is left in figures for `say_times`."""
    words = _date(match[0], int(match[3]), int(match[4]), int(match[1]))
    if not match[5] or words == match[0]:
        return words
    return f"{words}, {match[5]}{_zone(match[6])}"


def _zone(offset: str | None) -> str:
    """What follows an ISO time: Z, or hours and minutes off universal time."""
    if not offset or offset == "Z":
        return " U T C" if offset else ""
    hours, minutes = int(offset[1:3]), int(offset[-2:])
    sign = "plus" if offset[0] == "+" else "minus"
    return f" U T C {sign} {cardinal(hours)}" + (f" {cardinal(minutes)}" if minutes else "")


def _month_or_day_first(match: re.Match[str]) -> str:
    """The American order, month first, unless that is no date."""
    first, second = int(match[1]), int(match[2])
    month, day = (second, first) if first > 12 else (first, second)
    return _date(match[0], month, day, int(match[3]))


def _day_month_year(match: re.Match[str]) -> str:
    return _date(match[0], _MONTHS.index(_name(match[2])) + 1, int(match[1]), int(match[3]))


def _no_year(match: re.Match[str]) -> str:
    lead, *parts = (part for part in match.groups() if part is not None)
    month, day = int(parts[0]), int(parts[1])
    month, day = (day, month) if month > 12 else (month, day)
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return match.group()
    return f"{lead}{_MONTHS[month - 1]} {ordinal(day)}"


def _day_first(match: re.Match[str]) -> str:
    first, _, day, month, in_year = match.groups()
    if not 1 <= int(day) <= 31 or (first and not 1 <= int(first) < int(day)):
        return match.group()
    days = f"the {ordinal(int(first))} to the " if first else "the "
    return f"{days}{ordinal(int(day))} of {_name(month)}" + (f", {year(int(in_year))}" if in_year else "")


def _month_first(match: re.Match[str]) -> str:
    month, day, gap, last, in_year = match.groups()
    if not 1 <= int(day) <= 31 or (last and not int(day) < int(last) <= 31) or _counts(match):
        return match.group()
    days = ordinal(int(day)) + (f" to {ordinal(int(last))}" if gap else "")
    return f"{_name(month)} {days}" + (f", {year(int(in_year))}" if in_year else "")


def _name_range(match: re.Match[str]) -> str:
    first, last = match[1] or match[3], match[2] or match[4]
    stop = "." if match[0].endswith(".") and _NEW_SENTENCE.match(match.string, match.end()) else ""
    return f"{_name(_DAYS.get(first, first))} to {_name(_DAYS.get(last, last))}{stop}"


def _counts(match: re.Match[str]) -> bool:
    """Whether the number after a month counts what follows, as in `In May 20 people came`."""
    before = match.string[max(match.start() - 3, 0) : match.start()]
    return match[0][-1].isdigit() and not match[5] and before.lower() != "on " and _counted(match)


def _counted(match: re.Match[str]) -> bool:
    """Whether what stands after the number is what it counts."""
    text, end = match.string, match.end()
    return _COUNTED.match(text, end) is not None and _NOT_COUNTED.match(text, end) is None


def _weekday(match: re.Match[str]) -> str:
    stop = "." if match.group().endswith(".") and _NEW_SENTENCE.match(match.string, match.end()) else ""
    following = _DATE_FOLLOWS.match(match.string, match.end())
    return _DAYS[match[1] or match[2] or match[3]] + ("" if following else stop)


def _open_day(match: re.Match[str]) -> str:
    if match[1]:
        return _DAYS[match[1]]
    stop = "." if match.group().endswith(".") and _NEW_SENTENCE.match(match.string, match.end()) else ""
    return match[2] + _DAYS[match[3]] + stop


def _decade(match: re.Match[str]) -> str:
    century, tens, *alone = match.groups()
    if century is None:
        return plural(cardinal(int(alone[0] or alone[1]) or 2000))
    if tens == "00":
        return plural(year(int(century + tens)))
    return f"{cardinal(int(century))} {plural(cardinal(int(tens)))}"


def _year_range(match: re.Match[str]) -> str:
    last = match[2] if len(match[2]) == 4 else match[1][:2] + match[2]
    if int(last) <= int(match[1]):
        return match.group()
    return f"{year(int(match[1]))} to {year(int(last)) if len(match[2]) == 4 else cardinal(int(match[2]))}"


def _plain_year(match: re.Match[str]) -> str:
    return match.group() if _counted(match) else year(int(match[1]))
