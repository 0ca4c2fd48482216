"""Pronounces words that the lexicon lacks but whose parts it has: endings, prefixes, compounds."""

from __future__ import annotations

from collections.abc import Callable

from oscine.text.english.alphabet import VOWELS
from oscine.text.english.lexicon import lookup
from oscine.text.wordlist import word_set

_VOICELESS = "ptkfθʃʧsɾ"
_HISSING = "szʃʒʤʧ"
_ENDINGS = {
    "ly": "li", "ness": "nəs", "less": "ləs", "ful": "fəl", "ment": "mənt", "able": "əbəl", "ish": "ɪʃ", "er": "əɹ",
    "or": "əɹ", "est": "əst", "ist": "ɪst", "ism": "ˌɪzəm", "ship": "ʃˌɪp", "hood": "hˌʊd", "like": "lˌIk",
    "wise": "wˌIz", "ward": "wəɹd", "wards": "wəɹdz", "proof": "pɹˌuf", "free": "fɹˌi", "y": "i", "ize": "ˌIz",
    "dom": "dəm",
}  # fmt: skip
_PREFIXES = {
    "un": "ʌn", "re": "ɹi", "non": "nˌɑn", "pre": "pɹi", "anti": "ˌænti", "over": "ˌOvəɹ", "under": "ˌʌndəɹ",
    "sub": "sˌʌb", "super": "sˌupəɹ", "inter": "ˌɪntəɹ", "multi": "mˌʌlti", "micro": "mˌIkɹO", "mis": "mɪs",
    "out": "ˌWt", "dis": "dɪs", "de": "di", "co": "kO", "mega": "mˌɛɡə", "cyber": "sˌIbəɹ", "counter": "kˌWntəɹ",
    "hyper": "hˌIpəɹ", "ultra": "ˌʌltɹə", "semi": "sˌɛmi", "bio": "bˌIO", "nano": "nˌænO", "pseudo": "sˌudO",
    "auto": "ˌɔɾO", "geo": "ʤˌiO", "neuro": "nˌʊɹO", "photo": "fˌOɾO", "post": "pˌOst", "tele": "tˌɛlə",
}  # fmt: skip
CONTRACTIONS = {"'ve": "əv", "'ll": "əl", "'d": "əd", "'re": "əɹ", "n't": "ənt", "'m": "əm", "'s": "z"}
"""What is written together with the word before it, and how it sounds after a consonant."""
_NO_COMPOUND = word_set(
    "ing ion age ant ent end ill all art ate ole ode ana ism ist ass ers est ess ism ine ish ial ian"
)
_MIN_PART = 3


def derive(word: str) -> str | None:
    """Returns the phonemes of a lower-case word made of known parts, or None."""
    return (
        contracted(word, derive)
        or _plural_possessive(word)
        or inflected(word)
        or _with_ending(word)
        or _with_prefix(word)
        or _compound(word)
    )


def add_s(base: str) -> str:
    """Returns the phonemes with the ending of plurals, verbs and possessives."""
    if base[-1] in _HISSING:
        return base + "ɪz"
    return base + ("s" if base[-1] in _VOICELESS else "z")


def add_ed(base: str) -> str:
    """Returns the phonemes with the ending of the past tense; t between vowels is tapped."""
    if base[-1] in "tdɾ":
        return _tapped(base) + "ɪd"
    return base + ("t" if base[-1] in _VOICELESS else "d")


def _tapped(base: str) -> str:
    """`stɑɹt` → `stɑɹɾ` before a vowel: the t after a vowel or r becomes a tap."""
    if len(base) > 1 and base[-1] == "t" and base[-2] in VOWELS + "ɹ":
        return base[:-1] + "ɾ"
    return base


def _known(word: str) -> str | None:
    if len(word) < 2:
        return None
    entry = lookup(word)
    return entry.phonemes if entry else None


def contracted(word: str, say: Callable[[str], str | None]) -> str | None:
    """Returns the phonemes of a word with a contraction or a possessive, as in `should've`, or None if it has none.

    `say` is asked for the word before it where the lexicon lacks that.
    """
    for ending, phonemes in CONTRACTIONS.items():
        if not word.endswith(ending) or len(word) == len(ending):
            continue
        base = _known(word[: -len(ending)]) or say(word[: -len(ending)])
        if not base:
            return None
        if ending == "'s":
            return add_s(base)
        after_vowel = base[-1] in VOWELS and ending in ("'ve", "'d", "'m")
        return base + phonemes[1:] if after_vowel else _tapped(base) + phonemes
    return None


def _plural_possessive(word: str) -> str | None:
    return (_known(word[:-1]) or derive(word[:-1])) if word.endswith("s'") else None


def _stems(word: str, ending: str) -> list[str]:
    """Returns the spellings a stem may have had before `ending`: bak-ing → bake, runn-ing → run, tri-ed → try."""
    stem = word[: -len(ending)]
    if len(stem) < _MIN_PART - 1:
        return []
    stems = [stem]
    if ending[0] in "aeiouy":
        stems.append(stem + "e")
        if len(stem) > 3 and stem[-1] == stem[-2] and stem[-1] not in "aeiouls":
            stems.insert(0, stem[:-1])
        elif len(stem) > 3 and stem[-1] == stem[-2]:
            stems.append(stem[:-1])
    if stem[-1] == "i":
        stems.append(stem[:-1] + "y")
    return stems


def _stem(word: str, ending: str) -> str | None:
    for stem in _stems(word, ending):
        if (phonemes := _known(stem)) is not None:
            return phonemes
    return None


def inflected(word: str) -> str | None:
    """Returns the phonemes of a plural, past tense or -ing form of a known word, or None."""
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        ending = "es" if word.endswith(("ses", "xes", "zes", "ches", "shes", "ies", "oes")) else "s"
        base = _known(word[:-1]) or (_stem(word, ending) if ending == "es" else None)
        if base is None and len(word) > 4:
            base = _with_ending(word[:-1]) or _inflected_ing(word[:-1])
        return add_s(base) if base else None
    if word.endswith("ed") and (base := _stem(word, "ed")) is not None:
        return add_ed(base)
    return _inflected_ing(word)


def _inflected_ing(word: str) -> str | None:
    if word.endswith("ing") and (base := _stem(word, "ing")) is not None:
        return _tapped(base) + "ɪŋ"
    if word.endswith("in'") and (base := _stem(word[:-1] + "g", "ing")) is not None:
        return _tapped(base) + "ɪn"
    return None


def _with_ending(word: str) -> str | None:
    for ending, phonemes in _ENDINGS.items():
        if word.endswith(ending) and len(word) - len(ending) >= _MIN_PART:
            base = _stem(word, ending)
            if base is not None:
                return _joined(base, phonemes)
    return None


def _joined(base: str, ending: str) -> str:
    """A stem and its ending: a t is tapped before a vowel, and of two l one is said (`logically`: -kli)."""
    if ending[0] == "l" and base.endswith("kəl"):
        return base[:-2] + ending
    if ending[0] == base[-1] == "l":
        return base + ending[1:]
    return (_tapped(base) if ending[0] in VOWELS else base) + ending


def _with_prefix(word: str) -> str | None:
    for prefix, phonemes in _PREFIXES.items():
        rest = word[len(prefix) :].lstrip("-")
        if word.startswith(prefix) and len(rest) > _MIN_PART:
            entry = lookup(rest)
            base = entry.phonemes if entry is not None and entry.curated else inflected(rest)
            if base is not None:
                return phonemes + base
    return None


def _compound(word: str) -> str | None:
    """Two curated words written together, the split with the most even parts; the second loses its main stress."""
    best: tuple[int, str] | None = None
    for place in range(_MIN_PART, len(word) - _MIN_PART + 1):
        first, second = lookup(word[:place]), lookup(word[place:])
        if first is None or second is None or not (first.curated and second.curated):
            continue
        if word[:place] in _NO_COMPOUND or word[place:] in _NO_COMPOUND:
            continue
        unevenness = abs(2 * place - len(word))
        if best is None or unevenness < best[0]:
            best = unevenness, first.phonemes + second.phonemes.replace("ˈ", "ˌ")
    return best[1] if best else None
