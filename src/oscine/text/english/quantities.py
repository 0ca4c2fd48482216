"""Money, measures, percentages and temperatures in words: `$5.30`, `€3m`, `50g`, `10 km/h`, `20°C`, `5'10"`."""

from __future__ import annotations

import re

from oscine.text.english.numerals import cardinal, number

NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.\d+|\d+)"
_SCALES = {"k": "thousand", "m": "million", "mn": "million", "bn": "billion", "b": "billion", "tn": "trillion"}
_SCALE = r"(?:\s?(thousand|million|billion|trillion|bn|mn|tn|[kKmMB])(?![\w/]))?"
_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "¥": ("yen", "yen", "", ""),
    "₹": ("rupee", "rupees", "paisa", "paise"),
}
_CODES = {
    "USD": ("U S dollar", "U S dollars"),
    "EUR": ("euro", "euros"),
    "GBP": ("pound", "pounds"),
    "JPY": ("yen", "yen"),
    "CHF": ("Swiss franc", "Swiss francs"),
    "CAD": ("Canadian dollar", "Canadian dollars"),
    "AUD": ("Australian dollar", "Australian dollars"),
    "CNY": ("yuan", "yuan"),
    "INR": ("rupee", "rupees"),
}
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
    "tbsp": "tablespoon", "tsp": "teaspoon", "pt": "point", "dB": "decibel",
}  # fmt: skip
_INVARIABLE = {
    "ft": ("foot", "feet"), "in": ("inch", "inches"), "Hz": ("hertz", "hertz"), "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"), "GHz": ("gigahertz", "gigahertz"), "mph": ("mile per hour", "miles per hour"),
    "km/h": ("kilometer per hour", "kilometers per hour"), "kph": ("kilometer per hour", "kilometers per hour"),
    "kmh": ("kilometer per hour", "kilometers per hour"), "m/s": ("meter per second", "meters per second"),
    "kbps": ("kilobit per second", "kilobits per second"), "Mbps": ("megabit per second", "megabits per second"),
    "Gbps": ("gigabit per second", "gigabits per second"), "MB/s": ("megabyte per second", "megabytes per second"),
    "GB/s": ("gigabyte per second", "gigabytes per second"), "kWh": ("kilowatt hour", "kilowatt hours"),
    "mAh": ("milliamp hour", "milliamp hours"), "fps": ("frame per second", "frames per second"),
    "rpm": ("revolution per minute", "revolutions per minute"), "dpi": ("dot per inch", "dots per inch"),
    "ppm": ("part per million", "parts per million"), "psi": ("P S I", "P S I"), "bpm": ("beat per minute",
    "beats per minute"), "sq ft": ("square foot", "square feet"), "sq m": ("square meter", "square meters"),
    "mg/l": ("milligram per liter", "milligrams per liter"), "°C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"), "°": ("degree", "degrees"), "℃": ("degree Celsius",
    "degrees Celsius"), "℉": ("degree Fahrenheit", "degrees Fahrenheit"), "%": ("percent", "percent"),
    "‰": ("per mille", "per mille"), "¢": ("cent", "cents"), "x": ("times", "times"), "×": ("times", "times"),
}  # fmt: skip
_POWERS = {"²": "square ", "2": "square ", "³": "cubic ", "3": "cubic "}
_SPACED_ONLY_LONG = frozenset({"in", "x", "s", "h", "l", "N", "J", "m", "pt", "mo", "ac", "cal", "mi", "MP", "×"})

_all_units = sorted({*_UNITS, *_INVARIABLE} - {"x", "×"}, key=lambda unit: (-len(unit), unit))
_UNIT = "|".join(re.escape(unit) for unit in _all_units)
_RANGE = rf"(?<![\w.,$€£-])(-?{NUMBER})(?:\s?[-–—]\s?|\s+to\s+)({NUMBER})"
_MEASURE = re.compile(rf"(?<![\w.,])(-?{NUMBER})(\s?|-)({_UNIT})([²³]|(?<=m)[23])?(?![\w°])")
_MEASURE_RANGE = re.compile(_RANGE + rf"(\s?)({_UNIT})([²³])?(?![\w°])")
_TIMES = re.compile(rf"(?<![\w.,])({NUMBER})[x×](?![\w])")
_DIMENSIONS = re.compile(rf"(?<![\w.,])({NUMBER})\s?[x×]\s?(?={NUMBER})")
_HEIGHT = re.compile(r"(?<![\w.,])(\d{1,2})'\s?(\d{1,2})(?:\"|'')")
_INCHES = re.compile(rf"(?<![\w.,])({NUMBER})\"(?=$|[\s.,;)x-])")
_FEET = re.compile(r"(?<![\w.,'])(\d{1,5})'(?=$|[\s.,;)x-])")
_SYMBOLS = "[$€£¥₹]"
_MONEY = re.compile(rf"(-)?(?:US|U\.S\.|CA|AU)?({_SYMBOLS})\s?({NUMBER}){_SCALE}")
_MONEY_RANGE = re.compile(rf"({_SYMBOLS})\s?({NUMBER})\s?[-–—]\s?{_SYMBOLS}?\s?({NUMBER}){_SCALE}")
_MONEY_AFTER = re.compile(rf"(?<![\w.,])({NUMBER}){_SCALE}\s?([€£¥₹]|\$(?!\d))")
_MONEY_CODE = re.compile(rf"(?<![\w.,])({NUMBER}){_SCALE}\s?({'|'.join(_CODES)})\b")
_MONEY_CODE_FIRST = re.compile(rf"\b({'|'.join(_CODES)})\s?({NUMBER}){_SCALE}")
_COUNT_SCALE = re.compile(rf"(?<![\w.,])({NUMBER})(k|M|bn|mn|tn)\b")
_PER = re.compile(r"(?<=[a-z])\s?/\s?(?=(?:hour|hr|day|night|week|month|mo|year|yr|person|kg|unit|user|piece|each)\b)")


def say_money(text: str) -> str:
    """Returns the text with amounts of money in words."""
    text = _MONEY_RANGE.sub(lambda m: f"{number(m[2])} to {_amount(m[3], m[4], _CURRENCIES[m[1]])}", text)
    text = _MONEY.sub(lambda m: ("minus " if m[1] else "") + _amount(m[3], m[4], _CURRENCIES[m[2]]), text)
    text = _MONEY_AFTER.sub(lambda m: _amount(m[1], m[2], _CURRENCIES[m[3]]), text)
    text = _MONEY_CODE.sub(lambda m: _amount(m[1], m[2], (*_CODES[m[3]], "", "")), text)
    text = _MONEY_CODE_FIRST.sub(lambda m: _amount(m[2], m[3], (*_CODES[m[1]], "", "")), text)
    return _PER.sub(" per ", text)


def say_measures(text: str) -> str:
    """Returns the text with measures, percentages and factors in words."""
    text = _HEIGHT.sub(lambda m: f"{number(m[1])} foot {number(m[2])}", text)
    text = _INCHES.sub(lambda m: _measure(m[1], ("inch", "inches")), text)
    text = _FEET.sub(lambda m: _measure(m[1], ("foot", "feet")), text)
    text = _MEASURE_RANGE.sub(_say_range, text)
    text = _MEASURE.sub(_say_measure, text)
    text = _DIMENSIONS.sub(lambda m: number(m[1]) + " by ", text)
    text = _TIMES.sub(lambda m: number(m[1]) + " times", text)
    return _COUNT_SCALE.sub(lambda m: f"{number(m[1])} {_SCALES[m[2].lower()]}", text)


def _amount(value: str, scale: str | None, names: tuple[str, str, str, str]) -> str:
    one, many, small, smalls = names
    if scale:
        return f"{number(value)} {_SCALES.get(scale.lower(), scale)} {many}"
    whole, _, part = value.replace(",", "").partition(".")
    if len(part) != 2 or not small or (whole and not whole.isdecimal()):
        return f"{number(value)} {one if value == '1' else many}"
    units, cents = int(whole or 0), int(part)
    amounts = [f"{cardinal(units)} {one if units == 1 else many}"] if units or not cents else []
    if cents:
        amounts.append(f"{cardinal(cents)} {small if cents == 1 else smalls}")
    return " and ".join(amounts)


def _names(unit: str, power: str | None) -> tuple[str, str]:
    if unit in _INVARIABLE:
        return _INVARIABLE[unit]
    name = _POWERS.get(power or "", "") + _UNITS[unit]
    return name, name + "s"


def _measure(value: str, names: tuple[str, str]) -> str:
    return f"{number(value)} {names[0] if value.lstrip('-') in ('1', '1.0') else names[1]}"


def _say_measure(match: re.Match[str]) -> str:
    value, gap, unit, power = match.groups()
    if gap == " " and unit in _SPACED_ONLY_LONG and not power and unit != "m":
        return match.group()
    names = _names(unit, power)
    if gap == "-":
        return f"{number(value)} {names[0]}"
    return _measure(value, names)


def _say_range(match: re.Match[str]) -> str:
    first, last, gap, unit, power = match.groups()
    if gap == " " and unit in _SPACED_ONLY_LONG:
        return match.group()
    return f"{number(first)} to {number(last)} {_names(unit, power)[1]}"
