"""Which writing system a character belongs to, as far as speech needs to know it; no tables of languages."""

from __future__ import annotations

import unicodedata
from typing import Literal

Script = Literal["latin", "han", "kana", "hangul", "digit", "space", "mark", "other", "symbol"]
"""Kinds of character that take different times to say: see `script_of`."""

_HAN = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF), (0x3005, 0x3007))
_KANA = ((0x3041, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F))
_HANGUL = ((0xAC00, 0xD7AF), (0x1100, 0x11FF), (0x3131, 0x318E))
_UNSPACED = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF))  # Thai, Lao, Burmese, Khmer
_COMBINING = ("Mn", "Mc", "Me")
_ZERO_WIDTH_JOINERS = "\u200c\u200d"


def _within(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= code <= high for low, high in ranges)


def script_of(char: str) -> Script:
    """Returns the kind of one character; `other` is a letter of any alphabet that is not Latin."""
    code = ord(char)
    if code < 0x80:
        if char.isalpha():
            return "latin"
        if char.isdigit():
            return "digit"
        return "space" if char.isspace() else "symbol"
    if _within(code, _HAN):
        return "han"
    if _within(code, _KANA):
        return "kana"
    if _within(code, _HANGUL):
        return "hangul"
    return _script_by_category(char, code)


def _script_by_category(char: str, code: int) -> Script:
    category = unicodedata.category(char)
    if category in _COMBINING or char in _ZERO_WIDTH_JOINERS:
        return "mark"
    if category.startswith("N"):
        return "digit"
    if char.isspace():
        return "space"
    if category.startswith("L"):
        latin = code < 0x250 or 0x1E00 <= code <= 0x1EFF or 0x2C60 <= code <= 0x2C7F or 0xA720 <= code <= 0xA7FF
        return "latin" if latin else "other"
    return "symbol"


def is_cjk(char: str) -> bool:
    """Whether the character is a Chinese ideograph, kana or Hangul."""
    return script_of(char) in ("han", "kana", "hangul")


def is_unspaced(char: str) -> bool:
    """Whether the character's script writes no space between words, so that text may break anywhere."""
    return script_of(char) in ("han", "kana") or _within(ord(char), _UNSPACED)


def is_mark(char: str) -> bool:
    """Whether the character belongs to the one before it, so that nothing may break between the two."""
    return script_of(char) == "mark"
