"""Words that are not plain words: capitals, initialisms, camelCase, letters mixed with digits, symbols."""

from __future__ import annotations

import re

from oscine.text.english.lexicon import lookup
from oscine.text.english.morphology import derive
from oscine.text.english.numerals import digits, in_pairs, number, year
from oscine.text.wordlist import word_set

_SPELLED = word_set(
    """
    US UK EU UN AI IT PM AM ID TV PC PR HR LA DC NY OK CEO FBI CIA USA BBC CNN NBA NFL IBM USB GPU CPU API URL HTML
    HTTP PDF DVD CD DNA RNA HIV GPS ATM VIP MRI IQ EQ DJ MC PS TTS LLM SQL PHP CSS XML UFO NYC LED LCD DIY FAQ ETA
    CV BA MA MBA PHD MD RV SUV GDP NHS ABC NBC CBS MTV HBO UPS KFC BMW IRS EPA FDA SEC FAQ IP OS UI UX QA AR VR HD
    EST PST CST MST EDT PDT CDT MDT GMT UTC BST CET CEST JST AEST CI CTO CFO COO
    ISO LAX
    """
)
_ALONE_SPELLED = frozenset(
    {"US", "IT", "AI", "AM", "PM", "ID", "OK", "LA", "IP", "OS", "AR", "MA", "BA", "PS", "SEC", "LED", "UPS"}
)
_SHOUTED_WORDS = frozenset({"US", "IT", "AM", "LA", "MA", "SEC", "LED", "UPS"})
"""Words where everything is in capitals, unless what stands beside them says otherwise."""
_SHOUTED_NAMES = re.compile(
    r"(?<=\bTHE )(?:US|IT|SEC|LED|UPS)\b(?! (?:THAT|OF)\b)|^US\b(?= (?!AND|TOO|VS|VERSUS|OR|ALL|BOTH)[A-Z])"
    r"|\bUS(?= (?:ARMY|NAVY|TROOPS|MILITARY|GOVERNMENT|PRESIDENT|SENATE|CONGRESS|ECONOMY|DOLLARS?|CITIZENS?|OPEN)\b)"
    r"|\bIT(?= (?:DEPARTMENT|SUPPORT|TEAM|STAFF|SERVICES|MANAGER|SECURITY|SYSTEMS|INDUSTRY|JOBS?|BUDGET)\b)"
    r"|\bLED(?= (?:LIGHTS?|LIGHTING|LAMPS?|BULBS?|TV|DISPLAYS?|SCREENS?|STRIPS?)\b)"
    r"|\bUPS(?= (?:STORES?|DRIVERS?|TRUCKS?|DELIVERY|TRACKING)\b)|\bAM(?= RADIO\b)"
    r"|\bLA(?= (?:TIMES|LAKERS|DODGERS|CLIPPERS|COUNTY|KINGS)\b)|(?:(?<=\b[IO][NF] )|(?<=\bFROM ))LA\b(?! [A-Z]+[AO]\b)"
)
_SHOUTED_ARTICLE = re.compile(
    r"(?<!\bPLAN )(?<!\bVITAMIN )(?<!\bGRADE )(?<!\bTYPE )(?<!\bCLASS )(?<!\bGROUP )(?<!\bTEAM )(?<!\bOPTION )"
    r"(?<!\bSECTION )(?<!\bEXHIBIT )(?<!\bHEPATITIS )(?<!\bAN )(?<![A-Z]-)(?<![&.])\bA\b(?= [A-Za-z]{2})"
)
_RUN_IN_CAPITALS = re.compile(r"\b[A-Z][A-Z']{0,60}(?:[\s,;:!?.—-]+[A-Z][A-Z']{0,60}\b)+(?!['\w])")
_ORDINARY_IN_RUN = 2
_SHORT_WORDS = word_set(
    """
    IN ON TO DO GO NO SO OF IS HE WE BE ME MY BY UP AS AT AN OR IF HI OH AH HA YO OX EX YE AY EH HM UH UM HO LO MR MS DR
    ST AW OW MA PA ED AL JO TY BO MO
    """
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
_AND_OR = re.compile(r"\b(?:and|either)/or\b", re.IGNORECASE)
_SLASH = re.compile(r"(?<=\w)\s?/\s?(?=\w)")
_NUMBER_SIGN = re.compile(r"(?<!\w)#(?=\d)")
_HASHTAG = re.compile(r"(?<!\w)#(?=[A-Za-z])")
_HANDLE = re.compile(r"(?<![\w.])@(?=[A-Za-z])")
_GRADE = re.compile(r"(?<![\w-])([A-F])-(?=\s|[.,;!?)]|$)")
_CODE_SIGNS = (
    (re.compile(r"\s?>=\s?"), " is greater than or equal to "),
    (re.compile(r"\s?<=\s?(?!=)"), " is less than or equal to "),
    (re.compile(r"\s?&&\s?"), " and "),
    (re.compile(r"\s?!==?\s?"), " is not equal to "),
    (re.compile(r"(?<=[\w\s])={2,3}(?=[\w\s])"), "="),
    (re.compile(r"\s?(?:->|=>|→)\s?(?=\w)"), " to "),
    (re.compile(r"\$(?=[A-Za-z])"), ""),
)
_EMOTICON = re.compile(
    r"(?<![\w:])(?:[:;=8xX]'?-?[DPpOo](?!\w)|[:;=]'?-?[)(|/\\*]+|(?<!\s[a-z]\s)(?<!^[a-z]\s)<3(?=$|[\s.,!?]))"
)
_HEART = re.compile(r"(?<=\bI )<3(?= \w)")
_BRACKETED = (
    (re.compile(r"\(s\)he\b|\bs/he\b", re.IGNORECASE), "she or he"),
    (re.compile(r"(?<=[a-z]{2})\((e?s)\)"), r"\1"),
    (re.compile(r"(?<![\w'])([A-Za-z])\(([A-Za-z])\)"), r"\1 of \2"),
)
_VOWELLESS = re.compile(
    r"(?<![\w'])(?=[a-z]|[A-Z]+[a-z]*[A-Z]|[A-Z]{2,}[a-z])[B-DF-HJ-NP-TV-XZb-df-hj-np-tv-xz]{2,}(?!\w|'(?!s\b))"
)
_MINUS = re.compile(r"(?<=\d)\s+[-−]\s+(?=\d)")
_TIMES = re.compile(r"(?<=\d)\s?[*×]\s?(?=\d)")
_PROGRAMMING = re.compile(r"\b(C|F|J)#|\bC\+\+")
_MIXED = re.compile(r"(?<![\w'])(?=[A-Za-z-]{0,60}\d)(?=\d*-?[A-Za-z])[A-Za-z\d]+(?:-[A-Za-z\d]+)*(?![\w])")
_POINT_LETTERS = re.compile(r"(?<![\w.,])(\d+\.\d+)([a-z]{1,3}|[A-Z]{1,3})(?![\w'])")
_CAMEL = re.compile(r"\b(?=[A-Za-z]*?[a-z][A-Z])[A-Za-z]++\b")
_CAMEL_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_CAPITALS = re.compile(r"(?<![A-Za-z'])(?:[A-Z]+(?:'[A-Z]+)+|[A-Z]{2,}(?:'?s)?)(?![A-Za-z])")
_THE_LETTERS = re.compile(
    r"(?<=\b[Tt]he )(WHO|SAT|GRE)\b|(?<=\b[Ll]anded at )([A-Z]{3})\b"
    r"|\b(?:(?<=\b[Ff]lew to )|(?<=\b[Ff]ly to )|(?<=\b[Ff]lying to )|(?<=\b[Ff]light to )"
    r"|(?<=\b[Ff]light from ))([A-Z]{3})\b"
)
_LETTER_PAIR = re.compile(r"\b([A-Z]{1,3})&([A-Z]{1,3})\b")
_NAME_PREFIX = re.compile(r"^(?:Mc|Mac|De|Di|Le|La|Van|Fitz|O)[A-Z][a-z]+$")

_LATIN_WORD = re.compile("[A-Za-z]{2,}")
_CAPITAL_WORD = re.compile("[A-Z]{2,}")
_DOUBLED = re.compile(r"(.)\1")
_VOWEL = re.compile("[AEIOUY]")
_FIGURES_FIRST = re.compile(r"(?<!\d)(\d++)-([A-Za-z][A-Za-z-]*)")
_FIGURES_LAST = re.compile(r"(?<![A-Za-z-])([A-Za-z][A-Za-z-]*)-(\d+)")
_FIGURES_OR_LETTERS = re.compile(r"\d+|[A-Za-z]+")
_CAPITALS_PLURAL = re.compile("(?<![A-Z])[A-Z]{2,}s")


def say_symbols(text: str) -> str:
    """Returns the text with symbols in words where they are read, and gone where they are not."""
    text = _EMOTICON.sub(" ", _HEART.sub("heart", text))
    for pattern, words in (*_BRACKETED, *_CODE_SIGNS):
        text = pattern.sub(words, text)
    text = _GRADE.sub(r"\1 minus", text)
    text = _LETTER_PAIR.sub(lambda m: f"{spelled(m[1])} and {spelled(m[2])}", text)
    text = _PROGRAMMING.sub(lambda m: "C plus plus" if m[0] == "C++" else f"{m[1]} sharp", text)
    text = _AND_OR.sub(lambda m: m[0].replace("/", " "), text)
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
    text = _POINT_LETTERS.sub(lambda m: f"{number(m[1])} {spelled(m[2])}", text)
    text = _MIXED.sub(_mixed, text)
    return _CAMEL.sub(_camel, text)


def say_capitals(text: str) -> str:
    """Returns the text with words in capitals as words or as single letters.

    `NASA` is a word because the lexicon has it in capitals, `FBI` is spelled because it is no word. A text that is all
    in capitals is read as if it were not, and so is a run of ordinary words in capitals in any other.
    """
    if _is_shouted(text):
        return _say_shouted(text)
    text = _RUN_IN_CAPITALS.sub(lambda m: _say_shouted(m[0]) if _holds_words(m[0]) else m[0], text)
    text = _THE_LETTERS.sub(lambda m: spelled(m[0]), text)
    return _CAPITALS.sub(lambda m: _capitals(m[0], shouting=False), text)


def _is_shouted(text: str) -> bool:
    words = _LATIN_WORD.findall(text)
    found = [word for word in words if not _is_acronym(word)]
    if len(found) == 1 < len(words):
        return text.isupper()
    return len(found) > 1 and sum(word.isupper() for word in found) > 0.6 * len(found)


def _holds_words(run: str) -> bool:
    """Whether some words of a run in capitals are ordinary ones, so that it is no list of acronyms."""
    words = [word for word in _CAPITAL_WORD.findall(run) if word not in _SPELLED or word == "AM"]
    ordinary = [word for word in words if word in _SHORT_WORDS or _is_ordinary(word.lower())]
    return len(ordinary) >= _ORDINARY_IN_RUN


def _is_ordinary(word: str) -> bool:
    entry = lookup(word)
    if entry is None:
        return len(word) > 3 and derive(word) is not None
    return entry.curated or len(word) > 3


def _say_shouted(text: str) -> str:
    text = _SHOUTED_ARTICLE.sub("a", _SHOUTED_NAMES.sub(lambda m: spelled(m[0]), text))
    return _CAPITALS.sub(lambda m: _capitals(m[0], shouting=True), text)


def say_consonants(text: str) -> str:
    """Returns the text with unknown words without a vowel as single letters: `xkcd`, `BSc`; not `brrr`."""
    return _VOWELLESS.sub(lambda m: _consonants(m[0]), text)


def _consonants(word: str) -> str:
    known = lookup(word) or lookup(word.lower())
    return word if known is not None or _DOUBLED.search(word) else spelled(word)


def is_spelled(word: str) -> bool:
    """Whether the word, in capitals, is one whose letters are read one by one: `BBC`, but not `US`, which is a word."""
    return word in _SPELLED and word not in _ALONE_SPELLED


def _is_acronym(word: str) -> bool:
    return word.isupper() and (word in _SPELLED or (lookup(word) is not None and not _is_ordinary(word.lower())))


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
    if shouting and stem in _SHOUTED_WORDS:
        return stem.lower() + ending
    if stem in _SPELLED:
        return spelled(stem) + ending
    if len(stem) == 2:
        return stem.lower() + ending if stem in _SHORT_WORDS else spelled(stem) + ending
    lower = lookup(stem.lower())
    if shouting and _is_ordinary(stem.lower()):
        return stem.lower() + ending
    if lookup(stem) is not None:
        return stem + ending
    if lower is not None and (lower.curated or len(stem) > 5):
        return stem.lower() + ending
    if len(stem) <= 4 or not _VOWEL.search(stem):
        return spelled(stem) + ending
    return stem.lower() + ending


def _pronoun(word: str) -> str:
    """`i'm` with its capital, so that it is read as a word and not as a letter."""
    return "I" + word[1:] if word.startswith("i'") else word


def _mixed(match: re.Match[str]) -> str:
    word = match.group()
    if plain := _FIGURES_FIRST.fullmatch(word):
        return f"{_figures(plain[1])} {plain[2]}"
    if plain := _FIGURES_LAST.fullmatch(word):
        return f"{_letters(plain[1])} {_figures(plain[2])}"
    return " ".join(_figures(part) if part.isdigit() else _letters(part) for part in _FIGURES_OR_LETTERS.findall(word))


def _figures(text: str) -> str:
    if text[0] == "0" or len(text) > 4:
        return digits(text)
    return year(int(text)) if len(text) == 4 else in_pairs(text)


def _letters(text: str) -> str:
    if len(text) == 1:
        return text.upper()
    entry = lookup(text.lower())
    if len(text) <= 3 and entry is None and not text.isupper() and not text.istitle():
        return spelled(text)
    return spelled(text) if len(text) == 2 and text.isupper() else text


def _camel(match: re.Match[str]) -> str:
    word = match.group()
    if lookup(word.lower()) is not None or _NAME_PREFIX.match(word):
        return word
    if _CAPITALS_PLURAL.fullmatch(word):
        return word
    parts = _CAMEL_PART.findall(word)
    return " ".join(part.upper() if len(part) == 1 and part not in "aI" else part for part in parts)
