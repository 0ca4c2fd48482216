"""Money in words: `$5.30`, `€3m`, `A$40`, `1.234,56 €`, `$5-10`, `a $5 bill`, `$20/month`."""

from __future__ import annotations

import re

from oscine.text.english.grammar import is_attributive
from oscine.text.english.numerals import NUMBER, cardinal, number
from oscine.text.wordlist import word_set

SCALES = {
    "k": "thousand",
    "m": "million",
    "mn": "million",
    "bn": "billion",
    "b": "billion",
    "tn": "trillion",
    "mm": "million",
}
_SCALE = r"(?:[\s-]?(thousand|million|billion|trillion|bn|mn|tn|MM|[kKmMB])(?![\w/]))?"
_Names = tuple[str, str, str, str]
_DOLLARS: _Names = ("dollar", "dollars", "cent", "cents")
_CURRENCIES: dict[str, _Names] = {
    "$": _DOLLARS,
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "¥": ("yen", "yen", "", ""),
    "₹": ("rupee", "rupees", "paisa", "paise"),
    "₩": ("won", "won", "", ""),
    "₽": ("ruble", "rubles", "kopeck", "kopecks"),
    "₺": ("lira", "lira", "", ""),
    "₿": ("bitcoin", "bitcoins", "", ""),
    "₪": ("shekel", "shekels", "", ""),
    "₴": ("hryvnia", "hryvnias", "", ""),
    "₱": ("peso", "pesos", "", ""),
    "₫": ("dong", "dong", "", ""),
    "₦": ("naira", "naira", "", ""),
    "฿": ("baht", "baht", "", ""),
}
_PREFIXED: dict[str, _Names] = {
    "US": _DOLLARS,
    "U.S.": _DOLLARS,
    "R": ("real", "reais", "centavo", "centavos"),
    **{
        prefix: (f"{people} dollar", f"{people} dollars", "cent", "cents")
        for prefix, people in {
            "A": "Australian", "AU": "Australian", "C": "Canadian", "CA": "Canadian", "NZ": "New Zealand",
            "HK": "Hong Kong", "S": "Singapore",
        }.items()
    },
}  # fmt: skip
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
    "NZD": ("New Zealand dollar", "New Zealand dollars"),
    "SEK": ("Swedish krona", "Swedish kronor"),
    "NOK": ("Norwegian krone", "Norwegian kroner"),
    "DKK": ("Danish krone", "Danish kroner"),
    "PLN": ("zloty", "zlotys"),
    "MXN": ("Mexican peso", "Mexican pesos"),
    "BRL": ("real", "reais"),
    "KRW": ("won", "won"),
    "BTC": ("bitcoin", "bitcoins"),
}
_CODE = "|".join(_CODES)
_PER_NAMES = {
    "hr": "hour", "hrs": "hour", "h": "hour", "mo": "month", "yr": "year", "wk": "week", "lb": "pound", "lbs": "pound",
    "oz": "ounce", "kg": "kilogram", "gal": "gallon", "l": "liter", "L": "liter", "GB": "gigabyte", "mi": "mile",
    "km": "kilometer", "kWh": "kilowatt hour", "ea": "each", "sq ft": "square foot", "sqft": "square foot",
    "m²": "square meter", "min": "minute", "bbl": "barrel",
}  # fmt: skip
_PER_WORDS = (
    "hour day night week weekend month quarter year person people kg unit user seat piece each item page head share"
    " barrel ounce pound ton tonne gallon liter litre mile minute session visit ticket student child guest"
)
_PER_ALL = "|".join(sorted([*(re.escape(key) for key in _PER_NAMES), *_PER_WORDS.split()], key=len, reverse=True))
_NOUNS = word_set(
    """
    bill bills note notes coin coins tip tips fee fees fine ticket tickets prize question deal deals gift reward bonus
    discount voucher coupon menu lunch dinner meal charge deposit deductible copay donation donations loan loans budget
    """
)
_SYMBOLS = f"[{''.join(_CURRENCIES)}]"
_PREFIX = r"(?:(?<![\w])(U\.S\.|" + "|".join(sorted(set(_PREFIXED) - {"U.S."}, key=len, reverse=True)) + r"))?"
_WHOLE = rf"({NUMBER})"
_MONEY = re.compile(rf"(-)?{_PREFIX}({_SYMBOLS})\s?{_WHOLE}{_SCALE}(?:\s({_CODE})\b)?")
_MONEY_RANGE = re.compile(
    rf"(?<!\w)({_SYMBOLS})\s?{_WHOLE}{_SCALE}\s?[-–—]\s?{_SYMBOLS}?\s?{_WHOLE}{_SCALE}(?![-–—]?[\d$])"
)
_MONEY_AFTER = re.compile(rf"(?<![\w.,]){_WHOLE}{_SCALE}\s?([{''.join(set(_CURRENCIES) - {'$'})}]|\$(?!\d))")
_MONEY_CODE = re.compile(rf"(?<![\w.,]){_WHOLE}{_SCALE}\s?({_CODE})\b")
_MONEY_CODE_FIRST = re.compile(rf"\b({_CODE})\s?{_WHOLE}{_SCALE}")
_KRONOR = re.compile(rf"(?<![\w.,]){_WHOLE}{_SCALE}\s?kr\b\.?(?!\w)")
_PER = re.compile(rf"(?<=[a-z])\s?/\s?({_PER_ALL})(?![\w])")


def say_money(text: str) -> str:
    """Returns the text with amounts of money in words."""
    text = _MONEY_RANGE.sub(_range, text)
    text = _MONEY.sub(_money, text)
    text = _MONEY_AFTER.sub(lambda m: _amount(m, m[1], m[2], _CURRENCIES[m[3]]), text)
    text = _MONEY_CODE.sub(lambda m: _amount(m, m[1], m[2], (*_CODES[m[3]], "", "")), text)
    text = _MONEY_CODE_FIRST.sub(lambda m: _amount(m, m[2], m[3], (*_CODES[m[1]], "", "")), text)
    text = _KRONOR.sub(lambda m: _amount(m, m[1], m[2], ("krona", "kronor", "", "")), text)
    return _PER.sub(lambda m: " each" if m[1] in ("each", "ea") else f" per {_PER_NAMES.get(m[1], m[1])}", text)


def _range(match: re.Match[str]) -> str:
    symbol, first, first_scale, last, last_scale = match.groups()
    scale = f" {_scale(first_scale)}" if first_scale and first_scale != last_scale else ""
    return f"{number(first)}{scale} to {_amount(match, last, last_scale, _CURRENCIES[symbol])}"


def _money(match: re.Match[str]) -> str:
    sign, prefix, symbol, value, scale, code = match.groups()
    names = _CURRENCIES[symbol] if prefix is None or symbol != "$" else _PREFIXED[prefix]
    if code:
        names = (*_CODES[code], *names[2:])
    return ("minus " if sign else "") + _amount(match, value, scale, names)


def _scale(scale: str) -> str:
    return SCALES.get(scale.lower(), scale)


def _amount(match: re.Match[str], value: str, scale: str | None, names: _Names) -> str:
    one, many, small, smalls = names
    if scale != "MM" and is_attributive(match, _NOUNS):
        many, smalls = one, small
    if scale:
        return f"{number(value)} {_scale(scale)} {many}"
    whole, _, part = value.replace(",", "").partition(".")
    if len(part) != 2 or not small or (whole and not whole.isdecimal()):
        return f"{number(value)} {one if value == '1' else many}"
    units, cents = int(whole or 0), int(part)
    amounts = [f"{cardinal(units)} {one if units == 1 else many}"] if units or not cents else []
    if cents:
        amounts.append(f"{cardinal(cents)} {small if cents == 1 else smalls}")
    return " and ".join(amounts)
