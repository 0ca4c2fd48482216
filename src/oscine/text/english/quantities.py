"""Measures, percentages and temperatures in words: `50g`, `10 km/h`, `20°C`, `5'10"`, `a 5kg bag`, `mg/dL`."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial

from oscine.text.english.grammar import is_attributive
from oscine.text.english.money import SCALES
from oscine.text.english.numerals import NUMBER, in_pairs, number, ordinal, plural
from oscine.text.wordlist import word_set

_UNITS = {
    "kg": "kilogram", "g": "gram", "mg": "milligram", "µg": "microgram", "μg": "microgram", "lb": "pound",
    "lbs": "pound", "oz": "ounce", "mm": "millimeter", "cm": "centimeter", "m": "meter", "km": "kilometer",
    "nm": "nanometer", "µm": "micrometer", "μm": "micrometer", "yd": "yard", "mi": "mile", "ml": "milliliter",
    "mL": "milliliter", "cl": "centiliter", "dl": "deciliter", "l": "liter", "L": "liter", "gal": "gallon",
    "s": "second", "sec": "second", "secs": "second", "ms": "millisecond", "min": "minute", "mins": "minute",
    "h": "hour", "hr": "hour", "hrs": "hour", "yr": "year", "yrs": "year", "wk": "week", "wks": "week", "mo": "month",
    "KB": "kilobyte", "kB": "kilobyte", "MB": "megabyte", "GB": "gigabyte", "TB": "terabyte", "PB": "petabyte",
    "Kb": "kilobit", "Mb": "megabit", "Gb": "gigabit", "MiB": "mebibyte", "GiB": "gibibyte", "W": "watt",
    "kW": "kilowatt", "MW": "megawatt", "GW": "gigawatt", "V": "volt", "kV": "kilovolt", "mV": "millivolt",
    "mA": "milliampere", "J": "joule", "kJ": "kilojoule", "cal": "calorie", "kcal": "kilocalorie", "px": "pixel",
    "ha": "hectare", "ac": "acre", "N": "newton", "Pa": "pascal", "kPa": "kilopascal", "MP": "megapixel",
    "tbsp": "tablespoon", "tsp": "teaspoon", "Tbsp": "tablespoon", "TBSP": "tablespoon", "Tbs": "tablespoon",
    "tbs": "tablespoon", "Tsp": "teaspoon", "pts": "point", "mcg": "microgram", "kΩ": "kilohm", "Ω": "ohm",
    "MΩ": "megohm", "µF": "microfarad", "μF": "microfarad", "nF": "nanofarad", "pF": "picofarad", "mH": "millihenry",
    "mmol": "millimole",
    "pt": "point", "dB": "decibel",
}  # fmt: skip
_INVARIABLE = {
    "ft": ("foot", "feet"), "in": ("inch", "inches"), "Hz": ("hertz", "hertz"), "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"), "GHz": ("gigahertz", "gigahertz"), "mph": ("mile per hour", "miles per hour"),
    "km/h": ("kilometer per hour", "kilometers per hour"), "kph": ("kilometer per hour", "kilometers per hour"),
    "kmh": ("kilometer per hour", "kilometers per hour"), "m/s": ("meter per second", "meters per second"),
    "m/s²": ("meter per second squared", "meters per second squared"),
    "mpg": ("mile per gallon", "miles per gallon"), "fl oz": ("fluid ounce", "fluid ounces"),
    "cu ft": ("cubic foot", "cubic feet"), "sqft": ("square foot", "square feet"), "mol": ("mole", "moles"),
    "mmHg": ("millimeter of mercury", "millimeters of mercury"),
    "kbps": ("kilobit per second", "kilobits per second"), "Mbps": ("megabit per second", "megabits per second"),
    "Gbps": ("gigabit per second", "gigabits per second"), "MB/s": ("megabyte per second", "megabytes per second"),
    "GB/s": ("gigabyte per second", "gigabytes per second"), "kWh": ("kilowatt hour", "kilowatt hours"),
    "mAh": ("milliamp hour", "milliamp hours"), "fps": ("frame per second", "frames per second"),
    "rpm": ("revolution per minute", "revolutions per minute"), "dpi": ("dot per inch", "dots per inch"),
    "ppm": ("part per million", "parts per million"), "bps": ("basis point", "basis points"),
    "psi": ("P S I", "P S I"), "bpm": ("beat per minute",
    "beats per minute"), "sq ft": ("square foot", "square feet"), "sq m": ("square meter", "square meters"),
    "sq mi": ("square mile", "square miles"),
    "sq km": ("square kilometer", "square kilometers"), "°C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"), "°": ("degree", "degrees"), "℃": ("degree Celsius",
    "degrees Celsius"), "℉": ("degree Fahrenheit", "degrees Fahrenheit"), "%": ("percent", "percent"),
    "‰": ("per mille", "per mille"), "¢": ("cent", "cents"), "x": ("times", "times"), "×": ("times", "times"),
}  # fmt: skip
_POWERS = {"²": "square ", "2": "square ", "³": "cubic ", "3": "cubic "}
_UNSPACED = frozenset({"x", "N", "J", "pt", "ac", "×", "in", "A"})  # with a space they are words, names or letters
_SPACED = frozenset({"ac"})  # 11ac is no area
_DENOMINATORS = {
    "s": "second", "sec": "second", "min": "minute", "h": "hour", "hr": "hour", "L": "liter", "l": "liter",
    "dL": "deciliter", "dl": "deciliter", "mL": "milliliter", "ml": "milliliter", "kg": "kilogram", "g": "gram",
    "m": "meter", "km": "kilometer", "cm": "centimeter", "ft": "foot", "in": "inch", "day": "day", "d": "day",
    "mi": "mile", "mol": "mole", "lb": "pound", "gal": "gallon", "week": "week", "month": "month", "yr": "year",
    "year": "year", "hour": "hour", "minute": "minute", "second": "second",
}  # fmt: skip
_BARE = {
    "km/h": "kilometers per hour", "km/hr": "kilometers per hour", "mph": "miles per hour", "mpg": "miles per gallon",
    "kg": "kilograms", "km": "kilometers", "cm": "centimeters", "mm": "millimeters", "lbs": "pounds",
    "kWh": "kilowatt hours", "GHz": "gigahertz", "MHz": "megahertz", "kHz": "kilohertz", "Mbps": "megabits per second",
    "m/s": "meters per second", "GB": "gigabytes", "TB": "terabytes", "mmHg": "millimeters of mercury",
    "sq ft": "square feet", "°C": "degrees Celsius",
    "°F": "degrees Fahrenheit",
}  # fmt: skip
_RACES = word_set("sprint dash race swim hurdles run relay freestyle butterfly backstroke breaststroke champion final")
_CROWDS = (
    "people|users|views|followers|subscribers|downloads|customers|workers|voters|visitors|copies|jobs|homes|households"
    "|tons|tonnes|euros|dollars|pounds|years|women|men|children|residents|citizens|passengers|members|likes|streams"
)

_all_units = sorted({*_UNITS, *_INVARIABLE} - {"x", "×"}, key=lambda unit: (-len(unit), unit))
_DOTTED_UNITS = r"(?:sq |cu )?ft|sq mi?|fl oz|in|oz|lbs?|gal|mi|yd|tbsp|tsp|hrs?|mins?|secs?|yrs?|wks?"
_SQUARE = re.compile(r"(?<=\d)\s?(sq|cu|fl)\.\s?(?=(?:ft|mi?|km|in|oz)\b)")
_UNIT = "|".join(re.escape(unit) for unit in _all_units)
_BELOW = "|".join(sorted(_DENOMINATORS, key=len, reverse=True))
_RANGE = rf"(?<![\w.,$€£-])(-?{NUMBER})(?:\s?[-–—]\s?|\s+to\s+)({NUMBER})"
_BOTH_ENDS = re.compile(rf"(?<![\w.,$€£-])({NUMBER})(\s?)({_UNIT})\s?[-–—]\s?(?={NUMBER}\s?\3(?![\w°/]))")
_STONES = re.compile(r"(?<![\w.,])(\d{1,2})\s?st\s?(\d{1,2})\s?lbs?\b\.?|(?<=\bweighs )(\d{1,2})\s?st\b")
_CUPS = re.compile(rf"(?<![\w.,])({NUMBER}|(?:one|a|three)\s(?:half|quarters?|thirds?))\s?c\.(?=\s[a-z])")
_GOAL_MINUTE = re.compile(
    r"\b(?:goals?|scored?|scores|scoring|penalty|booked|card|equali[sz]ed|equali[sz]er|header)\b[^.]{0,60}$"
)
_ADDED_TIME = re.compile(r"(?<![\w.,'])(\d{1,3})\s?\+\s?(\d{1,2})'(?=$|[\s.,;)-])")
_NAMED_BY_NUMBER = re.compile(r"(?<![\w.,$€£-])(\d{3,4})s(?!\w)")
_DURATION_BEFORE = re.compile(
    r"(?:\b(?:an?|for|in|after|every|within|than|took|takes|lasts?|lasted|wait|waited|timeout|least|most|to"
    r"|(?:timeout|delay|limit|duration|total|minimum|maximum|interval|pause|window) of)|[=:~-])\s?$"
)
_BITS_A_SECOND = re.compile(r"(?<=\d{4})\s?bps\b|(?<=\dk)\s?bps\b")
_DOTS = re.compile(rf"(?<![\w.,])({NUMBER}[\s-]?)({_DOTTED_UNITS})\.(?!\w)")
_INCHES_SPACED = re.compile(
    r"(?<=\d)\s?in\b(?=\s(?:of|wide|long|tall|thick|deep|high|by|x|diameter|across|per)\b|\s?x\s?\d)"
    r"|(?<=\d (?:ft|lb) )(\d{1,2})\s?in\b"
)
_MEASURE = re.compile(
    rf"(?<![\w.,])(-?{NUMBER})(\s?|-)({_UNIT})(?:([²³]|(?<=m)[23])?(?:/({_BELOW})([²³23])?)?|(?<=m)\^([23]))(?![\w°])"
)
_MEASURE_RANGE = re.compile(_RANGE + rf"(\s?)({_UNIT})([²³])?(?![\w°/])")
_BARE_UNIT = re.compile(r"(?<![\w/.$€£^-])(" + "|".join(re.escape(key) for key in _BARE) + r")(?![\w/²³-]|\.\w)")
_PER_BARE = re.compile(rf"(?<=\bper )({_BELOW})\b(?!\.\w)")
_TIMES = re.compile(rf"(?<![\w.,])({NUMBER})[x×](?![\w])")
_PRODUCT = re.compile(rf"(?<=\d)\s?[x×]\s?(?=10\^|10[⁻⁰¹²³⁴-⁹]|{NUMBER}\s?=)")
_DIMENSIONS = re.compile(rf"(?<![\w.,])({NUMBER})\s?[x×]\s?(?={NUMBER}(?![\d²³^]))")
_PIXELS = re.compile(r"(?<![\w.,])(\d{3,4})\s?[x×]\s?(\d{3,4})(?![\w.,]\d|\w)")
_INCHES_BY = re.compile(rf"(?<=\bby )({NUMBER})\s?in\b(?=$|[\s,.;:!?)])")
_HEIGHT = re.compile(r"(?<![\w.,])(\d{1,2})'\s?(\d{1,2})(?:\"|'')")
_INCHES = re.compile(rf"(?<![\w.,])({NUMBER})\"(?=$|[\s.,;)x-])")
_INCHES_BY_INCHES = re.compile(rf"(?<![\w.,])({NUMBER})\"\s?[x×]\s?(?=\d)")
_OPENING = re.compile(r"(?<!\d)\"")
_QUOTATION = 300  # characters before inches in which a quotation may have been opened
_AFTER_INCHES = "of|in|wide|long|tall|thick|deep|high|by|across|and|or|to|at|on|is|was|from|for|with|than|below|above"
_FEET = re.compile(r"(?<![\w.,'])(\d{1,3}(?:,\d{3})+|\d{1,5})'(?=$|[\s.,;)x-])")
_COUNT_SCALE = re.compile(
    rf"(?<![\w.,])({NUMBER})(k|M|bn|mn|tn|m(?=\s(?:{_CROWDS})\b)|B(?=\s[a-z]{{4,}}s\b|\s(?:{_CROWDS})\b))\b"
)
_PARTS = "half|halves|thirds?|quarters?|fifths?|sixths?|eighths?|sixteenths?"
_FRACTION_UNIT = re.compile(
    rf"\b(and )?((?:a )?(?:{_PARTS}))[ -](tsp|tbsp|oz|lbs?|in|mi|kg|km|gal|ft|yd|hrs?|cm|mm)\b\.?(?!\w)"
)
_DOZENS = re.compile(r"(?<![\w.,])(10|100|1,?000)s(?=\s+(?:of|more)\b)")
_RUN = re.compile(r"(?<![\w.,])(\d{1,3})[kK](?=\s(?:run|race|walk|runs|races|jog)\b)")

_NEW_SENTENCE = re.compile(r"[\"')\]]{0,9}(?:$|\s{1,20}[A-Z\"'(])")
_NOUN_AFTER_INCHES = re.compile(rf"\s(?!(?:{_AFTER_INCHES})\b)[a-z]{{3}}")


def say_measures(text: str) -> str:
    """Returns the text with measures, percentages and factors in words."""
    text = _STONES.sub(lambda m: f"{number(m[1] or m[3])} stone" + (f" {number(m[2])}" if m[2] else ""), text)
    text = _BITS_A_SECOND.sub(" bits per second", text)
    text = _CUPS.sub(lambda m: f"{m[1]} cup" + ("s" if m[1].isdecimal() and m[1] != "1" else ""), text)
    text = _NAMED_BY_NUMBER.sub(_named_by_number, text)
    text = _FRACTION_UNIT.sub(_fraction_unit, text)
    text = _DOZENS.sub(lambda m: {2: "tens", 3: "hundreds"}.get(len(m[1]), "thousands"), text)
    text = _PRODUCT.sub(" times ", text)
    text = _PIXELS.sub(lambda m: f"{in_pairs(m[1])} by {in_pairs(m[2])}", text)
    text = _DIMENSIONS.sub(lambda m: number(m[1]) + " by ", text)
    text = _DOTS.sub(_without_dot, _SQUARE.sub(r" \1 ", text))
    text = _HEIGHT.sub(lambda m: f"{number(m[1])} foot {number(m[2])}", text)
    text = _INCHES_BY_INCHES.sub(r"\1 by ", text)
    text = _INCHES.sub(partial(_inches, [mark.start() for mark in _OPENING.finditer(text)]), text)
    text = _FEET.sub(_feet, _ADDED_TIME.sub(_added_time, text))
    text = _INCHES_SPACED.sub(lambda m: _measure(m[1], ("inch", "inches")) if m[1] else " inches", text)
    text = _RUN.sub(lambda m: f"{number(m[1])} K", text)
    text = _COUNT_SCALE.sub(lambda m: f"{number(m[1])} {SCALES[m[2].lower()]}", text)
    text = _INCHES_BY.sub(r"\1 inches", text)
    text = _MEASURE_RANGE.sub(_say_range, text)
    text = _MEASURE.sub(_say_measure, text)
    return _TIMES.sub(lambda m: number(m[1]) + " times", text)


def join_ranges(text: str) -> str:
    """Returns the text with the unit of a range said once: `5%-6%` → `5-6%`."""
    return _BOTH_ENDS.sub(r"\1-", text)


def say_bare_units(text: str) -> str:
    """Returns the text with units that stand without a number in words: `in km/h`, `per kg`."""
    text = _PER_BARE.sub(lambda m: _DENOMINATORS[m[1]], text)
    return _BARE_UNIT.sub(lambda m: _BARE[m[1]], text)


def _without_dot(match: re.Match[str]) -> str:
    """`8 oz.` without its dot, unless that also ends the sentence."""
    ends = _NEW_SENTENCE.match(match.string, match.end()) is not None
    words = _measure(match[1].strip(" -"), ("inch", "inches")) if match[2] == "in" else match[1] + match[2]
    return words + ("." if ends else "")


def _fraction_unit(match: re.Match[str]) -> str:
    """`one and a half tsp` in the plural, `three quarters tsp` in the singular, as recipes are read."""
    return f"{match[1] or ''}{match[2]} {_names(match[3], None)[1 if match[1] else 0]}"


def _names(unit: str, power: str | None) -> tuple[str, str]:
    if unit in _INVARIABLE:
        return _INVARIABLE[unit]
    name = _POWERS.get(power or "", "") + _UNITS[unit]
    return name, name + "s"


def _measure(value: str, names: tuple[str, str]) -> str:
    return f"{number(value)} {names[0] if value.lstrip('-') in ('1', '1.0') else names[1]}"


def _added_time(match: re.Match[str]) -> str:
    return f"{ordinal(int(match[1]))} minute plus {number(match[2])}"


def _feet(match: re.Match[str]) -> str:
    """Feet, or the minute of a match where a goal is told."""
    if _GOAL_MINUTE.search(match.string[max(match.start() - 100, 0) : match.start()]):
        return f"{ordinal(int(match[1].replace(',', '')))} minute"
    return _measure(match[1], ("foot", "feet"))


def _named_by_number(match: re.Match[str]) -> str:
    """`747s` and `1099s` are several of that name; seconds only where a duration is told."""
    if _DURATION_BEFORE.search(match.string[max(match.start() - 16, 0) : match.start()]) or match[1].endswith("00"):
        return match.group()
    return plural(in_pairs(match[1]))


def _inches(openings: Sequence[int], match: re.Match[str]) -> str:
    """Inches, unless the mark closes a quotation that was opened before; `openings` are where that may be."""
    start = match.start()
    if (bisect_left(openings, start) - bisect_left(openings, start - _QUOTATION)) % 2:
        return match.group()
    noun = _NOUN_AFTER_INCHES.match(match.string, match.end())
    return f"{number(match[1])} inch" if noun or is_attributive(match) else _measure(match[1], ("inch", "inches"))


def _say_measure(match: re.Match[str]) -> str:
    value, gap, unit, power, below, below_power, caret = match.groups()
    if (gap == " " and unit in _UNSPACED and not power) or (gap != " " and unit in _SPACED):
        return match.group()
    one, many = _names(unit, power or caret)
    if below:
        per = " per " + (_POWERS.get(below_power or "", "") if below[0] != "s" else "") + _DENOMINATORS[below]
        per += {"²": " squared", "2": " squared"}.get(below_power or "", "") if below[0] == "s" else ""
        return _measure(value, (one + per, many + per))
    if gap == "-" or is_attributive(match, _RACES if unit in ("m", "km") else frozenset()):
        return f"{number(value)} {one}"
    return _measure(value, (one, many))


def _say_range(match: re.Match[str]) -> str:
    first, last, gap, unit, power = match.groups()
    if gap == " " and unit in _UNSPACED:
        return match.group()
    one, many = _names(unit, power)
    return f"{number(first)} to {number(last)} {one if is_attributive(match) else many}"
