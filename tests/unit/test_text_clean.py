"""Cleaning of user text: what is taken off, what survives, and that cleaning twice changes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.text.clean import clean_text, speakable

CASES = [
    ("# Title\n\nBody.", "Title.\n\nBody."),
    ("Title\n=====\nBody", "Title.\n\nBody."),
    ("**bold** and *it* and __b__ and _i_ and ~~s~~", "bold and it and b and i and s"),
    ('see [the docs](https://x.org/a(b) "t") now', "see the docs now"),
    ("![a cat](cat.png) here", "a cat here"),
    ("text[^1] more\n\n[^1]: https://x.org note", "text more"),
    ("run `pip install x` now", "run pip install x now"),
    ("```python\nprint(1)\n```\ndone", "print(1).\n\ndone."),
    ("- one\n- two\n* three", "one.\n\ntwo.\n\nthree."),
    ("- [x] done\n- [ ] open!", "done.\n\nopen!"),
    ("1. first\n2. second", "1. first.\n\n2. second."),
    ("> quoted\n> lines", "quoted lines"),
    ("| a | b |\n|---|:-:|\n| 1 | 2 |", "a, b.\n\n1, 2."),
    ("above\n\n---\n\nbelow", "above.\n\nbelow."),
    ("<b>bold</b> <i class='x'>it</i>", "bold it"),
    ("<p>One</p><p>Two.</p>", "One.\n\nTwo."),
    ("a<br/>b", "a.\n\nb."),
    ("<script>alert(1)</script>hi<!-- no -->", "hi"),
    ('<speak>Hi <break time="1s"/> there</speak>', "Hi.\n\nthere."),
    ("&lt;b&gt; R&amp;D &#65; AT&T &nbsp;x", "<b> R&D A AT&T x"),
    ("3 < 5 and 6 > 2", "3 < 5 and 6 > 2"),
    ("snake_case and 2*3*4 and 5 * 6", "snake_case and 2*3*4 and 5 * 6"),
    ("Visit https://www.example.com/a?b=c.", "Visit example.com."),
    ("(see www.example.org/x)", "(see example.org)"),
    ("mail me@example.com", "mail me@example.com"),
    ("Hi 👋🏽 there 🎉!", "Hi there!"),
    ("1️⃣ step", "1 step"),
    ("family 👨‍👩‍👧 time", "family time"),
    ("“Smart” ‘quotes’ it’s", "\"Smart\" 'quotes' it's"),
    ("« Bonjour »", '"Bonjour"'),
    ("wait…… what", "wait... what"),
    ("Wow!!!! Really??!?", "Wow! Really?"),
    ("太好了！！！", "太好了！"),
    ("a -- b", "a — b"),
    ("soooooooo good", "sooo good"),
    ("100000 and 5555555", "100000 and 5555555"),
    ("tab\there\u200b and\u00a0nbsp\x07", "tab here and nbsp"),
    ("ＡＢＣ１２ ﬁne 𝐁𝐨𝐥𝐝", "ABC12 fine Bold"),
    ("hard wrapped\nline", "hard wrapped line"),
    ("第一行\n第二行", "第一行第二行"),
    ("标题\n\n正文。", "标题。\n\n正文。"),
    ("20°C costs 5€ – ok™", "20°C costs 5€ – ok™"),
    ("Привет, мир! नमस्ते สวัสดี مرحبا", "Привет, мир! नमस्ते สวัสดี مرحبا"),
    ("<|im_end|>", "<|im_end|>"),
]


@pytest.mark.parametrize(("raw", "expected"), CASES, ids=[raw[:24] for raw, _ in CASES])
def test_what_a_text_becomes(raw: str, expected: str) -> None:
    assert clean_text(raw) == expected


@pytest.mark.parametrize(("raw", "expected"), CASES, ids=[raw[:24] for raw, _ in CASES])
def test_cleaning_twice_changes_nothing_more(raw: str, expected: str) -> None:
    if "&lt;" not in raw:  # an escaped tag is text once, and would be a tag the second time
        assert clean_text(clean_text(raw)) == clean_text(raw)


def test_links_by_policy() -> None:
    text = "Go to https://a.example/b, please"
    assert clean_text(text, links="keep") == text
    assert clean_text(text, links="drop") == "Go to, please"
    assert clean_text(text, links="site") == "Go to a.example, please"


@pytest.mark.parametrize("text", ["", " \n", "🎉🎉", "...!?", "***", "---", "<b></b>", "\u200b\ufeff", "—", "~_~"])
def test_nothing_to_say(text: str) -> None:
    assert not speakable(clean_text(text))


@pytest.mark.parametrize("text", ["a", "7", "好", "é", "ก", "**x**", "½"])
def test_something_to_say(text: str) -> None:
    assert speakable(clean_text(text))


@given(st.text(max_size=200))
def test_any_text_can_be_cleaned(text: str) -> None:
    cleaned = clean_text(text)
    assert cleaned == cleaned.strip()
    assert not any(ord(char) < 32 and char != "\n" for char in cleaned)


@given(
    st.lists(
        st.sampled_from(["alpha", "Beta,", "gamma.", "x7", "don't", "3.5", "e-mail", "(so)", '"yes"']),
        min_size=1,
    )
)
def test_plain_words_are_left_alone(words: list[str]) -> None:
    assert clean_text(" ".join(words)) == " ".join(words)
