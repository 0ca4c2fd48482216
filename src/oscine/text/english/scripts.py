"""Latin letters with marks as plain ones, Greek letters by name, and a clear refusal of other scripts."""

from __future__ import annotations

import re
import unicodedata

from oscine.errors import UnsupportedFeature
from oscine.text.wordlist import word_list

_SPECIAL = str.maketrans(
    {
        "ß": "ss", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d",
        "Đ": "D",
        "þ": "th", "Þ": "Th", "ð": "th", "Ð": "Th", "ı": "i", "ħ": "h", "ŋ": "ng", "ə": "e", "ſ": "s",
    }
)  # fmt: skip
_GREEK = dict(
    zip(
        "αβγδεζηθικλμνξοπρστυφχψω",
        word_list(
            "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon "
            "phi chi psi omega"
        ),
        strict=True,
    )
)
_GREEK_LETTER = re.compile(r"(?<![\u0370-\u03ff])[\u0391-\u03c9](?![\u0370-\u03ff])")


def to_plain_latin(text: str) -> str:
    """Returns the text with é as e, ß as ss, a lone α as alpha; letters of other alphabets stay."""
    if text.isascii():
        return text
    text = _GREEK_LETTER.sub(lambda match: f" {_GREEK.get(match[0].lower(), '')} ", text).translate(_SPECIAL)
    return "".join(char for char in unicodedata.normalize("NFKD", text) if unicodedata.category(char) != "Mn")


def check_script(text: str) -> None:
    """Raises UnsupportedFeature, naming the script, if most letters of the text are not Latin."""
    if text.isascii():
        return
    counts: dict[str, int] = {}
    for char in _GREEK_LETTER.sub(" alpha ", text):  # a lone Greek letter is read by its name
        if char.isalpha():
            script = unicodedata.name(char, "unknown").split(" ")[0].split("-")[0]
            counts[script] = counts.get(script, 0) + 1
    foreign = {
        script: count for script, count in counts.items() if script not in ("LATIN", "FULLWIDTH", "MATHEMATICAL")
    }
    if sum(foreign.values()) * 2 > sum(counts.values()):
        name = max(foreign, key=lambda script: foreign[script])
        shown = {"CJK": "Chinese"}.get(name, name.capitalize())
        raise UnsupportedFeature(
            f"text is mostly in {shown} script; this voice reads English, in Latin letters. "
            "Use a model that speaks the language, or write the text in Latin letters",
            param="text",
        )
