"""Chooses the reading of words that are said in two ways, from the words around them; simple rules, no parser."""

from __future__ import annotations

from collections.abc import Sequence

from oscine.text.english.lexicon import Entry
from oscine.text.wordlist import word_set

_BEFORE_VERB = word_set(
    """
    to will would can could should shall must may might not don't didn't doesn't can't won't couldn't wouldn't
    shouldn't let's lets please i you we they he she who cannot never always often also i'll you'll we'll they'll he'll
    she'll it'll i'd you'd we'd they'd help helps did do does and-then
    """
)
_BEFORE_NOUN = word_set(
    """
    the a an his her its their our my your this that these those of no some any each every another which whose in on
    at with by from for into about without per new old good bad big small large little great first last next own such
    more much many few public long short high low best criminal world full heavy early late
    fresh local organic seasonal poor lame
    """
)
_BEFORE_PARTICIPLE = word_set(
    """
    have has had having was were is are be been being get got i've you've we've they've he's she's haven't hasn't
    hadn't wasn't weren't isn't aren't widely well just already ever
    """
)
_DETERMINERS = word_set("the a an my your his her its our their this that these those it them him me us all up down")
_ADJECTIVE_ENDINGS = ("al", "ic", "ive", "ous", "ful", "ary", "less")
_PAST_WORDS = word_set("yesterday ago last once had was were did")
_NEAR = 100  # words on each side that may decide
_BE = word_set(
    "is was are were be been being am isn't wasn't aren't weren't it's that's he's she's they're often commonly"
)


def choose(word: str, entry: Entry, words: Sequence[str], place: int) -> str:
    """Returns the phonemes of `word`, which stands at `place` of the lower-case `words`."""
    before = words[place - 1] if place else ""
    after = words[place + 1] if place + 1 < len(words) else ""
    special = _SPECIAL.get(word)
    near = words[max(place - _NEAR, 0) : place + _NEAR] if special is not None else ()
    if special is not None and (phonemes := special(before, after, near)) is not None:
        return phonemes
    variants = entry.variants
    if "p" in variants and before in _BEFORE_PARTICIPLE:
        return variants["p"]
    if "v" in variants and (before in _BEFORE_VERB or (not before and after in _DETERMINERS)):
        return variants["v"]
    if "n" in variants and (before in _BEFORE_NOUN or before.endswith(_ADJECTIVE_ENDINGS)):
        return variants["n"]
    return entry.phonemes


def _read(before: str, after: str, words: Sequence[str]) -> str | None:
    past = before in _BEFORE_PARTICIPLE or before in ("he", "she", "it", "who") or bool(_PAST_WORDS & set(words))
    return "ɹˈɛd" if past and before not in ("to", "will", "did", "can", "could", "should", "would", "must") else "ɹˈid"


def _live(before: str, after: str, words: Sequence[str]) -> str | None:
    things = word_set(
        "music show shows tv stream streams streaming audio event events concert performance broadcast coverage video "
        "chat wire band recording ammunition bait animals animal animate birth births bird birds wires performances"
    )
    adjective = before in ("a", "the", "go", "goes", "going", "went", "broadcast", "watch", "recorded", "stream", *_BE)
    return "lˈIv" if adjective or after in things else "lˈɪv"


def _lead(before: str, after: str, words: Sequence[str]) -> str | None:
    metal = after in word_set("pipe pipes paint poisoning acid pencil pencils oxide ore bullet bullets crystal alloy")
    return (
        "lˈɛd"
        if metal or (before in ("of", "contains", "containing", "like") and after in ("", "and", "or"))
        else "lˈid"
    )


def _wind(before: str, after: str, words: Sequence[str]) -> str | None:
    verb = before in word_set("to will can could and would") and after in (
        *_DETERMINERS,
        "around",
        "through",
        "back",
        "",
    )
    verb = verb or (not before and after in _DETERMINERS)
    return "wˈInd" if verb else "wˈɪnd"


def _tear(before: str, after: str, words: Sequence[str]) -> str | None:
    verb = before in _BEFORE_VERB or after in (
        "up",
        "down",
        "apart",
        "off",
        "into",
        "out",
        "it",
        "them",
        "in",
        "through",
    )
    return "tˈɛɹ" if verb else "tˈɪɹ"


def _bow(before: str, after: str, words: Sequence[str]) -> str | None:
    bend = (
        before in _BEFORE_VERB or after in ("down", "to", "before", "of", "low") or "take" in words or "took" in words
    )
    return "bˈW" if bend and after != "and" else "bˈO"


def _bass(before: str, after: str, words: Sequence[str]) -> str | None:
    fish = {"fish", "fishing", "sea", "striped", "black", "largemouth", "freshwater", "marine", "lake", "caught"}
    return "bˈæs" if fish & set(words) else "bˈAs"


def _used(before: str, after: str, words: Sequence[str]) -> str | None:
    return "jˈus" if after == "to" and before not in _BE else "jˈuzd"


def _lives(before: str, after: str, words: Sequence[str]) -> str | None:
    return "lˈIvz" if before in _BEFORE_NOUN - {"that", "which"} else "lˈɪvz"


def _close(before: str, after: str, words: Sequence[str]) -> str | None:
    verb = before in _BEFORE_VERB or after in ("the", "your", "my", "his", "her", "their", "this", "it", "down")
    return "klˈOz" if verb and after not in ("to", "by") else "klˈOs"


def _minute(before: str, after: str, words: Sequence[str]) -> str | None:
    tiny = after in word_set(
        "details detail particles particle amounts amount organisms quantities quantity differences"
    )
    return "mInˈut" if tiny or before in ("very", "so", "extremely") else "mˈɪnət"


def _nice(before: str, after: str, words: Sequence[str]) -> str | None:
    """The town, where one goes to or is and no noun follows."""
    place = before in word_set("to in from near visit visited visiting") and after in word_set(
        "and on for with last this next in by france is was to during yesterday today"
    )
    alone = before in ("to", "from", "visit", "visited") and after == ""
    return "nˈis" if place or alone else "nˈIs"


def _job(before: str, after: str, words: Sequence[str]) -> str | None:
    name = before == "of" and not {"book", "patience", "story", "trials"}.isdisjoint(words)
    return "ʤˈOb" if name else "ʤˈɑb"


def _wound(before: str, after: str, words: Sequence[str]) -> str | None:
    turned = before in word_set("he she they we i it who and river road path trail") and after in (
        *_DETERMINERS,
        *word_set("around through down back its along past"),
    )
    return "wˈWnd" if turned or after in ("up", "around") else "wˈund"


def _produce(before: str, after: str, words: Sequence[str]) -> str | None:
    goods = (before in _BEFORE_NOUN or before == "farm") and after not in _DETERMINERS
    return "pɹˈOdus" if goods and before not in ("that", "which", "those") else "pɹədˈus"


def _row(before: str, after: str, words: Sequence[str]) -> str | None:
    quarrel = after in ("about", "over", "with", "between", "erupted") and before in ("a", "the", "this", "big", "huge")
    return "ɹˈW" if quarrel else "ɹˈO"


def _excuse(before: str, after: str, words: Sequence[str]) -> str | None:
    return "ɪkskjˈus" if before in _BEFORE_NOUN and before not in ("by", "for", "that") else None


_SPECIAL = {
    "nice": _nice,
    "job": _job,
    "wound": _wound,
    "produce": _produce,
    "row": _row,
    "excuse": _excuse,
    "read": _read,
    "live": _live,
    "lead": _lead,
    "wind": _wind,
    "tear": _tear,
    "bow": _bow,
    "bass": _bass,
    "used": _used,
    "lives": _lives,
    "close": _close,
    "minute": _minute,
}
