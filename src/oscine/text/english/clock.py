"""Times of day, durations and ratios in words: `9:45 pm`, `14:00`, `7.30pm`, `9-11 am`, `1h 30m`, `16:9`."""

from __future__ import annotations

import re

from oscine.text.english.numerals import cardinal

_HALF = r"([ap])(?:\.\s?m\b\.?|\s?m\b)(?!\w)"
_CLOCK = re.compile(rf"(?<![\w:.,/])(\d{{1,2}}):(\d{{2}})(?::(\d{{2}}))?(?![\d:])(?:\s?{_HALF})?", re.IGNORECASE)
_CLOCK_RANGE = re.compile(r"(?<=\d:\d\d)\s?[-–—]\s?(?=\d{1,2}:\d\d)")
_HALF_RANGE = re.compile(r"(?<=\d)(\s?[ap]\.?\s?m\b\.?)\s?[-–—]\s?(?=\d{1,2}(?::\d\d)?\s?[ap]\.?\s?m\b)", re.IGNORECASE)
_HALF_SLASH = re.compile(r"(\d\s?[ap]m(?:\s[A-Z]{2,4})?)\s?/\s?(?=\d)", re.IGNORECASE)
_DURATION_BEFORE = re.compile(r"\b(?:in|of|for|took|takes|lasted|lasts|time|after|record|runs|ran|finished)\s$")
_DOTTED = re.compile(rf"(?<![\w:.,/$€£])(\d{{1,2}})\.([0-5]\d)(?=\s?{_HALF})", re.IGNORECASE)
_HOUR = re.compile(rf"(?<![\w:.,/])(\d{{1,2}})(?:\s?[-–]\s?(\d{{1,2}}))?\s?{_HALF}", re.IGNORECASE)
_HALF_ALONE = re.compile(r"\b([ap])\.m\b\.?", re.IGNORECASE)
_HOURS_MINUTES = re.compile(r"(?<![\w.,:])(\d{1,3})\s?h(?:rs?)?\s?(\d{1,2})(?:\s?m(?:ins?)?)?(?![\w:]|[.,]\d)")
_MINUTES_SECONDS = re.compile(r"(?<![\w.,:])(\d{1,3})\s?m(?:ins?)?\s?(\d{1,2})\s?s(?:ecs?)?(?![\w:])")
_MILITARY = re.compile(r"(?<![\w.,:])([01]\d|2[0-3])([0-5]\d)\s?(?=(?:hours|hrs)\b)")
_RATIO = re.compile(r"(?<![\w:.,])(\d{1,3}):(\d{1,3})(?![\d:])")

_NEW_SENTENCE = re.compile(r"[\"')]{0,9}(?:$|\s{1,20}[A-Z\"'(\d])")


def say_times(text: str) -> str:
    """Returns the text with clock times, hours with minutes, and ratios in words."""
    text = _CLOCK_RANGE.sub(" to ", text)
    text = _HALF_SLASH.sub(r"\1 slash ", text)
    text = _HALF_RANGE.sub(r"\1 to ", text)
    text = _DOTTED.sub(lambda m: f"{m[1]}:{m[2]}" if 1 <= int(m[1]) <= 12 else m[0], text)
    text = _CLOCK.sub(_clock, text)
    text = _HOUR.sub(_hour, text)
    text = _HALF_ALONE.sub(lambda m: f"{m[1].upper()} M" + _kept_stop(m), text)
    text = _HOURS_MINUTES.sub(lambda m: _duration(m, "hour", "minute"), text)
    text = _MINUTES_SECONDS.sub(lambda m: _duration(m, "minute", "second"), text)
    text = _MILITARY.sub(_military, text)
    return _RATIO.sub(_ratio, text)


def _ratio(match: re.Match[str]) -> str:
    """`16:9` is a ratio, `39:05` minutes and seconds."""
    first, second = match.groups()
    if second[0] == "0" and len(second) == 2:
        return f"{cardinal(int(first))} oh {cardinal(int(second))}"
    return f"{cardinal(int(first))} to {cardinal(int(second))}"


def _kept_stop(match: re.Match[str]) -> str:
    """A full stop if the abbreviation's own stop also ends the sentence."""
    return "." if match.group().endswith(".") and _NEW_SENTENCE.match(match.string, match.end()) else ""


def _half(letter: str | None, match: re.Match[str]) -> str:
    return f" {letter.upper()} M" + _kept_stop(match) if letter else ""


def _clock(match: re.Match[str]) -> str:
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 24 or minute > 59 or second > 59:
        return match.group()
    if match[3] and not match[4] and _DURATION_BEFORE.search(match.string[max(match.start() - 12, 0) : match.start()]):
        parts = ((hour, "hour"), (minute, "minute"), (second, "second"))
        return ", ".join(_counted(value, name) for value, name in parts if value) or match.group()
    if minute == 0 and not second:
        words = cardinal(hour) + ("" if match[4] else " o'clock" if 1 <= hour <= 12 else " hundred")
    else:
        words = cardinal(hour) + (" oh " if minute < 10 else " ") + cardinal(minute)
    if second:
        words += f" and {_counted(second, 'second')}"
    return words + _half(match[4], match)


def _hour(match: re.Match[str]) -> str:
    words = cardinal(int(match[1])) + (f" to {cardinal(int(match[2]))}" if match[2] else "")
    return words + _half(match[3], match)


def _counted(value: int, name: str) -> str:
    return f"{cardinal(value)} {name}" + ("" if value == 1 else "s")


def _duration(match: re.Match[str], large: str, small: str) -> str:
    return f"{_counted(int(match[1]), large)} {_counted(int(match[2]), small)}"


def _military(match: re.Match[str]) -> str:
    hour, minute = int(match[1]), int(match[2])
    hours = ("zero " if hour < 10 else "") + cardinal(hour)
    return f"{hours} {'hundred' if minute == 0 else ('oh ' if minute < 10 else '') + cardinal(minute)} "
