"""Segments: a text's blocks become parts spoken one after the other, and nothing that is read as one is cut."""

from __future__ import annotations

import random

import pytest

from oscine.text.clean import TextBlock, clean_blocks, clean_text, plain_blocks
from oscine.text.english.normalize import normalize
from oscine.text.groups import grouped
from oscine.text.pauses import PAUSE_DEFAULTS, pause_after
from oscine.text.split import plan_segments, speech_weight
from oscine.types import Request

FILLERS = (
    "as everybody in the room had known for a long time",
    "although nobody wanted to say it",
    "while the others were waiting outside",
    "before the rain began",
    "and then they went home",
    "because it seemed to be the only way",
)
GROUPS = {
    "St. Petersburg": "Saint Petersburg",
    "Fig. 3": "Figure three",
    "Mr. Jones": "Mister Jones",
    "Dr. Miller": "Doctor Miller",
    "$567": "five hundred sixty seven dollars",
    "$12.50": "twelve dollars and fifty cents",
    "1,250 km": "one thousand two hundred fifty kilometers",
    "March 3, 2024": "March third, twenty twenty four",
    "page 412": "page four hundred twelve",
    "25%": "twenty five percent",
    "3.14159": "three point one four one five nine",
    "No. 17": "number seventeen",
}


def spoken(text: str, limit: int = 80, **options: bool) -> list[str]:
    return [segment.spoken for segment in plan_segments(clean_blocks(text), limit, normalize=normalize, **options)]


def test_no_group_is_cut_in_a_thousand_long_sentences() -> None:
    draw = random.Random(5)
    for _ in range(1000):
        written, group = draw.choice(sorted(GROUPS.items()))
        parts = draw.sample(FILLERS, draw.randint(2, 4))
        parts.insert(draw.randint(1, len(parts)), f"with {written}")
        sentence = f"They left {' '.join(parts)}."
        for limit in (50, 80, 150):
            segments = spoken(sentence, limit)
            assert any(group.lower() in " ".join(part.lower().split()) for part in segments), (sentence, segments)
            assert " ".join(segments) == " ".join(spoken(sentence, 10_000)), sentence


def test_cuts_fall_at_clause_ends_where_there_is_one() -> None:
    text = (
        "When the storm had passed over the hills, the people of the village came out of their houses, looked at what "
        "was left of the harbour, and began to work."
    )
    assert [part[-1] for part in spoken(text, 90)] == [",", ",", "."]


@pytest.mark.parametrize(
    ("words", "together"),
    [
        ("Mr. Jones went", "Mr. Jones|went"),
        ("see Fig. 3 and", "see|Fig. 3|and"),
        ("five hundred and sixty seven dollars left", "five hundred and sixty seven dollars|left"),
        ("paid five and left", "paid|five|and|left"),
        ("the N B A final", "the|N B A final"),
        ("on March third he", "on|March third he"),
        ("one million, two or", "one million,|two or"),
        ("I went", "I|went"),
        ("J. K. Smith", "J. K. Smith"),
        ("in May they", "in|May|they"),
        ("at 5 p.m. he", "at|5 p.m.|he"),
    ],
)
def test_words_that_belong_together(words: str, together: str) -> None:
    parts = words.split()
    found = parts[0]
    for word, joined in zip(parts[1:], grouped(parts), strict=True):
        found += (" " if joined else "|") + word
    assert found == together


def test_headings_and_paragraphs_stand_apart_and_list_items_go_together() -> None:
    text = "# One\n\nShort. Also short.\n\nNext.\n\n* * *\n\n- a bit\n- of it\n\n<h2>Two</h2>End"
    segments = plan_segments(clean_blocks(text), 80)
    assert [(segment.text, segment.ends) for segment in segments] == [
        ("One.", "heading"),
        ("Short. Also short.", "paragraph"),
        ("Next.", "scene_break"),
        ("a bit. of it.", "paragraph"),
        ("Two.", "heading"),
        ("End.", "paragraph"),
    ]


def test_underlined_headings_and_rules_are_known() -> None:
    blocks = clean_blocks("Title\n=====\n\nText one.\n\nBelow\n---\nText.\n\n---\n\nMore.\n\n***\n")
    assert [(block.kind, block.text) for block in blocks] == [
        ("heading", "Title."),
        ("paragraph", "Text one."),
        ("heading", "Below."),
        ("paragraph", "Text."),
        ("scene_break", ""),
        ("paragraph", "More."),
    ]


def test_marks_of_blocks_in_a_text_of_a_user_are_no_marks() -> None:
    assert clean_blocks("a \ue000b \ue001c \ue002d") == [TextBlock(kind="paragraph", text="a b c d")]
    assert clean_text("# a\n\n\ue001\n\nb") == "a.\n\nb."


def test_each_sentence_by_itself() -> None:
    text = "No. Yes! Dr. Miller paid $5.50, as he said."
    assert spoken(text) == ["No. Yes! Doctor Miller paid five dollars and fifty cents, as he said."]
    assert spoken(text, by_sentence=True) == [
        "No.",
        "Yes!",
        "Doctor Miller paid five dollars and fifty cents, as he said.",
    ]


def test_what_is_written_stands_beside_what_is_spoken() -> None:
    sentence = "On March 3, 2024 the firm paid $12.50 to Dr. Miller, and he gave $2 of it to the boy at the door."
    segments = plan_segments(clean_blocks(sentence), 60, normalize=normalize)
    assert len(segments) > 1
    assert all(speech_weight(segment.spoken) <= 60 for segment in segments)
    assert " ".join(segment.text for segment in segments) == sentence
    assert [segment.ends for segment in segments] == ["clause"] * (len(segments) - 1) + ["paragraph"]


def test_what_is_spoken_of_a_sentence_may_be_nothing() -> None:
    nothing = {"Mute.": ""}
    segments = plan_segments(plain_blocks("Mute. Loud.\n\nMute."), 80, normalize=lambda text: nothing.get(text, text))
    assert [(segment.text, segment.ends) for segment in segments] == [("Loud.", "paragraph")]
    assert plan_segments(plain_blocks("Mute."), 80, normalize=lambda text: "") == []


def test_pauses_are_what_is_asked_for_or_a_readers() -> None:
    request = Request(heading_pause_s=0.0, scene_pause_s=2.5)
    found = [pause_after(end, request) for end in ("clause", "sentence", "paragraph", "heading", "scene_break")]
    assert found == [0.0, 0.0, PAUSE_DEFAULTS["paragraph_pause_s"], 0.0, 2.5]
