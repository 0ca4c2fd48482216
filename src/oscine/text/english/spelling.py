"""Words that are not plain words: capitals, initialisms, camelCase, letters mixed with digits, symbols."""

from __future__ import annotations

import re

from oscine.text.english.lexicon import lookup
from oscine.text.english.numerals import cardinal, digits, year
from oscine.text.wordlist import word_set

_SPELLED = word_set(
    """
    US UK EU UN AI IT PM AM ID TV PC PR HR LA DC NY OK CEO FBI CIA USA BBC CNN NBA NFL IBM USB GPU CPU API URL HTML
    HTTP PDF DVD CD DNA RNA HIV GPS ATM VIP MRI IQ EQ DJ MC PS TTS LLM SQL PHP CSS XML UFO NYC LED LCD DIY FAQ ETA
    CV BA MA MBA PHD MD RV SUV GDP NHS ABC NBC CBS MTV HBO UPS KFC BMW IRS EPA FDA SEC FAQ IP OS UI UX QA AR VR HD
    """
)
_ALONE_SPELLED = frozenset(
    {"US", "IT", "AI", "AM", "PM", "ID", "OK", "LA", "IP", "OS", "AR", "MA", "BA", "PS", "SEC", "LED", "UPS"}
)
_AS_WRITTEN = {"OK": "okay", "O.K.": "okay", "Ok": "okay", "ok": "okay"}
_SYMBOLS = {
    "&": " and ", "@": " at ", "%": " percent ", "+": " plus ", "=": " equals ", "<": " less than ",
    ">": " greater than ", "°": " degrees ", "§": " section ", "©": " copyright ", "×": " times ", "÷": " divided by ",
    "±": " plus or minus ",
    "≈": " approximately ", "≠": " not equal to ", "≤": " less than or equal to ", "≥": " greater than or equal to ",
    "²": " squared ", "³": " cubed ", "√": " square root of ", "∞": " infinity ", "π": " pi ", "$": " dollars ",
    "€": " euros ", "£": " pounds ", "¥": " yen ", "₹": " rupees ", "¢": " cents ", "№": " number ", "^": " to the ",
    "#": " hash ", "\\": " backslash ", "|": ", ", "_": " ", "*": " ", "~": " ", "®": " ", "™": " ", "¶": " ",
    "•": ", ",
}  # fmt: skip
_SYMBOL = re.compile("[" + re.escape("".join(_SYMBOLS)) + "]")
_OR = re.compile(
    r"\b(he|she|his|him|her|hers|yes|either|one|is|was|are|and|pass|on|true|win|mother|father)/(?=[a-z])", re.IGNORECASE
)
_AND_OR = re.compile(r"\band/or\b", re.IGNORECASE)
_SLASH = re.compile(r"(?<=\w)\s?/\s?(?=\w)")
_NUMBER_SIGN = re.compile(r"(?<!\w)#(?=\d)")
_HASHTAG = re.compile(r"(?<!\w)#(?=[A-Za-z])")
_HANDLE = re.compile(r"(?<![\w.])@(?=[A-Za-z])")
_MINUS = re.compile(r"(?<=\d)\s+[-−]\s+(?=\d)")
_TIMES = re.compile(r"(?<=\d)\s?[*×]\s?(?=\d)")
_PROGRAMMING = re.compile(r"\b(C|F|J)#|\bC\+\+")
_MIXED = re.compile(r"(?<![\w'])(?=[A-Za-z-]*\d)(?=\d*-?[A-Za-z])[A-Za-z\d]+(?:-[A-Za-z\d]+)*(?![\w])")
_CAMEL = re.compile(r"\b[A-Za-z]*[a-z][A-Z][A-Za-z]*\b")
_CAMEL_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_CAPITALS = re.compile(r"(?<![A-Za-z'])(?:[A-Z]+(?:'[A-Z]+)+|[A-Z]{2,}(?:'?s)?)(?![A-Za-z])")
_LETTER_PAIR = re.compile(r"\b([A-Z]{1,3})&([A-Z]{1,3})\b")
_NAME_PREFIX = re.compile(r"^(?:Mc|Mac|De|Di|Le|La|Van|Fitz|O)[A-Z][a-z]+$")


def say_symbols(text: str) -> str:
    """Returns the text with symbols in words where they are read, and gone where they are not."""
    text = _LETTER_PAIR.sub(lambda m: f"{spelled(m[1])} and {spelled(m[2])}", text)
    text = _PROGRAMMING.sub(lambda m: "C plus plus" if m[0] == "C++" else f"{m[1]} sharp", text)
    text = _AND_OR.sub("and or", text)
    text = _OR.sub(r"\1 or ", text)
    text = _SLASH.sub(" slash ", text)
    text = _NUMBER_SIGN.sub("number ", text)
    text = _HASHTAG.sub("hashtag ", text)
    text = _HANDLE.sub("at ", text)
    text = _MINUS.sub(" minus ", text)
    text = _TIMES.sub(" times ", text)
    return _SYMBOL.sub(lambda m: _SYMBOLS[m[0]], text)


def say_mixed_words(text: str) -> str:
    """Returns the text with `B2B`, `MP3`, `COVID-19` and camelCase taken apart."""
    text = _MIXED.sub(_mixed, text)
    return _CAMEL.sub(_camel, text)


def say_capitals(text: str) -> str:
    """Returns the text with words in capitals as words or as single letters.

    `NASA` is a word because the lexicon has it in capitals, `FBI` is spelled because it is no word, and a text that
    is all in capitals is read as if it were not.
    """
    found = [word for word in re.findall(r"[A-Za-z]{2,}", text) if not _is_acronym(word)]
    shouting = len(found) > 1 and sum(word.isupper() for word in found) > 0.6 * len(found)
    return _CAPITALS.sub(lambda m: _capitals(m[0], shouting), text)


def _is_acronym(word: str) -> bool:
    return word.isupper() and (word in _SPELLED or lookup(word) is not None)


def spelled(letters: str) -> str:
    """Returns the letters as single capitals, which the phonemizer reads by name."""
    return " ".join(letters.upper())


def _capitals(word: str, shouting: bool) -> str:
    if word in _AS_WRITTEN:
        return _AS_WRITTEN[word]
    stem, ending = (word[:-1].rstrip("'"), "'s") if word.endswith("s") else (word, "")
    if "'" in word and word.endswith("S"):
        return _capitals(word[:-2] + "'s", shouting) if len(word) > 3 else word.lower()
    if "'" in stem:
        return word if word[0] == "O" and word[1] == "'" else _pronoun(word.lower())
    if stem in _SPELLED and not (shouting and stem in _ALONE_SPELLED):
        return spelled(stem) + ending
    lower = lookup(stem.lower())
    if shouting and lower is not None and (lower.curated or len(stem) > 4):
        return stem.lower() + ending
    if lookup(stem) is not None:
        return stem + ending
    if lower is not None and (lower.curated or len(stem) > 5):
        return stem.lower() + ending
    if len(stem) <= 4 or not re.search("[AEIOUY]", stem):
        return spelled(stem) + ending
    return stem.lower() + ending


def _pronoun(word: str) -> str:
    """`i'm` with its capital, so that it is read as a word and not as a letter."""
    return "I" + word[1:] if word.startswith("i'") else word


def _mixed(match: re.Match[str]) -> str:
    word = match.group()
    if plain := re.fullmatch(r"(\d+)-([A-Za-z][A-Za-z-]*)", word):
        return f"{_figures(plain[1])} {plain[2]}"
    if plain := re.fullmatch(r"([A-Za-z][A-Za-z-]*)-(\d+)", word):
        return f"{_letters(plain[1])} {_figures(plain[2])}"
    return " ".join(_figures(part) if part.isdigit() else _letters(part) for part in re.findall(r"\d+|[A-Za-z]+", word))


def _figures(text: str) -> str:
    if text[0] == "0" or len(text) > 4:
        return digits(text)
    if len(text) == 3 and text[1:] != "00":
        return f"{cardinal(int(text[0]))} {_pair(text[1:])}"
    return year(int(text)) if len(text) == 4 else cardinal(int(text))


def _pair(text: str) -> str:
    return f"oh {cardinal(int(text[1]))}" if text[0] == "0" else cardinal(int(text))


def _letters(text: str) -> str:
    if len(text) == 1:
        return text.upper()
    entry = lookup(text.lower())
    if text.islower() and entry is None and len(text) <= 3:
        return spelled(text)
    return text


def _camel(match: re.Match[str]) -> str:
    word = match.group()
    if lookup(word.lower()) is not None or _NAME_PREFIX.match(word):
        return word
    if re.fullmatch(r"[A-Z]{2,}s", word):
        return word
    parts = _CAMEL_PART.findall(word)
    return " ".join(part.upper() if len(part) == 1 and part not in "aI" else part for part in parts)
