"""English words for numbers, used to write training texts and to compare a transcript with what was meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SMALL = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["zero", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
SCALES = ((1_000_000_000, "billion"), (1_000_000, "million"), (1_000, "thousand"))
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]

_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}

LARGEST = 999_999_999_999


def cardinal(value: int, *, with_and: bool = False) -> str:
    """`value` in words, 0 to `LARGEST` (ValueError otherwise); `with_and` gives "one hundred and five"."""
    if not 0 <= value <= LARGEST:
        raise ValueError(f"{value} is not in 0 to {LARGEST}")
    if value < 20:
        return SMALL[value]
    if value < 100:
        return TENS[value // 10] + (f" {SMALL[value % 10]}" if value % 10 else "")
    if value < 1000:
        head, rest = f"{SMALL[value // 100]} hundred", value % 100
    else:
        size, name = next(scale for scale in SCALES if value >= scale[0])
        head, rest = f"{cardinal(value // size, with_and=with_and)} {name}", value % size
    if not rest:
        return head
    joint = " and " if with_and and rest < 100 else " "
    return head + joint + cardinal(rest, with_and=with_and)


def ordinal(value: int, *, with_and: bool = False) -> str:
    """`value` as "twenty first"; same range as `cardinal`."""
    *front, last = cardinal(value, with_and=with_and).split()
    if last in _ORDINALS:
        last = _ORDINALS[last]
    elif last.endswith("y"):
        last = f"{last[:-1]}ieth"
    else:
        last = f"{last}th"
    return " ".join([*front, last])


def year(value: int) -> str:
    """`value` as a year is read: 1984 "nineteen eighty four", 1905 "nineteen oh five", 2007 "two thousand seven"."""
    century, rest = divmod(value, 100)
    if not 1000 <= value <= 9999 or (century % 10 == 0 and rest < 10):
        return cardinal(value)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def clock(hour: int, minute: int, style: Literal["digital", "spoken"] = "digital") -> str:
    """A time of day in words without its half, `hour` 1 to 12: "six oh five", or with `spoken` "five past six"."""
    following = cardinal(hour % 12 + 1)
    if style == "spoken" and minute and minute % 5 == 0:
        to_next = minute > 30
        part = {15: "quarter", 30: "half"}.get(60 - minute if to_next else minute)
        part = part or cardinal(60 - minute if to_next else minute)
        return f"{part} to {following}" if to_next else f"{part} past {cardinal(hour)}"
    if minute == 0:
        return f"{cardinal(hour)} o'clock"
    return f"{cardinal(hour)} {'oh ' if minute < 10 else ''}{cardinal(minute)}"


def digits(text: str, *, zero: str = "zero") -> str:
    """The digits of `text` one by one: "555" → "five five five"; everything else in it is skipped."""
    return " ".join(zero if digit == "0" else SMALL[int(digit)] for digit in text if digit in "0123456789")


def decimal(text: str) -> str:
    """A number such as "3.14" as "three point one four"."""
    whole, _, fraction = text.partition(".")
    return cardinal(int(whole or "0")) + (f" point {digits(fraction)}" if fraction else "")


@dataclass(frozen=True, kw_only=True)
class Currency:
    """The names of a currency's unit and of its hundredth, for one and for more."""

    one: str
    many: str
    one_part: str
    many_parts: str

    def unit(self, value: str) -> str:
        """The unit's name behind a number written as `value`."""
        return self.one if value == "1" else self.many


CURRENCIES = {
    "$": Currency(one="dollar", many="dollars", one_part="cent", many_parts="cents"),
    "£": Currency(one="pound", many="pounds", one_part="penny", many_parts="pence"),
    "€": Currency(one="euro", many="euros", one_part="cent", many_parts="cents"),
}


def money(whole: int, part: int = 0, *, with_and: bool = True, currency: Currency = CURRENCIES["$"]) -> str:
    """An amount as "twenty five dollars and fifty cents"; without a `whole` only the hundredths."""
    parts = []
    if whole or not part:
        parts.append(f"{cardinal(whole)} {currency.unit(str(whole))}")
    if part:
        parts.append(f"{cardinal(part)} {currency.one_part if part == 1 else currency.many_parts}")
    return (" and " if with_and else " ").join(parts)


def fraction(top: int, bottom: int) -> str:
    """A fraction such as "two thirds"; `bottom` at least 2."""
    name = {2: "half", 4: "quarter"}.get(bottom) or ordinal(bottom)
    plural = "halves" if name == "half" else f"{name}s"
    return f"{cardinal(top)} {name if top == 1 else plural}"
