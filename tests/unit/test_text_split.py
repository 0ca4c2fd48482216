"""Sentences and pieces: where a text is cut, and that no word is ever lost."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.cancellation import cancelled_when
from oscine.errors import Cancelled
from oscine.text.clean import clean_text
from oscine.text.split import SentenceStream, plan_pieces, sentences, speech_weight

WORDS = [
    "Dr.",
    "Smith",
    "paid",
    "$3.50",
    "at",
    "10:30",
    "a.m.",
    "in",
    "the",
    "U.S.",
    "and",
    "left,",
    "e.g.",
    "by",
    "train.",
    "Why?",
    '"Stop!"',
    "he",
    "said.",
    "(See",
    "p.",
    "5.)",
    "你好。今天天气很好！",
    "「是吗？」他说，",
    "東京タワーは高いです。",
    "안녕하세요.",
    "it's",
    "well-known;",
    "No.",
    "no.",
    "sec.",
    "said",
    "7",
    "people",
    "of",
    "them",
    "wait...",
    "Yes!",
    "1,234.5",
    "ก็ดี",
    "naïve",
    "\n\n",
    "extraordinarily",
    "—",
    "—",
    "...",
    "!",
    "a",
]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join)

ONE_SENTENCE = [
    "Dr. Smith met Mr. and Mrs. Jones at St. Mary's.",
    "The price is 3.5 or 1,234.56 dollars.",
    "It starts at 10:30 a.m. on the dot.",
    "Take fruit, e.g. apples, i.e. the red ones.",
    "He moved to the U.S. Army base.",
    "J. R. R. Tolkien wrote it.",
    "See No. 7 and p. 12 and Fig. 3 below.",
    '"Stop!" he said.',
    "Wait... what is it?",
    "Visit example.com or node.js today.",
    "1. First do this",
    "He works at Foo Inc. as a cook.",
    "It was Jan. 5 when he left.",
    "On Jan. 3 people gathered.",
    "Flight no. 3 is late and she is no. 1 in the world.",
    "See art. 5, sec. 3 and Apt. 12.",
]
MORE_SENTENCES = [
    ("One. Two! Three?", ["One.", "Two!", "Three?"]),
    ('He said "Go." Then he left.', ['He said "Go."', "Then he left."]),
    ("(This is so.) That is not.", ["(This is so.)", "That is not."]),
    ("He lives in the U.S. The end.", ["He lives in the U.S.", "The end."]),
    ("We met at 5 p.m. It rained.", ["We met at 5 p.m.", "It rained."]),
    ("Apples, pears, etc. Then home.", ["Apples, pears, etc.", "Then home."]),
    ("So do I. You know.", ["So do I.", "You know."]),
    ("你好。今天很好！「是吗？」他说。", ["你好。", "今天很好！", "「是吗？」", "他说。"]),
    ("No stop here\n\nNew paragraph", ["No stop here", "New paragraph"]),
    ("It is 5. Six follow.", ["It is 5.", "Six follow."]),
    ("مرحبا؟ نعم.", ["مرحبا؟", "نعم."]),
    ("He said no. 3 people left.", ["He said no.", "3 people left."]),
    ("I said no. 10 was too many.", ["I said no.", "10 was too many."]),
    ("Wait a sec. 3 more are coming.", ["Wait a sec.", "3 more are coming."]),
    ("She likes modern art. 3 of us do not.", ["She likes modern art.", "3 of us do not."]),
    ("We sat in the sun. 5 of us burned.", ["We sat in the sun.", "5 of us burned."]),
    ("He left at 5 p.m. 3 people stayed.", ["He left at 5 p.m.", "3 people stayed."]),
]


@pytest.mark.parametrize("text", ONE_SENTENCE)
def test_kept_as_one_sentence(text: str) -> None:
    assert sentences(text) == [text]


@pytest.mark.parametrize(("text", "expected"), MORE_SENTENCES)
def test_cut_into_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(TEXTS, st.data())
def test_a_stream_finds_the_same_sentences(text: str, data: st.DataObject) -> None:
    stream = SentenceStream()
    found = []
    rest = text
    while rest:
        size = data.draw(st.integers(1, 25))
        found += stream.push(rest[:size])
        rest = rest[size:]
    assert found + stream.flush() == sentences(text)


def test_a_stream_hands_a_sentence_out_before_the_next_is_complete() -> None:
    stream = SentenceStream()
    assert stream.push("Hello there. How ") == ["Hello there."]
    assert stream.push("are you") == []
    assert stream.flush() == ["How are you"]
    assert stream.flush() == []


@given(st.text(st.characters(max_codepoint=127)))
def test_plain_text_weighs_what_its_characters_do(text: str) -> None:
    assert speech_weight(text) == speech_weight(text + "ä") - 1 == len(text)


@given(TEXTS, st.integers(12, 120))
def test_no_word_is_lost_and_no_piece_too_long(text: str, limit: int) -> None:
    pieces = plan_pieces(text, limit)
    spoken = re.sub(r"[\W_]", "", text)
    assert re.sub(r"[\W_]", "", "".join(pieces)) == spoken
    for piece in pieces:
        assert speech_weight(piece) <= limit
        assert piece == piece.strip()
        assert any(char.isalnum() for char in piece)


@given(st.text(max_size=300), st.integers(12, 60))
def test_any_text_keeps_its_letters(text: str, limit: int) -> None:
    pieces = plan_pieces(text, limit)
    assert "".join(c for p in pieces for c in p if c.isalnum()) == "".join(c for c in text if c.isalnum())
    assert all(speech_weight(piece) <= limit for piece in pieces)


@given(
    st.lists(
        st.sampled_from(["Dr.", "e.g.", "3.5", "10:30", "U.S.", "1,234", "tea", "for"]),
        min_size=3,
        max_size=80,
    )
)
def test_words_are_cut_only_at_spaces_where_they_fit(words: list[str]) -> None:
    assert [word for piece in plan_pieces(" ".join(words), 30) for word in piece.split()] == words


def test_the_best_place_is_taken() -> None:
    text = "The first sentence is here. The second one, which is longer, has a clause in it."
    assert plan_pieces(text, 60) == [
        "The first sentence is here.",
        "The second one, which is longer, has a clause in it.",
    ]
    assert plan_pieces("The second one which is longer, has a clause in it now.", 40) == [
        "The second one which is longer,",
        "has a clause in it now.",
    ]


def test_a_clause_is_cut_inside_only_when_it_is_too_long_itself() -> None:
    """Fewer pieces used to count for more than a comma: the cut came behind "the workers who had"."""
    assert plan_pieces(
        "When the rain stopped, the workers who had waited under the trees, went back to the field.", 60
    ) == [
        "When the rain stopped,",
        "the workers who had waited under the trees,",
        "went back to the field.",
    ]


def test_a_long_clause_is_cut_before_a_word_that_begins_a_phrase() -> None:
    assert plan_pieces("She walked along the narrow path by the sea until nobody could see her anymore", 60) == [
        "She walked along the narrow path by the sea",
        "until nobody could see her anymore",
    ]
    assert plan_pieces("Every afternoon those twelve students played terribly loud trumpet music", 40) == [
        "Every afternoon those twelve students",
        "played terribly loud trumpet music",
    ]


def test_no_tiny_last_piece() -> None:
    text = " ".join(["word"] * 41)
    pieces = plan_pieces(text, 100)
    assert len(pieces) == 3
    assert min(map(len, pieces)) > 50


def test_short_paragraphs_share_a_piece_and_long_ones_do_not() -> None:
    assert plan_pieces("Title.\n\nOne line.", 100) == ["Title. One line."]
    paragraph = "This paragraph is about seventy characters long, it fills a piece well."
    assert plan_pieces(f"{paragraph}\n\n{paragraph}", 100) == [paragraph, paragraph]


def test_chinese_is_cut_at_its_own_marks() -> None:
    pieces = plan_pieces("这是一个非常长的句子，里面有很多逗号，最后我们来看看它是怎么被切分的。", 60)
    assert pieces == ["这是一个非常长的句子，里面有很多逗号，", "最后我们来看看它是怎么被切分的。"]


def test_numbers_inside_chinese_stay_whole() -> None:
    for limit in range(14, 40):
        assert any("2026" in piece for piece in plan_pieces("我们将在2026年的夏天去北京看朋友们然后回家", limit))


def test_punctuation_alone_gives_no_piece() -> None:
    assert plan_pieces("... — !!", 20) == []
    assert plan_pieces("", 20) == []
    assert plan_pieces("... Hello. ...", 20) == ["... Hello. ..."]


def test_a_limit_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 12"):
        plan_pieces("text", 5)


def test_a_long_text_is_planned_quickly_and_whole() -> None:
    text = "A sentence of nine words is repeated here today. " * 2000
    pieces = plan_pieces(text, 200)
    assert sum(piece.count("sentence") for piece in pieces) == 2000
    assert max(map(len, pieces)) <= 200


@pytest.mark.parametrize("work", [lambda text: plan_pieces(text, 60), clean_text])
def test_work_on_a_text_ends_when_nobody_waits_for_it(work: Callable[[str], object]) -> None:
    asked = 0

    def left() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    with cancelled_when(left), pytest.raises(Cancelled):
        work("A sentence of nine words is repeated here today. " * 200)
    assert asked == 4
