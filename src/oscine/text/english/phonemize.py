"""English text to phonemes: lexicon, homographs, word parts, and the letter-to-sound network for the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from oscine.errors import InvalidRequest
from oscine.text.english.alphabet import PUNCTUATION, STRESSES, VOWELS
from oscine.text.english.guess import guess, settle_stress
from oscine.text.english.homographs import choose
from oscine.text.english.lexicon import lookup
from oscine.text.english.morphology import add_s, contracted, derive
from oscine.text.english.numerals import number
from oscine.text.english.scripts import to_plain_latin
from oscine.text.wordlist import word_list

_LETTER_NAMES: dict[str, str] = dict(
    zip(
        "abcdefghijklmnopqrstuvwxyz",
        word_list(
            "ˈA bˈi sˈi dˈi ˈi ˈɛf ʤˈi ˈAʧ ˈI ʤˈA kˈA ˈɛl ˈɛm ˈɛn ˈO pˈi kjˈu ˈɑɹ ˈɛs tˈi jˈu vˈi dˈʌbəlju ˈɛks wˈI zˈi"
        ),
        strict=True,
    )
)
_REDUCED = {
    "a": "ə", "an": "ən", "the": "ðə", "to": "tə", "of": "əv", "and": "ænd", "i": "I", "us": "ʌs", "'em": "əm",
    "am": "æm", "its": "ɪts", "o'clock": "əklˈɑk", "mr": "mˈɪstəɹ",
    "de": "də", "le": "lə", "du": "du", "di": "di",
}  # fmt: skip
_FULL = {"a": "ˈA", "the": "ðə", "to": "tu", "of": "ʌv"}
_LONGEST_WORD = 40
_TOKEN = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*'?|\d+|[,.?!;:—]")
_HYPHENATED = re.compile(r"(?<![A-Za-z])[A-Za-z]++(?:-[A-Za-z]++)+")
_GIANT = re.compile(r"[A-Za-z'-]{200}")  # no word; broken up, so that no part of it is looked up as one
_FIGURES = re.compile(r"\d+")
_VOWEL_LETTER = re.compile("[aeiouy]")


def phonemize(text: str) -> str:
    """Returns the phonemes of a normalised text: words separated by a space, marks after the word they follow.

    Every character is one of `ALPHABET`. The result ends with a mark; one is added if the text has none. Digits left
    in the text are read as numbers. Raises InvalidRequest if nothing in the text can be said.
    """
    text = _GIANT.sub(r"\g<0> ", to_plain_latin(text.replace("’", "'")))
    text = _HYPHENATED.sub(lambda match: _unhyphenated(match.group()), text)
    text = _FIGURES.sub(lambda match: f" {number(match.group())} ", text)
    tokens: list[str] = _TOKEN.findall(text)
    words = [token for token in tokens if token not in PUNCTUATION]
    spoken = _speak(words)
    if not any(spoken):
        raise InvalidRequest("text has no letters or digits to read; give at least one word", param="text")
    return _emphasised(_assemble(tokens, spoken))


def _unhyphenated(word: str) -> str:
    """The word in one where the lexicon has it so, or has it with hyphens and lacks a part (`sci-fi`); else split."""
    joined = word.replace("-", "")
    known = lookup(joined.lower()) is not None
    if known and len(joined) > 4:
        return joined
    if all(len(part) == 1 or lookup(part.lower()) or derive(part.lower()) for part in word.split("-")):
        return word.replace("-", " ")
    if lookup(word.lower()) is not None:
        return word
    return joined if known else word.replace("-", " ")


def _speak(words: Sequence[str]) -> list[str]:
    """Returns the phonemes of each word, with the weak forms that the next word calls for."""
    lower = [word.lower() for word in words]
    spoken: list[str] = []
    following = ""
    for place in range(len(words) - 1, -1, -1):
        phonemes = _word(words, lower, place, following).replace("nk", "ŋk").replace("nɡ", "ŋɡ")
        spoken.append(phonemes)
        following = phonemes or following
    return spoken[::-1]


def _word(words: Sequence[str], lower: Sequence[str], place: int, following: str) -> str:
    word, key = words[place], lower[place].rstrip("'")
    if len(key) == 1 and _is_letter_name(words, place):
        return _LETTER_NAMES[key]
    if len(key) == 3 and key.endswith("'s") and word[0].isupper():
        return add_s(_LETTER_NAMES[key[0]])
    if key in ("the", "to") and following.lstrip(STRESSES)[:1] in tuple(VOWELS):
        return {"the": "ði", "to": "tu"}[key]
    if key == "to" and not following:
        return _FULL["to"]
    if key in _REDUCED:
        return _REDUCED[key]
    cased = lookup(word) if place or word.isupper() else None
    entry = cased or lookup(key)
    if entry is None:
        return _unknown(key)
    return choose(key, entry, lower, place)


def _is_letter_name(words: Sequence[str], place: int) -> bool:
    """Whether a word of one letter is the letter's name: all but the article, and I, which sound the same or not."""
    word = words[place]
    if word.lower() == "i":
        return any(len(words[near]) == 1 for near in (place - 1, place + 1) if 0 <= near < len(words))
    if word == "a":
        return len(words) == 1
    if word == "A" and place == 0 and len(words) > 1:
        return len(words[1]) == 1 and words[1].isupper()
    return True


@lru_cache(maxsize=5000)
def _unknown(word: str) -> str:
    known = derive(word) if len(word) <= _LONGEST_WORD else None
    if known is None and "'" in word:
        known = contracted(word, _unknown)
    if known:
        return settle_stress(known)
    guessed = guess(word.replace("'", ""))
    mute = _VOWEL_LETTER.search(word) is not None and not any(char in VOWELS for char in guessed)
    return "".join(_LETTER_NAMES.get(char, "") for char in word) if mute else guessed


def _assemble(tokens: Sequence[str], spoken: Sequence[str]) -> str:
    """Puts words and marks in order: one space between words, one mark after a word, a mark at the end."""
    parts: list[str] = []
    index = 0
    for token in tokens:
        if token in PUNCTUATION:
            if parts and parts[-1][-1] not in PUNCTUATION:
                parts[-1] += token
            continue
        if spoken[index]:
            parts.append(spoken[index])
        index += 1
    text = " ".join(parts)
    return text if text[-1] in PUNCTUATION else text + "."


def _emphasised(text: str) -> str:
    """A text of weak words alone ("To?", "And.") gets a stress on its last vowel."""
    if any(mark in text for mark in STRESSES):
        return text.replace("ˌ", "ˈ") if "ˈ" not in text else text
    places = [place for place, char in enumerate(text) if char in VOWELS]
    return text[: places[-1]] + "ˈ" + text[places[-1] :] if places else text
