"""English words for numbers: cardinals, ordinals, decimals, years, fractions, digits one by one."""

from __future__ import annotations

from oscine.text.wordlist import word_list

_SMALL = word_list(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_TENS = word_list("- - twenty thirty forty fifty sixty seventy eighty ninety")
_SCALES = ("", "thousand", "million", "billion", "trillion", "quadrillion", "quintillion", "sextillion")
_LARGEST = 1000 ** len(_SCALES)
_ORDINAL_WORDS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.\d+|\d+)"
"""What `number` reads, as a pattern."""
_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def cardinal(number: int) -> str:
    """Returns "one hundred twenty three" for 123; numbers of 25 digits and more are read digit by digit."""
    if number < 0:
        return "minus " + cardinal(-number)
    if number < 20:
        return _SMALL[number]
    if number >= _LARGEST:
        return digits(str(number))
    if number < 100:
        return _TENS[number // 10] + ("" if number % 10 == 0 else " " + _SMALL[number % 10])
    if number < 1000:
        return _SMALL[number // 100] + " hundred" + ("" if number % 100 == 0 else " " + cardinal(number % 100))
    groups = []
    for scale in _SCALES:
        number, group = divmod(number, 1000)
        if group:
            groups.append(f"{cardinal(group)} {scale}".strip())
    return " ".join(reversed(groups))


def ordinal(number: int) -> str:
    """Returns "twenty first" for 21."""
    *head, last = cardinal(number).split(" ")
    if last in _ORDINAL_WORDS:
        last = _ORDINAL_WORDS[last]
    elif last.endswith("y"):
        last = last[:-1] + "ieth"
    else:
        last += "th"
    return " ".join([*head, last])


def digits(text: str) -> str:
    """Returns the digits of a text one by one; anything else is skipped."""
    return " ".join(_SMALL[int(char)] for char in text if char.isdecimal())


def number(text: str) -> str:
    """Returns a written number in words: `1,234`, `-3.50`, `.5`, `007`; what is not a number comes back as digits.

    A leading zero, eleven digits and more, or ten that are not round mean a code, which is read digit by digit.
    """
    ungrouped = "," not in text
    text = text.replace(",", "")
    sign, text = ("minus ", text[1:]) if text[:1] in "-−" and text else ("", text)
    whole, point, fraction = text.partition(".")
    if not whole.isdecimal():
        whole_words = "" if point else digits(text)
    elif (whole[0] == "0" and len(whole) > 1 and not point) or len(whole) > 10 or _is_code(whole, ungrouped):
        whole_words = digits(whole)
    else:
        whole_words = cardinal(int(whole))
    if point and fraction:
        whole_words = f"{whole_words} point {digits(fraction)}".strip()
    return sign + whole_words


def _is_code(whole: str, ungrouped: bool) -> bool:
    """Whether ten digits are a telephone number or the like, not an amount."""
    return ungrouped and len(whole) == 10 and not whole.endswith("000")


def year(number: int) -> str:
    """Returns the year as it is said: nineteen oh five, two thousand one, twenty twenty six."""
    century, rest = divmod(number, 100)
    if number < 1000 or number > 2999 or 2000 <= number < 2010 or (rest == 0 and century % 10 == 0):
        return cardinal(number)
    if rest == 0:
        return cardinal(century) + " hundred"
    return cardinal(century) + (" oh " if rest < 10 else " ") + cardinal(rest)


def in_pairs(text: str) -> str:
    """Returns two to four digits as numbers of routes, rooms and models are said: "seven forty seven", "one oh one".

    Other lengths, and those with a zero in front, are read digit by digit.
    """
    if text[0] == "0" or len(text) > 4:
        return digits(text)
    if len(text) < 3 or text.endswith("00") or (len(text) == 4 and text[2] == "0" and text[1] == "0"):
        return year(int(text)) if len(text) == 4 else cardinal(int(text))
    tail = text[-2:]
    return f"{cardinal(int(text[:-2]))} {'oh ' if tail[0] == '0' else ''}{cardinal(int(tail))}"


def fraction(above: int, below: int) -> str:
    """Returns "three quarters" for 3/4 and "22 over 7" in words where no simple fraction is meant."""
    if below in (2, 4) or ((3 <= below <= 20 or below in (32, 64)) and above < below) or below in (100, 1000):
        part = {2: "half", 4: "quarter"}.get(below) or ordinal(below)
        plural = {"half": "halves"}.get(part, part + "s")
        return f"{cardinal(above)} {part if above == 1 else plural}"
    return f"{cardinal(above)} over {cardinal(below)}"


def plural(words: str) -> str:
    """Returns the plural of a number in words: nineties, hundreds, sixes."""
    if words.endswith("y"):
        return words[:-1] + "ies"
    return words + ("es" if words.endswith("x") else "s")


def roman(text: str) -> int | None:
    """Returns the value of a well-formed Roman numeral in capitals, or None."""
    value = 0
    for char, following in zip(text, [*text[1:], ""], strict=False):
        if char not in _ROMAN:
            return None
        unit = _ROMAN[char]
        value += -unit if unit < _ROMAN.get(following, 0) else unit
    return value if value and _to_roman(value) == text else None


def _to_roman(value: int) -> str:
    steps = ("M", 1000), ("CM", 900), ("D", 500), ("CD", 400), ("C", 100), ("XC", 90), ("L", 50), ("XL", 40)
    text = ""
    for letters, unit in (*steps, ("X", 10), ("IX", 9), ("V", 5), ("IV", 4), ("I", 1)):
        text += letters * (value // unit)
        value %= unit
    return text
