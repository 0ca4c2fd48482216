"""Length estimates: plausible for read speech, monotonous, and the bound always above the estimate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.text.budget import expected_seconds, max_seconds

PLAUSIBLE = [
    ("Hi!", 0.4, 1.2),
    ("a", 0.4, 1.2),
    ("Your train leaves at 9:45 from platform 3.", 2.5, 5.0),
    ("The quick brown fox jumps over the lazy dog.", 2.3, 4.5),
    ("今天天气很好，我们去公园吧。", 2.3, 4.5),
    ("こんにちは、元気ですか。", 1.2, 3.0),
    ("0123456789", 3.0, 5.0),
    ("The FBI and the BBC", 1.8, 3.5),
]


@pytest.mark.parametrize(("text", "low", "high"), PLAUSIBLE)
def test_the_estimate_is_plausible(text: str, low: float, high: float) -> None:
    assert low < expected_seconds(text) < high


def test_nothing_takes_no_time() -> None:
    assert expected_seconds(" ") == 0.0


@given(st.text(min_size=1).filter(lambda text: bool(text.strip())))
def test_the_bound_leaves_room(text: str) -> None:
    assert max_seconds(text) >= 2 * expected_seconds(text) + 1.5


@given(
    st.lists(st.sampled_from(["one", "2", "FBI", "好", "$5,", "stop.", "ok"]), min_size=1),
    st.sampled_from(["word", "7", "好"]),
)
def test_more_text_takes_longer(words: list[str], extra: str) -> None:
    text = " ".join(words)
    assert expected_seconds(f"{text} {extra}") > expected_seconds(text)
    assert max_seconds(f"{text} {extra}") > max_seconds(text)


def test_digits_and_ideographs_cost_more_than_letters() -> None:
    assert expected_seconds("12345") > 2 * expected_seconds("abcde")
    assert expected_seconds("今天天气好") > 1.5 * expected_seconds("today")
