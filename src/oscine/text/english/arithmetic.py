"""Grouped, foreign and scientific notations of numbers as plain ones, and what arithmetic signs say between them."""

from __future__ import annotations

import re

from oscine.text.english.numerals import NUMBER, number

_SPACED_GROUPS = re.compile(
    r"(?<![\w.,+$-])(?<!\d\s)[1-9]\d{0,2}(?:(?:\s\d{3}){2,20}|(?:\s000){1,20}|(?:'\d{3}){1,20})(?![\w]|\s\d|[.,']\d)"
)
_GROUP_MARK = re.compile(r"[\s']")
_INDIAN_GROUPS = re.compile(r"(?<![\w.,])[1-9]\d?(?:,\d\d){1,6},\d{3}(?![\w]|,\d)")
_POINT_GROUPS = re.compile(r"(?<![\w.,])\d{1,3}(?:(?:\.\d{3}){2,}(?:,\d+)?|(?:\.\d{3})+,\d{1,2})(?![\w]|[.,]\d)")
_EURO_GROUPS = re.compile(r"(?<![\w.,])(\d{1,3})\.(\d{3})(?=\s?€)|(?<=€)(\d{1,3})\.(\d{3})(?![\d.,])")
_UNIT_NEXT = r"[€£¥%°]|(?:kg|g|mg|km|m|cm|mm|l|ml|kr|zł|EUR|CHF|PLN|SEK|NOK|DKK|million|billion)\b"
_DECIMAL_COMMA = re.compile(
    rf"(?<![\w.,])(\d{{1,3}}),(\d{{1,2}})(?=\s?(?:{_UNIT_NEXT}))|(?<=[€£])\s?(\d{{1,3}}),(\d\d)(?![\d.,])"
)
_SCIENTIFIC = re.compile(r"(?<![\w.,])(\d+(?:\.\d+)?)[eE]([+-]?)(\d{1,3})(?![\w.]\w|\w)")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_SUPERSCRIPT = re.compile(r"(?<=([\w).,!?\"]))([⁻⁺]?[⁰¹²³⁴-⁹]+)")
_POWER = re.compile(r"(?<=[\w)])\s?\^\s?\(?([23])\)?(?![\d.])")
_OUT_OF = re.compile(r"(?<![\w.,/])(\d{1,3}\.\d+)/(\d{1,3})(?![\w/]|\.\d)|(?<![\w.,/])(5|10|100)/\3(?![\w/]|\.\d)")
_RATED = re.compile(
    r"\b((?:[Rr]ated?|[Ss]cored?|[Gg]iv(?:es?|ing)|[Gg]ave|[Ss]core of|[Rr]ating of|[Gg]ot)"
    r"(?:\s(?:it|this|that|them|him|her|you))?(?:\san?)?(?:\ssolid)?\s)(\d{1,3})/(5|10|100)(?![\w/]|\.\d)"
)
_DIVIDED = re.compile(rf"(?<=\d)\s?/\s?(?={NUMBER}\s?=)")
_SHARES = re.compile(r"(?<![\w.,/])([1-9]\d)/([1-9]\d)(?![\w/]|[.,]\d)")
_STARS = re.compile(r"(?<![\w.,*])([1-7])\*(?=\s+[a-z]|[.,;!?]|$)")


def plain_notation(text: str) -> str:
    """Returns the text with `1 000 000`, `1'000`, `1.234,56` and `3,5 kg` in the notation of English.

    Points group thousands where there are two of them or a decimal comma follows; a comma is a decimal one before a
    unit or beside a currency.
    """
    text = _SPACED_GROUPS.sub(lambda m: _GROUP_MARK.sub("", m[0]), text)
    text = _INDIAN_GROUPS.sub(lambda m: m[0].replace(",", ""), text)
    text = _POINT_GROUPS.sub(lambda m: m[0].replace(".", "").replace(",", "."), text)
    text = _EURO_GROUPS.sub(lambda m: (m[1] or m[3]) + (m[2] or m[4]), text)
    return _DECIMAL_COMMA.sub(lambda m: f"{m[1] or m[3]}.{m[2] or m[4]}", text)


def say_superscripts(text: str) -> str:
    """Returns the text with raised exponents after a caret and the marks of footnotes gone; `x²` and `m³` stay."""
    return _SUPERSCRIPT.sub(_superscript, text)


def say_arithmetic(text: str) -> str:
    """Returns the text with powers, scientific notation, divisions and ratings in words."""
    text = _SCIENTIFIC.sub(_scientific, text)
    text = _POWER.sub(lambda m: " squared" if m[1] == "2" else " cubed", text)
    text = _SHARES.sub(lambda m: f"{m[1]} {m[2]}" if int(m[1]) + int(m[2]) == 100 else m[0], text)
    text = _OUT_OF.sub(lambda m: f"{m[1] or m[3]} out of {m[2] or m[3]}", text)
    text = _RATED.sub(r"\1\2 out of \3", text)
    text = _DIVIDED.sub(" divided by ", text)
    return _STARS.sub(lambda m: f"{number(m[1])} star", text)


def _superscript(match: re.Match[str]) -> str:
    before, raised = match.groups()
    start = match.start()
    after_word = before.isalpha() and start > 1 and match.string[start - 2].isalpha()
    if not (before.isalnum() or before == ")"):
        return ""
    if raised in ("²", "³"):
        return raised
    if after_word and raised[0] not in "⁻⁺":
        return ""
    return "^" + raised.translate(_SUPERSCRIPTS)


def _scientific(match: re.Match[str]) -> str:
    value, sign, power = match.groups()
    words = {"-": "minus "}.get(sign, "") + number(str(int(power)))
    return ("" if value == "1" else f"{number(value)} times ") + f"ten to the {words}"
