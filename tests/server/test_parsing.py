"""Large JSON bodies: parsed to the same values, without holding the interpreter for as long as they are large."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.server.parsing import LONG, parse

PADDING = "A" * (LONG + 1)
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
NAMES = st.sampled_from(["a", "b", PADDING])
VALUES = st.recursive(
    LEAVES | st.sampled_from([PADDING, PADDING + '"', "é" + PADDING]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
WRONG = ("", "{", f'["{PADDING}', f'["{PADDING}"', f'{{"a": "{PADDING}"b}}', f'"{PADDING}\\"', "9" * LONG)


@given(value=VALUES, ascii_only=st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_is_parsed_is_what_json_says(value: Any, ascii_only: bool) -> None:
    text = json.dumps([value, PADDING], ensure_ascii=ascii_only)
    assert parse(text) == parse(text.encode()) == [value, PADDING]


@pytest.mark.parametrize("text", WRONG, ids=lambda text: repr(text)[:20])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        json.loads(text)
    with pytest.raises(ValueError, match=r"\w"):
        parse(text)
    with pytest.raises(ValueError, match=r"\w"):
        parse(b"\xff" + text.encode())


def test_a_recording_costs_next_to_nothing() -> None:
    body = json.dumps({"ref_audio": "A" * (16 << 20), "input": "Hello."}).encode()

    def seconds(work: Any) -> float:
        began = time.thread_time()
        work(body)
        return time.thread_time() - began

    assert min(seconds(parse) for _ in range(5)) < 0.7 * min(seconds(json.loads) for _ in range(5))
