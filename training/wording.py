"""Word errors between what was meant and what was heard, fair to numbers, times, money and spelled letters.

Recognisers write digits where the text has words, or the reverse, and the same digits can be read in several right
ways ("2024", "twenty twenty four"). So a text becomes a row of slots, each with every reading it allows, and the pair
of readings with the fewest errors counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from training import figures

Reading = tuple[str, ...]
Slot = tuple[Reading, ...]


@dataclass(frozen=True, kw_only=True)
class WordErrors:
    """Errors (substituted, left out, added) against `words` of reference; `transcript` is what was heard."""

    errors: int
    words: int
    transcript: str

    @property
    def rate(self) -> float:
        """The word error rate, at most 1: a recogniser that loops must not swamp a mean."""
        return min(self.errors / self.words, 1.0)


def mean_rate(results: Iterable[WordErrors]) -> float:
    """The mean of the utterances' clipped rates; NaN of none."""
    rates = [result.rate for result in results]
    return sum(rates) / len(rates) if rates else float("nan")


def word_errors(reference: str, heard: str) -> WordErrors:
    """Counts word errors under the readings that agree best; ValueError if `reference` has no word at all."""
    meant, got = slots(reference), slots(heard)
    choice = [[0] * len(meant), [0] * len(got)]
    best = _count(meant, got, choice)
    for row, side in enumerate((meant, got)):
        for index, slot in enumerate(side):
            for option in range(1, len(slot)):
                kept, choice[row][index] = choice[row][index], option
                errors = _count(meant, got, choice)
                if errors < best:
                    best = errors
                else:
                    choice[row][index] = kept
    words = len(_read(meant, choice[0]))
    if not words:
        raise ValueError(f"no words to compare in {reference!r}")
    return WordErrors(errors=best, words=words, transcript=heard)


def _read(side: Sequence[Slot], choice: Sequence[int]) -> list[str]:
    words = [word for slot, option in zip(side, choice, strict=True) for word in slot[option]]
    return _tidy(words)


def _count(meant: Sequence[Slot], got: Sequence[Slot], choice: Sequence[Sequence[int]]) -> int:
    reference, heard = _read(meant, choice[0]), _read(got, choice[1])
    return edit_distance(_join_pairs(reference, set(heard)), _join_pairs(heard, set(reference)))


def edit_distance(reference: Sequence[str], heard: Sequence[str]) -> int:
    """The fewest words to substitute, drop or add that turn one into the other (Levenshtein)."""
    row = list(range(len(heard) + 1))
    for index, word in enumerate(reference, start=1):
        diagonal, row[0] = row[0], index
        for column, other in enumerate(heard, start=1):
            cost = min(diagonal + (word != other), row[column] + 1, row[column - 1] + 1)
            diagonal, row[column] = row[column], cost
    return row[-1]


def _join_pairs(words: list[str], others: set[str]) -> list[str]:
    """Writes two words as one where the other side does ("bed room", "bedroom")."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] + word in others:
            joined[-1] += word
        else:
            joined.append(word)
    return joined


_NUMBER_WORDS = {*figures.SMALL, *figures.TENS, "hundred", "thousand", "million", "billion", "point"}
_UNITS_OF_MONEY = {name for currency in figures.CURRENCIES.values() for name in (currency.one, currency.many)}
_BEFORE_AND = {"hundred", "thousand", "million", "billion"} | _UNITS_OF_MONEY


def _tidy(words: list[str]) -> list[str]:
    """Drops the optional "and" of numbers and calls the digit zero always zero."""
    tidy: list[str] = []
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        previous = tidy[-1] if tidy else ""
        in_number = previous in _NUMBER_WORDS or following in _NUMBER_WORDS
        if word == "and" and previous in _BEFORE_AND and following in _NUMBER_WORDS:
            continue
        tidy.append("zero" if word in ("oh", "o") and in_number else word)
    return tidy


_WORDS = {
    "ok": "okay",
    "mr": "mister",
    "mrs": "missus",
    "dr": "doctor",
    "grey": "gray",
    "colour": "color",
    "favourite": "favorite",
    "theatre": "theater",
    "neighbour": "neighbor",
    "neighbours": "neighbors",
    "alright": "all right",
    "metre": "meter",
    "metres": "meters",
    "kilometre": "kilometer",
    "kilometres": "kilometers",
    "centimetre": "centimeter",
    "centimetres": "centimeters",
    "litre": "liter",
    "litres": "liters",
    "gonna": "going to",
}
_UNITS = {
    "km": "kilometers",
    "cm": "centimeters",
    "mm": "millimeters",
    "kg": "kilograms",
    "mg": "milligrams",
    "lb": "pounds",
    "lbs": "pounds",
    "oz": "ounces",
    "ft": "feet",
    "mph": "miles per hour",
    "°C": "degrees celsius",
    "°F": "degrees fahrenheit",
    "°": "degrees",
}
"""Signs of units behind digits, and the words for them."""
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_REPLACED = (
    (re.compile(r"[’‘`]"), "'"),
    (re.compile(r"\bO\.?K\.?(?!\w)"), "okay"),
    (re.compile(r"\b([AaPp])\.?\s?[Mm]\b\.?"), lambda match: f" {match[1].lower()}m "),
    (re.compile(r"\b(?:[A-Z]\.){2,}|\b[A-Z]{2,5}\b"), lambda match: f" {' '.join(match[0].replace('.', ''))} "),
    (re.compile(r"%"), " percent "),
    (re.compile(r"\bper cent\b"), "percent"),
    (re.compile(r"&"), " and "),
    (re.compile(r"(?<=\d)\s?(km|cm|mm|kg|mg|lbs?|oz|ft|mph|°[CF]?)(?!\w)"), lambda match: f" {_UNITS[match[1]]} "),
    (re.compile(r"(?<=\d)\s?p(?!\w)"), " pence "),
    (_THOUSANDS, ""),
)
_TOKEN = re.compile(
    r"(?P<sign>[$£€])\s?(?P<amount>\d+(?:\.\d+)?)(?:\s(?P<scale>hundred|thousand|million|billion)\b)?|(?P<hour>\d{1,2}):(?P<minute>\d\d)|(?P<top>\d+)/(?P<bottom>\d+)"
    r"|(?P<decimal>\d*\.\d+)|(?P<ordinal>\d+)(?:st|nd|rd|th)\b|(?P<decade>\d+)s\b|(?P<integer>\d+)"
    r"|(?P<word>[^\W\d_]+(?:'[^\W\d_]+)*)"
)


def slots(text: str) -> list[Slot]:
    """The words of `text` in order, each as the readings it allows; punctuation and case are gone."""
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    return [_slot(match) for match in _TOKEN.finditer(text.lower())]


def spoken(text: str) -> str:
    """`text` with its numbers written out in the commonest reading; all else is left as it is."""
    text = _THOUSANDS.sub("", text).replace("%", " percent")
    return _TOKEN.sub(lambda match: match[0] if match["word"] else _number_readings(match)[0], text)


def _slot(match: re.Match[str]) -> Slot:
    if match["word"]:
        word = match["word"].replace("'", "")
        return (tuple(_WORDS.get(word, word).split()),)
    readings = [tuple(reading.split()) for reading in _number_readings(match)]
    return tuple(dict.fromkeys(readings))


def _number_readings(match: re.Match[str]) -> list[str]:
    if match["sign"]:
        return _money_readings(figures.CURRENCIES[match["sign"]], match["amount"], match["scale"])
    if match["hour"]:
        return _time_readings(int(match["hour"]), match["minute"])
    if match["bottom"]:
        return _fraction_readings(match["top"], match["bottom"])
    if match["decimal"]:
        whole, _, part = match["decimal"].partition(".")
        clock = _time_readings(int(whole), part) if whole and len(part) == 2 and int(part) < 60 else []
        return [figures.decimal(match["decimal"]), *clock]
    if match["ordinal"]:
        return [figures.ordinal(_value(match["ordinal"]))]
    if match["decade"]:
        return [_plural(reading) for reading in _integer_readings(match["decade"])]
    return _integer_readings(match["integer"])


def _value(digits: str) -> int:
    return min(int(digits), figures.LARGEST)


def _integer_readings(digits: str) -> list[str]:
    value = _value(digits)
    readings = [figures.cardinal(value), figures.digits(digits)]
    if 1 <= value <= 31:
        readings.append(figures.ordinal(value))
    if len(digits) == 3:
        readings.append(f"{figures.cardinal(value // 100)} {_two(digits[1:])}")
    if len(digits) == 4:
        readings.insert(0 if 1100 <= value <= 2099 else 1, figures.year(value))
        readings.append(f"{_two(digits[:2])} {_two(digits[2:])}")
        hundreds = f"{figures.cardinal(value // 100)} hundred"
        readings.append(f"{hundreds} {figures.cardinal(value % 100)}" if value % 100 else hundreds)
    if len(digits) > 4:
        readings += [" ".join(_two(digits[at : at + 2]) for at in range(0, len(digits), 2))]
    return readings


def _two(digits: str) -> str:
    if digits == "00":
        return "hundred"
    return f"zero {figures.cardinal(int(digits))}" if digits[0] == "0" else figures.cardinal(int(digits))


def _time_readings(hour: int, minute: str) -> list[str]:
    if minute == "00":
        return [figures.cardinal(hour), f"{figures.cardinal(hour)} oclock", f"{figures.cardinal(hour)} hundred"]
    readings = [f"{figures.cardinal(hour)} {_two(minute)}"]
    if 1 <= hour <= 12 and int(minute) < 60:
        readings.append(figures.clock(hour, int(minute), "spoken").replace("'", ""))
    return readings


def _money_readings(currency: figures.Currency, amount: str, scale: str | None) -> list[str]:
    whole, _, part = amount.partition(".")
    if scale or len(part) not in (0, 2):
        number = f"{figures.decimal(amount)} {scale}" if scale else figures.decimal(amount)
        return [f"{number} {currency.many}", number]
    if not part or part == "00":
        amounts = [figures.cardinal(_value(whole)), *_integer_readings(whole)]
        return [f"{words} {currency.unit(whole)}" for words in amounts] + amounts
    value = figures.cardinal(_value(whole))
    return [
        figures.money(_value(whole), int(part), currency=currency),
        f"{value} {_two(part)}",
        f"{value} {currency.unit(whole)} {_two(part)}",
        f"{value} point {figures.digits(part)} {currency.many}",
        f"{value} point {figures.digits(part)}",
    ]


def _fraction_readings(top: str, bottom: str) -> list[str]:
    plain = f"{figures.cardinal(_value(top))} {figures.cardinal(_value(bottom))}"
    readings = [plain, plain.replace(" ", " over ", 1)]
    if int(bottom) >= 2:
        readings.insert(0, figures.fraction(_value(top), _value(bottom)))
        if bottom == "4":
            readings.append(f"{figures.cardinal(_value(top))} {'fourth' if top == '1' else 'fourths'}")
    return readings


def _plural(words: str) -> str:
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"
