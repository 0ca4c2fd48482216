"""The texts a teacher reads and the words a judge compares."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from training import figures, templates, texts
from training.wording import edit_distance, mean_rate, spoken, word_errors

SENTENCES = [f"The {colour} {animal} sat by the door" for colour in ("red", "old", "shy") for animal in ("cat", "fox")]


@pytest.fixture
def wordnet(tmp_path: Path) -> Path:
    """A folder in WordNet's format: a licence line, then glosses with quoted examples."""
    glosses = [f'a thing (odd) that people keep; "{sentence}"; "it was 5 times too $ long"' for sentence in SENTENCES]
    lines = ["  1 licence text", *(f"0000{n} 03 n 01 word 0 000 | {gloss}  " for n, gloss in enumerate(glosses))]
    for part in ("noun", "verb", "adj", "adv"):
        (tmp_path / f"data.{part}").write_text("\n".join(lines if part == "noun" else lines[:1]) + "\n")
    (tmp_path / "cntlist.rev").write_text("apple%1:13:00:: 1 9\nbird%1:05:00:: 1 4\n")
    return tmp_path


def test_examples_are_plain_sentences(wordnet: Path) -> None:
    assert texts.read_examples(wordnet) == [f"{sentence}." for sentence in SENTENCES]
    assert texts.read_glosses(wordnet) == ["A thing that people keep."]
    assert texts.read_words(wordnet) == ["Apple.", "Bird."]


def test_stream_depends_on_the_seed_and_never_repeats(wordnet: Path) -> None:
    mix = {"number": 0.5, "short": 0.3, "date": 0.2}
    first = list(itertools.islice(texts.stream(3, mix=mix, wordnet=wordnet), 400))
    assert first == list(itertools.islice(texts.stream(3, mix=mix, wordnet=wordnet), 400))
    assert first != list(itertools.islice(texts.stream(4, mix=mix, wordnet=wordnet), 400))
    assert len({texts.key(text) for text in first}) == len(first)


def test_stream_avoids_taken_and_held_out_texts(wordnet: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    held_out = tmp_path / "heldout.txt"
    held_out.write_text("The RED cat sat, by the door!\n")
    monkeypatch.setattr(texts, "read_held_out", lambda: held_out.read_text().splitlines())
    stream = texts.stream(1, mix={"example": 1.0}, wordnet=wordnet, taken=[texts.key(SENTENCES[1])])
    got = set(itertools.islice(stream, len(SENTENCES) - 2))
    assert got == {f"{sentence}." for sentence in SENTENCES[2:]}
    with pytest.raises(RuntimeError, match="no new texts of kind 'example'"):
        next(stream)


def test_pairs_are_two_different_examples(wordnet: Path) -> None:
    text = next(texts.stream(1, mix={"pair": 1.0}, wordnet=wordnet))
    first, second = text.removesuffix(".").split(". ")
    assert {first, second} <= set(SENTENCES)
    assert first != second


def test_parts_are_cut_as_the_engine_cuts_long_sentences(wordnet: Path) -> None:
    long = "When the rain had stopped at last, the old dog came out of the barn."
    glosses = (wordnet / "data.noun").read_text() + f'00007 03 n 01 word 0 000 | a thing; "{long}"\n'
    (wordnet / "data.noun").write_text(glosses)
    parts = list(itertools.islice(texts.stream(1, mix={"part": 1.0}, wordnet=wordnet), 2))
    assert parts == ["When the rain had stopped at last,", "the old dog came out of the barn."]
    with pytest.raises(RuntimeError, match="no new texts of kind 'part'"):
        list(itertools.islice(texts.stream(1, mix={"part": 1.0}, wordnet=wordnet), 3))


def test_unknown_kind_is_named(wordnet: Path) -> None:
    with pytest.raises(ValueError, match="no text kind poem"):
        next(texts.stream(1, mix={"poem": 1.0}, wordnet=wordnet))


@pytest.mark.parametrize("kind", sorted(templates.TEMPLATES))
def test_templates_fill_every_slot_with_speakable_words(kind: str) -> None:
    stream = itertools.islice(texts.stream(7, mix={kind: 1.0}), 20)
    for text in stream:
        assert "{" not in text
        assert text[0].isupper()
        assert not any(char.isdigit() for char in text)
        if kind == "long":
            assert len(text.split()) >= texts.MIN_LONG_WORDS


def test_held_out_list_is_what_the_report_promises() -> None:
    sentences = texts.read_held_out()
    assert len({texts.key(sentence) for sentence in sentences}) == 100
    assert sum(any(char.isdigit() for char in sentence) for sentence in sentences) == 10
    assert sum(len(sentence.split()) <= 3 for sentence in sentences) == 10
    assert sum(len(sentence.split()) > 30 for sentence in sentences) == 10


@pytest.mark.parametrize(
    ("value", "cardinal", "ordinal"),
    [
        (0, "zero", "zeroth"),
        (12, "twelve", "twelfth"),
        (20, "twenty", "twentieth"),
        (41, "forty one", "forty first"),
        (105, "one hundred five", "one hundred fifth"),
        (2_000_300, "two million three hundred", "two million three hundredth"),
    ],
)
def test_numbers_in_words(value: int, cardinal: str, ordinal: str) -> None:
    assert (figures.cardinal(value), figures.ordinal(value)) == (cardinal, ordinal)


def test_years_and_times_as_people_say_them() -> None:
    assert [figures.year(y) for y in (1905, 2000, 2007, 1800, 2024)] == [
        "nineteen oh five",
        "two thousand",
        "two thousand seven",
        "eighteen hundred",
        "twenty twenty four",
    ]
    assert figures.clock(6, 45, "spoken") == "quarter to seven"
    assert figures.clock(12, 50, "spoken") == "ten to one"
    assert figures.clock(9, 5) == "nine oh five"


@pytest.mark.parametrize(
    ("reference", "heard"),
    [
        ("I owe you five hundred and eighty two dollars.", "I owe you $582."),
        ("Twenty dollars and fifty cents.", "$20.50"),
        ("It happened in 2024.", "It happened in twenty twenty-four."),
        ("My number is five five five, oh one two three.", "my number is 555-0123"),
        ("March 14, 2023", "March fourteenth, two thousand twenty three"),
        ("Quarter to nine p.m.", "8:45 PM"),
        ("Two thirds of 2,400 votes, thirty five percent", "2/3 of twenty four hundred votes, 35%"),
        ("Spell it U, S, B. Okay?", "Spell it USB, OK"),
        ("Don't open the wind shield", "dont open the windshield"),
        ("Back in the nineteen nineties", "Back in the 1990s"),
        ("That is £18.50, please.", "That is 18 pounds and 50 pence, please."),
        ("That is £18.50, please.", "That is eighteen pounds fifty please."),
        ("£1.01", "one pound and one penny"),
        ("It was €7.20 a head.", "It was seven euros and twenty cents a head."),
        ("£300 or €20", "three hundred pounds or 20 euros"),
        ("A loan of $2.5 million", "a loan of two point five million dollars"),
        ("£5 million", "five million pounds"),
        ("She owes him fifty pence.", "She owes him 50p."),
        ("It weighs 5 kg.", "It weighs five kilograms."),
        ("Ten kilometres at 20°C.", "10 km at twenty degrees Celsius."),
        ("Drive at 30 mph for six feet", "drive at thirty miles per hour for 6 ft"),
    ],
)
def test_readings_of_the_same_words_are_no_errors(reference: str, heard: str) -> None:
    assert word_errors(reference, heard).errors == 0
    assert word_errors(heard, reference).errors == 0


@pytest.mark.parametrize(
    ("reference", "heard", "errors"),
    [
        ("Five hundred eighty two dollars.", "$583.", 1),
        ("At six thirty.", "At 7:30.", 1),
        ("£18.50", "18 pounds and 15 pence", 1),
        ("It costs £20.", "It costs 20 euros.", 1),
        ("The red cat sat.", "The cat sat down.", 2),
        ("Hello there.", "", 2),
    ],
)
def test_real_errors_count(reference: str, heard: str, errors: int) -> None:
    assert word_errors(reference, heard).errors == errors


def test_rates_are_clipped_and_need_a_reference() -> None:
    looping = word_errors("One word", "and " * 50)
    assert looping.errors > looping.words
    assert mean_rate([looping, word_errors("One word", "one word")]) == 0.5
    with pytest.raises(ValueError, match="no words"):
        word_errors("...", "something")


def test_edit_distance_is_symmetric_and_knows_the_three_errors() -> None:
    one, other = ["a", "b", "c"], ["a", "x", "c", "d"]
    assert edit_distance(one, other) == edit_distance(other, one) == 2
    assert edit_distance([], ["a"]) == 1


def test_spoken_writes_numbers_out_and_leaves_the_rest() -> None:
    assert spoken("Room 12 costs $1,250, about 35% more.") == (
        "Room twelve costs one thousand two hundred fifty dollars, about thirty five percent more."
    )
    assert spoken("£18.50 or €2 million") == "eighteen pounds and fifty pence or two million euros"
