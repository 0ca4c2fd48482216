"""The pronunciation lexicon: 198,000 words of the misaki dictionaries and CMUdict (see `data/NOTICE`).

`data/lexicon.gz` holds lines sorted by their UTF-8 bytes: `word TAB phonemes [TAB field ...]`. Keys are lower case,
except where case changes the reading (`Polish`, `NASA`). A field `t:phonemes` is the reading as another part of
speech: n noun, v verb, a adjective, p past tense or participle; the field `~` marks a word that was generated, not
curated. The text stays one block of bytes and is searched by bisection: loading costs 25 ms and 5 MB.
`data/additions.txt`, in the same format, comes before it: names and new words that the dictionaries lack or have wrong.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The reading of a word, its readings as other parts of speech, and whether a person checked it."""

    phonemes: str
    variants: Mapping[str, str]
    curated: bool


@cache
def _block() -> bytes:
    data = resources.files("oscine.text.english") / "data" / "lexicon.gz"
    return gzip.decompress(data.read_bytes())


@cache
def additions() -> Mapping[str, str]:
    """Returns the words of `data/additions.txt` and their phonemes."""
    text = (resources.files("oscine.text.english") / "data" / "additions.txt").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return {row[0]: row[1] for row in rows}


@lru_cache(maxsize=20000)
def lookup(word: str) -> Entry | None:
    """Returns the entry of exactly this spelling, or None; try the lower-case form yourself."""
    if (added := additions().get(word)) is not None:
        return Entry(phonemes=added, variants={}, curated=True)
    block = _block()
    key = word.encode("utf-8", "replace") + b"\t"
    low, high = 0, len(block)  # both always at the start of a line
    while low < high:
        start = block.rfind(b"\n", 0, (low + high) // 2) + 1
        start = max(start, low)
        end = block.index(b"\n", start) + 1
        tab = block.index(b"\t", start) + 1
        found = block[start:tab]
        if found == key:
            return _entry(block[tab : end - 1].decode("utf-8"))
        if found[:-1] < key[:-1]:
            low = end
        else:
            high = start
    return None


def lexicon_items() -> Iterator[tuple[str, str]]:
    """Yields every word and its main reading: the additions, then the others in the order of their file."""
    yield from additions().items()
    for line in _block().decode("utf-8").splitlines():
        word, phonemes, *_ = line.split("\t")
        if word not in additions():
            yield word, phonemes


def _entry(text: str) -> Entry:
    phonemes, *rest = text.split("\t")
    variants = {field[0]: field[2:] for field in rest if field != "~"}
    return Entry(phonemes=phonemes, variants=variants, curated="~" not in rest)
