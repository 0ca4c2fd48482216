"""JSON bodies: the values that `json` finds, within limits, and what is long never parsed character by character."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.errors import InputTooLong, InvalidRequest
from oscine.server.json_scan import LONG, JsonLimits, JsonScan
from oscine.server.parsing import read_object

ROOM = JsonLimits(text_chars=10 * LONG, texts=10, recordings=frozenset({"ref_audio"}))
PADDING = "A" * (LONG + 1)
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
NAMES = st.sampled_from(["a", "b", "ref_audio", 'n"', "é", "\\"])
VALUES = st.recursive(
    LEAVES
    | st.sampled_from(
        [
            PADDING,
            PADDING + '"',
            "é" + PADDING,
            PADDING + "\\",
            "/" + PADDING,
            "\n" + PADDING,
            "😀" * LONG,
            "\\/" * LONG,
        ]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
WRONG = (
    "",
    "{",
    f'{{"a": "{PADDING}',
    f'{{"a": "{PADDING}"',
    f'{{"a": "{PADDING}"b}}',
    f'"{PADDING}\\"',
    f'{{"a": "{PADDING}\\x"}}',
    f'{{"a": "{PADDING}\\u12"}}',
    '{"a": ' + "9" * LONG + "}",
    '{"a": NaN}',
    '{"a" "b"}',
    '{"a": "\\',
    '{"a": "' + '\\"' * LONG,
)


def scanned(text: str, limits: JsonLimits = ROOM) -> JsonScan:
    scan = JsonScan(text.encode(), limits)
    scan.run()
    return scan


@given(value=VALUES, ascii_only=st.booleans(), slashes=st.booleans())
@settings(max_examples=80, deadline=None)
def test_what_is_read_is_what_json_says(value: Any, ascii_only: bool, slashes: bool) -> None:
    text = json.dumps({"a": value, "b": PADDING}, ensure_ascii=ascii_only)
    if slashes:
        text = text.replace("/", "\\/")
    assert read_object(text, ROOM) == read_object(text.encode(), ROOM) == {"a": value, "b": PADDING}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: repr(text)[:20])
def test_what_is_no_json_is_refused(text: str) -> None:
    for body in (text, text.encode(), b"\xff" + text.encode()):
        with pytest.raises(InvalidRequest, match=r"\w"):
            read_object(body, ROOM)


@pytest.mark.parametrize("text", ["[]", "1", '"a"', "null"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="must be a JSON object"):
        read_object(text, ROOM)


def test_only_utf8_is_read() -> None:
    assert read_object(b"\xef\xbb\xbf" + b'{"a": 1}', ROOM) == {"a": 1}
    with pytest.raises(InvalidRequest, match="UTF-8"):
        read_object('{"a": 1}'.encode("utf-16"), ROOM)


@pytest.mark.parametrize("recording", ["A" * (16 << 20), "+/" * (8 << 20)])
def test_a_recording_is_never_parsed(recording: str) -> None:
    """Parsing it would keep everybody waiting; some encoders escape its slashes."""
    text = json.dumps({"ref_audio": recording, "input": "Hello."}).replace("/", "\\/")
    scan = scanned(text)
    assert len(scan.short) < 100
    assert scan.put_back(json.loads(scan.short)) == {"ref_audio": recording, "input": "Hello."}


# Limits

FEW = JsonLimits(
    text_chars=10,
    names=frozenset({"a", "input", "items", "ref_audio"}),
    recordings=frozenset({"ref_audio"}),
    entries=3,
    depth=4,
    values=20,
)
REFUSED = {
    "unknown": ('{"b": 1}', "b", "unknown field 'b'"),
    "unknown and escaped": ('{"\\u0062": 1}', "b", "unknown field 'b'"),
    "many unknown": ('{"b": 1' + ', "c": 1' * 100_000 + "}", "b", "unknown field 'b'"),
    "name": ('{"' + "a" * 1000 + '": 1}', None, "64 characters"),
    "nested name": ('{"a": {"' + "a" * 1000 + '": 1}}', "a", "64 characters"),
    "entries": ('{"items": [1, 1, 1, 1]}', "items", "more than 3 entries"),
    "nested entries": ('{"a": {"b": [1, 1, 1, 1]}}', "a", "more than 3 entries"),
    "values": ('{"a": {"b": 1' + ', "c": 1' * 20 + "}}", "a", "more than 20 values"),
    "depth": ('{"a": ' + "[" * 4 + "]" * 4 + "}", "a", "4 levels"),
    "very deep": ('{"a": ' + "[" * 100_000, "a", "4 levels"),
    "deep alone": ("[" * 100_000, None, "4 levels"),
    "text": ('{"input": "' + PADDING * 2 + '"}', "input", "more than 10 characters"),
    "nested text": ('{"items": [{"input": "' + PADDING * 2 + '"}]}', "items", "more than 10 characters"),
    "no recording": ('{"items": ["ref_audio", "' + PADDING * 2 + '"]}', "items", "more than 10 characters"),
}


@pytest.mark.parametrize(("text", "param", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_too_much_is_refused_by_name(text: str, param: str | None, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as raised:
        read_object(text, FEW)
    assert raised.value.param == param
    assert len(raised.value.message) < 200


@pytest.mark.parametrize(
    "text",
    [
        '{"input": ' + " " * (2 * LONG) + '"a"}',
        '{"a": ' + "1" * (2 * LONG) + "}",
        '{"a": "' + PADDING + '", "input": "' + PADDING + '"}',
        " " * (2 * LONG),
    ],
)
def test_a_body_is_small_beside_its_recordings(text: str) -> None:
    with pytest.raises(InputTooLong, match="beside recordings"):
        read_object(text, FEW)


def test_what_is_within_the_limits_passes() -> None:
    body = {
        "a": {"b": [[1, 2], {"c": 'a "quoted" \\ word'}]},
        "ref_audio": "A" * 1_000_000,
        "input": "é" * 10,
        "items": [{"ref_audio": PADDING}],
    }
    assert read_object(json.dumps(body), FEW) == body


@pytest.mark.parametrize("unit", ["{", "[", '"', '\\"', '{"a":', ",", ":", "[]", "]", '"a"', "1,", " ", "\\"])
def test_no_body_makes_the_walk_go_on_for_as_long_as_it_is(unit: str) -> None:
    """It ends at a limit, or at the first thing that is no string; what is skipped is skipped in one search."""
    marks = []

    class Counted(JsonScan):
        def _next_mark(self, place: int) -> int:
            marks.append(place)
            return super()._next_mark(place)

    for text in (unit * 1_000_000, '{"a": ' + unit * 1_000_000, '{"a": "' + unit * 1_000_000):
        marks.clear()
        scan = Counted(text.encode(), ROOM)
        with contextlib.suppress(ValueError):  # InvalidRequest is one
            scan.run()
        assert len(marks) <= 8 * ROOM.values + 1
