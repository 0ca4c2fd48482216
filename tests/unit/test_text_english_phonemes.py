"""Phonemes: a table of words, context rules, word parts, and that any text gives symbols of the alphabet only."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.errors import InvalidRequest
from oscine.text.english.alphabet import ALPHABET, VOWELS
from oscine.text.english.guess import guess, settle_stress
from oscine.text.english.lexicon import additions, lexicon_items, lookup
from oscine.text.english.morphology import derive
from oscine.text.english.normalize import normalize
from oscine.text.english.phonemize import phonemize
from oscine.text.frontend import get_frontend

WORDS = """
hello həlˈO. | world wˈɜɹld. | cat kˈæt. | day dˈA. | my mˈI. | no nˈO. | now nˈW. | boy bˈY. | church ʧˈɜɹʧ.
judge ʤˈʌʤ. | thing θˈɪŋ. | this ðˈɪs. | vision vˈɪʒən. | ship ʃˈɪp. | butter bˈʌɾəɹ. | water wˈɔɾəɹ. | bird bˈɜɹd.
letter lˈɛɾəɹ. | car kˈɑɹ. | four fˈɔɹ. | near nˈɪɹ. | book bˈʊk. | food fˈud. | see sˈi. | happy hˈæpi.
yes jˈɛs. | queen kwˈin. | knight nˈIt. | write ɹˈIt. | phone fˈOn. | box bˈɑks. | island ˈIlənd. | hour ˈWəɹ.
people pˈipəl. | women wˈɪmən. | one wˈʌn. | two tˈu. | three θɹˈi. | eight ˈAt. | London lˈʌndən. | Paris pˈɛɹəs.
Seattle siˈæɾəl. | Beethoven bˈAɾOvən. | NASA nˈæsə. | don't dˈOnt. | walks wˈɔks. | watches wˈɑʧɪz.
started stˈɑɹɾɪd. | jumped ʤˈʌmpt. | played plˈAd. | running ɹˈʌnɪŋ. | dogs dˈɔɡz. | cities sˈɪɾiz. | making mˈAkɪŋ.
beautiful bjˈuɾəfəl. | laughed lˈæft. | rough ɹˈʌf. | through θɹˈu. | colonel kˈɜɹnəl. | Wednesday wˈɛnzdˌA.
"""
TABLE = [tuple(cell.strip().split(" ", 1)) for row in WORDS.strip().split("\n") for cell in row.split(" | ")]
CONTEXT = [
    ("the apple", "the table", "ði", "ðə"),
    ("to eat", "to go", "tu", "tə"),
    ("I will read it.", "I have read it.", "ɹˈid", "ɹˈɛd"),
    ("We live here.", "A live show.", "lˈɪv", "lˈIv"),
    ("The use of it.", "They use it.", "jˈus", "jˈuz"),
    ("The record is old.", "They record it.", "ɹˈɛkəɹd", "ɹəkˈɔɹd"),
    ("A lead pipe.", "They lead us.", "lˈɛd", "lˈid"),
    ("The wind blows.", "To wind the clock.", "wˈɪnd", "wˈInd"),
    ("Close the door.", "A close friend.", "klˈOz", "klˈOs"),
    ("The Polish town.", "To polish it.", "pˈOlɪʃ", "pˈɑlɪʃ"),
    ("a cat", "Plan A is best", "ə", "ˈA"),
]
ACCEPTANCE = [
    ("Yes", "jˈɛs."),
    ("a", "ˈA."),
    ("Hi!", "hˈI!"),
    ("42", "fˈɔɹɾi tˈu."),
    ("HELLO THERE", "həlˈO ðɛɹ."),
    ('He said "no".', "hi sˈɛd nˈO."),
    ("one\ntwo", "wˈʌn tˈu."),
    ("Hi 👋 there", "hˈI ðɛɹ."),
    ("Your train leaves at 9:45 from platform 3.", "jʊɹ tɹˈAn lˈivz æt nˈIn fˈɔɹɾi fˈIv fɹʌm plˈætfˌɔɹm θɹˈi."),
]


def say(text: str) -> str:
    return phonemize(normalize(text))


@pytest.mark.parametrize(("word", "phonemes"), TABLE, ids=[row[0] for row in TABLE])
def test_word(word: str, phonemes: str) -> None:
    assert phonemize(word) == phonemes


@pytest.mark.parametrize(("text", "phonemes"), ACCEPTANCE, ids=[text[:20] for text, _ in ACCEPTANCE])
def test_texts_that_break_others(text: str, phonemes: str) -> None:
    assert say(text) == phonemes


@pytest.mark.parametrize(("first", "second", "in_first", "in_second"), CONTEXT, ids=[row[0] for row in CONTEXT])
def test_context_decides(first: str, second: str, in_first: str, in_second: str) -> None:
    assert in_first in say(first).strip(".").split(" ")
    assert in_second in say(second).strip(".").split(" ")


def test_n_before_k_and_g_is_said_at_the_back() -> None:
    assert say("income, ungrateful") == "ˈɪŋkˌʌm, ˌʌŋɡɹˈAtfəl."


def test_letters_are_named() -> None:
    assert say("The FBI and PCs") == "ði ˈɛf bˈi ˈI ænd pˈi sˈiz."


def test_marks_follow_their_word_and_one_ends_the_text() -> None:
    assert say("Well, yes - no") == "wˈɛl, jˈɛs— nˈO."
    assert say("Really?!") == "ɹˈiəli?"


@pytest.mark.parametrize(
    ("word", "phonemes"),
    [
        ("blorks", None),
        ("laptops", "lˈæptˌɑps"),
        ("rebooting", "ɹˌibˈuɾɪŋ"),
        ("teacart", "tˈikˌɑɹt"),
    ],
)
def test_known_parts_make_a_word(word: str, phonemes: str | None) -> None:
    said = lookup(word).phonemes if lookup(word) else derive(word)
    assert said == phonemes


@pytest.mark.parametrize(
    ("word", "phonemes"),
    [
        ("should've", "ʃˈʊdəv"),
        ("couldn't've", "kˈʊdəntəv"),
        ("that'd", "ðˈæɾəd"),
        ("who've", "hˈuv"),
        ("what're", "wˈʌɾəɹ"),
        ("Zoe'll", "zˈOiəl"),
        ("blick's", "blˈɪks"),
        ("Zelenskyy's", "zəlˈɛnskiz"),
        ("boys'", "bˈYz"),
    ],
)
def test_contractions_and_possessives_keep_the_word_before_them(word: str, phonemes: str) -> None:
    assert phonemize(word) == phonemes + "."


@pytest.mark.parametrize(
    ("written", "phonemes"),
    [
        ("sci-fi", "sˈIfˌI"),
        ("Wi-Fi", "wˈIfˌI"),
        ("well-known", "wˈɛl nˈOn"),
        ("co-op", "kˈO ˈɑp"),
        ("X-ray", "ˈɛks ɹˈA"),
    ],
)
def test_a_hyphen_joins_what_the_lexicon_has_as_one_word(written: str, phonemes: str) -> None:
    assert phonemize(written) == phonemes + "."


@pytest.mark.parametrize(
    ("word", "phonemes"),
    [
        ("Kubernetes", "kˌubəɹnˈɛɾiz"),
        ("OpenAI", "ˌOpənˌAˈI"),
        ("smartphones", "smˈɑɹtfˌOnz"),
        ("cryptocurrencies", "kɹˈɪptˌOkˌɜɹənsiz"),
        ("googling", "ɡˈuɡəlɪŋ"),
        ("Siobhan", "ʃəvˈɔn"),
        ("Rio de Janeiro", "ɹˈiO də ʤənˈɛɹˌO"),
        ("died", "dˈId"),
    ],
)
def test_new_words_and_names(word: str, phonemes: str) -> None:
    assert say(word) == phonemes + "."


def test_the_additions_are_sorted_words_of_the_alphabet_that_lookup_prefers() -> None:
    words = additions()
    assert list(words) == sorted(words, key=lambda word: word.encode())
    for word, phonemes in words.items():
        assert set(phonemes) <= set(ALPHABET)
        assert phonemes.count("ˈ") == 1
        entry = lookup(word)
        assert entry is not None
        assert entry.phonemes == phonemes


def test_lookup_finds_every_word() -> None:
    items = list(lexicon_items())
    assert len(items) > 150_000
    for word, phonemes in items[::997]:
        entry = lookup(word)
        assert entry is not None
        assert entry.phonemes == phonemes
    assert lookup("") is None
    assert lookup("zzzzzz") is None


def test_the_lexicon_holds_only_the_alphabet() -> None:
    assert set("".join(phonemes for _, phonemes in lexicon_items())) <= set(ALPHABET)


@pytest.mark.parametrize("word", ["blorfing", "zanthium", "Kwyjibo", "mcfoozle", "brrr", "xyzzy", "aaaa"])
def test_an_unknown_word_is_guessed(word: str) -> None:
    phonemes = phonemize(word).strip(".")
    assert set(phonemes) <= set(ALPHABET)
    assert phonemes


def test_guesses_are_close_to_the_spelling() -> None:
    said = {word: guess(word).replace("ˈ", "").replace("ˌ", "") for word in ("blick", "stam", "prope", "dask")}
    assert said == {"blick": "blɪk", "stam": "stæm", "prope": "pɹOp", "dask": "dæsk"}


def test_a_word_has_one_main_stress() -> None:
    assert settle_stress("fˈɔɹɾˈi") == "fˈɔɹɾˌi"
    assert settle_stress("kˌæt") == "kˈæt"
    assert settle_stress("kət") == "kˈət"
    assert settle_stress("s") == "s"


@given(st.text(max_size=100))
def test_any_text_gives_symbols_or_a_clear_refusal(text: str) -> None:
    frontend = get_frontend("english-phonemes")
    try:
        symbols = frontend.to_symbols(frontend.normalize(text))
    except InvalidRequest:
        symbols = "."
    assert set(symbols) <= set(ALPHABET)
    assert symbols[-1] in ",.?!;:—"
    assert "  " not in symbols


@given(st.lists(st.sampled_from(("the", "of", "and", "I", "a", "to", "it", "5", "FBI,", "world!", "x")), min_size=1))
def test_every_text_has_a_stress(words: list[str]) -> None:
    symbols = say(" ".join(words))
    assert "ˈ" in symbols
    assert any(char in VOWELS for char in symbols)


@pytest.mark.parametrize("text", ["", "...", "🎉", "-", "?!"])
def test_nothing_to_say_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="no letters or digits") as caught:
        phonemize(text)
    assert caught.value.param == "text"


def test_frontends_by_name() -> None:
    english, plain = get_frontend("english-phonemes"), get_frontend(None)
    assert english.alphabet == ALPHABET
    assert english.name == "english-phonemes"
    assert plain.alphabet is None
    assert plain.to_symbols(plain.normalize("Any 1 text")) == "Any 1 text"
    with pytest.raises(InvalidRequest, match="english-phonemes"):
        get_frontend("klingon")


def test_the_alphabet_is_fixed() -> None:
    """Trained checkpoints index symbols by their place: append only."""
    assert ALPHABET == " ,.?!;:—ˈˌAIOWYiuæɑɔəɛɜɪʊʌbdfhjklmnpstvwzðŋɡɹɾʃʒʤʧθ"
    assert len(set(ALPHABET)) == len(ALPHABET)


def test_two_thousand_words_take_less_than_a_second_of_processor_time() -> None:
    words = [word for word, _ in lexicon_items()][::90][:2000]
    say("warm up")
    started = time.process_time()
    say(" ".join(words) + " on 11/29/2026 at 9:45.")
    assert time.process_time() - started < 1.0
