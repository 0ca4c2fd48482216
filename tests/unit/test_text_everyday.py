"""Lines from real life: what must be said, in this order, and what must not be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oscine.text.clean import clean_blocks
from oscine.text.english.normalize import normalize
from oscine.text.english.phonemize import phonemize
from oscine.text.split import plan_segments

ROWS = [
    line.split("\t")
    for line in (Path(__file__).parent / "data" / "everyday_readings.tsv").read_text(encoding="utf-8").splitlines()
]
"""Kind, text, and parts that occur in this order (`...`) or must not (`!`); `|` stands between right readings."""


def said(text: str) -> str:
    return " ".join(part.spoken for part in plan_segments(clean_blocks(text), 150, normalize=normalize))


def agrees(spoken: str, reading: str) -> bool:
    """Whether the parts of a reading stand in what is spoken; case and punctuation count where a part has them."""
    words = " ".join(re.findall(r"[\w']+", spoken.lower()))
    place = 0
    for part in (part.strip() for part in reading.split("...")):
        plain = " ".join(re.findall(r"[\w']+", part.lower()))
        if part.startswith("!"):
            mark = part[1:].strip()
            if re.search(rf"\b{re.escape(mark)}(?!\w)", spoken, re.IGNORECASE):
                return False
        else:
            found = re.compile(rf"\b{re.escape(plain)}").search(words, place)
            if found is None:
                return False
            place = found.end()
    return True


@pytest.mark.parametrize(("kind", "text", "right"), ROWS, ids=[f"{kind}-{text[:30]}" for kind, text, _ in ROWS])
def test_everyday_lines_are_read_right(kind: str, text: str, right: str) -> None:
    spoken = said(text)
    assert any(agrees(spoken, reading) for reading in right.split("|")), spoken


@pytest.mark.parametrize(
    ("text", "sounds"),
    [
        ("The farm sells fresh produce.", "pɹˈOdus"),
        ("They produce cars.", "pɹədˈus"),
        ("Wind the clock.", "wˈInd"),
        ("The wind blows.", "wˈɪnd"),
        ("We flew to Nice.", "nˈis"),
        ("A nice day.", "nˈIs"),
        ("The book of Job.", "ʤˈOb"),
        ("A new job.", "ʤˈɑb"),
        ("He wound the rope.", "wˈWnd"),
        ("Wound care.", "wˈund"),
        ("They had a row about it.", "ɹˈW"),
        ("Row a boat.", "ɹˈO"),
        ("A poor excuse.", "ɪkskjˈus"),
        ("Excuse me.", "ɪkskjˈuz"),
        ("The rebel army won.", "ɹˈɛbəl"),
        ("They rebel against it.", "ɹəbˈɛl"),
        ("Keep them separate.", "sˈɛpəɹət"),
        ("We separate the eggs.", "sˈɛpəɹˌAt"),
        ("A lead pipe.", "lˈɛd"),
        ("A tear ran down.", "tˈɪɹ"),
        ("A minute detail.", "mInˈut"),
        ("I object to that.", "əbʤˈɛkt"),
    ],
)
def test_homographs_are_chosen_by_the_words_around_them(text: str, sounds: str) -> None:
    assert sounds in phonemize(text).split(" ") or f"{sounds}." in phonemize(text).split(" ")
