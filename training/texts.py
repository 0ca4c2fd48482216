"""The stream of texts the teacher reads: WordNet examples and glosses beside the templates of our own.

The stream is endless, decided by its seed alone, and never gives a text twice, nor one of the held-out sentences.
WordNet 3.0 has a free licence that asks for its notice where the texts themselves are redistributed; they are not.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from oscine.text.split import plan_pieces
from training import templates

WORDNET = Path("/usr/share/wordnet")
HELD_OUT = Path(__file__).with_name("heldout.txt")

MAX_CHARS = 320
MIN_EXAMPLE_WORDS, MAX_EXAMPLE_WORDS = 4, 25
MIN_LONG_WORDS = 30

DEFAULT_MIX: Mapping[str, float] = {
    "example": 0.34,
    "pair": 0.06,
    "gloss": 0.08,
    "sentence": 0.08,
    "number": 0.08,
    "notice": 0.04,
    "date": 0.05,
    "time": 0.05,
    "question": 0.08,
    "short": 0.06,
    "word": 0.03,
    "letter": 0.02,
    "long": 0.03,
}
"""Share of each kind of text, counted in texts; `pair` is two examples in one text, `part` a part of one."""
PART_WEIGHT = 45
"""Longest `part`: short enough that most sentences are cut."""

_READABLE = re.compile(r"[A-Za-z][A-Za-z ,.;:!?'\-]*")
_ODD = re.compile(r"[A-Za-z]\.[A-Za-z]|\.\.|--|[A-Z]{2}|[a-z][A-Z]|['\-](?![A-Za-z ])|\s[,.;:!?]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def key(text: str) -> str:
    """What two texts have in common when they are the same but for case, spaces and punctuation."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower().replace("'", "")))


def sentence_keys(text: str) -> set[str]:
    """The keys of the whole text and of each of its sentences."""
    return {key(text), *(key(sentence) for sentence in _SENTENCE_END.split(text))} - {""}


def read_held_out(path: Path = HELD_OUT) -> list[str]:
    """The sentences kept for the report, one a line."""
    return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def read_meta(folder: Path) -> list[dict[str, object]]:
    """The rows of a data folder's `meta.jsonl`; none if the folder has no such file yet."""
    path = folder / "meta.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def is_readable(text: str) -> bool:
    """Whether the teacher can be trusted with `text`: plain words and pauses, no odd symbol, not too long."""
    return len(text) <= MAX_CHARS and bool(_READABLE.fullmatch(text)) and not _ODD.search(text)


def stream(
    seed: int, *, mix: Mapping[str, float] = DEFAULT_MIX, taken: Iterable[str] = (), wordnet: Path = WORDNET
) -> Iterator[str]:
    """Texts for ever, kinds drawn with the weights of `mix`; none whose `key` is in `taken`, none twice.

    No text has a held-out sentence in it. Raises ValueError for a kind that does not exist, RuntimeError when a kind
    has run dry.
    """
    rng = random.Random(seed)
    seen = set(taken)
    held_out = {name for text in read_held_out() for name in sentence_keys(text)}
    sources = _sources(list(mix), seed, wordnet, seen)
    kinds, weights = list(mix), list(mix.values())
    while True:
        kind = rng.choices(kinds, weights)[0]
        text = _fresh(sources[kind], seen, held_out, kind)
        seen.add(key(text))
        yield text


def _fresh(source: Iterator[str], seen: set[str], held_out: set[str], kind: str) -> str:
    for _, text in zip(range(5_000), source, strict=False):
        if key(text) not in seen and not sentence_keys(text) & held_out:
            return text
    raise RuntimeError(f"no new texts of kind {kind!r} are left: lower its share or the hours")


def _sources(kinds: list[str], seed: int, wordnet: Path, seen: set[str]) -> dict[str, Iterator[str]]:
    """An iterator for each kind; `example`, `pair` (two as one text) and `part` (a part of one) share a pile."""
    readers: dict[str, Callable[[Path], list[str]]] = {"gloss": read_glosses, "word": read_words}
    known = ["example", "pair", "part", *readers, *templates.TEMPLATES]
    unknown = set(kinds) - set(known)
    if unknown:
        raise ValueError(f"no text kind {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    sources: dict[str, Iterator[str]] = {}
    if {"example", "pair", "part"} & set(kinds):
        pile = _shuffled(read_examples(wordnet), seed, "example")
        sources["example"] = pile
        sources["part"] = _parts(pile)
        sources["pair"] = (f"{first} {second}" for first, second in _pairs(pile, seen))
    for kind in kinds:
        if kind in readers:
            sources[kind] = _shuffled(readers[kind](wordnet), seed, kind)
        elif kind in templates.TEMPLATES:
            sources[kind] = _from_templates(kind, random.Random(f"{seed} {kind}"))
    return sources


def _shuffled(texts: list[str], seed: int, kind: str) -> Iterator[str]:
    random.Random(f"{seed} {kind}").shuffle(texts)
    return iter(texts)


def _pairs(pile: Iterator[str], seen: set[str]) -> Iterator[tuple[str, str]]:
    fresh = (text for text in pile if key(text) not in seen)
    return zip(fresh, fresh, strict=False)


def _parts(pile: Iterator[str]) -> Iterator[str]:
    """What the engine makes of sentences that are too long for it: texts that begin or end in the middle of one."""
    for text in pile:
        parts = plan_pieces(text, PART_WEIGHT)
        yield from (part for part in parts if len(parts) > 1 and len(part.split()) > 1)


def _from_templates(kind: str, rng: random.Random) -> Iterator[str]:
    while True:
        text = templates.make(kind, rng)
        if kind == "long" and len(text.split()) < MIN_LONG_WORDS:
            continue
        if len(text) <= MAX_CHARS:
            yield text


def read_examples(wordnet: Path) -> list[str]:
    """WordNet's example sentences of 4 to 25 words, as sentences."""
    texts = (quoted for gloss in _glosses(wordnet) for quoted in re.findall(r'"([^"]+)"', gloss))
    return _sentences(texts)


def read_glosses(wordnet: Path) -> list[str]:
    """WordNet's definitions of 4 to 25 words, without brackets and examples, as sentences."""
    return _sentences(re.sub(r"\([^)]*\)", "", gloss.split('; "')[0]) for gloss in _glosses(wordnet))


def read_words(wordnet: Path) -> list[str]:
    """The words that WordNet saw in tagged text (so no rare ones), each as a sentence of one word."""
    words = []
    for line in _lines(wordnet / "cntlist.rev"):
        word = line.split("%")[0].replace("_", " ")
        if 3 <= len(word) <= 24 and word.replace(" ", "").isalpha():
            words.append(f"{word.capitalize()}.")
    return sorted(set(words))


def _glosses(wordnet: Path) -> Iterator[str]:
    for part in ("noun", "verb", "adj", "adv"):
        for line in _lines(wordnet / f"data.{part}"):
            if not line.startswith(" "):  # the licence at the top is indented
                yield line.partition(" | ")[2].strip()


def _lines(path: Path) -> list[str]:
    if not path.exists():
        raise RuntimeError(f"{path} is missing: install the Debian package wordnet-base")
    return path.read_text(encoding="ascii", errors="replace").splitlines()


def _sentences(texts: Iterable[str]) -> list[str]:
    found: dict[str, str] = {}
    for raw in texts:
        text = " ".join(raw.replace("`", "'").split()).strip(" ;,:")
        if not text or not MIN_EXAMPLE_WORDS <= len(text.split()) <= MAX_EXAMPLE_WORDS:
            continue
        text = text[0].upper() + text[1:]
        text = text if text[-1] in ".!?" else f"{text}."
        if is_readable(text):
            found.setdefault(key(text), text)
    return list(found.values())
