"""Strict reading of JSON into records: every complaint names file, key, value and what is allowed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import pytest

from oscine.checkpoint.config import (
    bounded,
    check_unknown_keys,
    field_names,
    lift_rope,
    parse_record,
    positive_integer,
    read_json,
    require,
    section,
)
from oscine.errors import ConfigMismatch, MissingFile


@dataclass(frozen=True, kw_only=True)
class Sample:
    width: int = bounded(least=1)
    ratio: float = bounded(0.5, above=0, most=1)
    kind: str = bounded("plain", choices=("plain", "fancy"))
    sizes: tuple[int, ...] = bounded((1, 2), least=1)
    on: bool = False
    note: str | None = None


def test_a_good_record() -> None:
    record = parse_record(Sample, {"width": 3, "ratio": 1, "sizes": [4, 5], "note": None, "other": 1}, source="f")
    assert record == Sample(width=3, ratio=1.0, sizes=(4, 5))
    assert isinstance(record.ratio, float)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "f: key 'width' is missing"),
        ({"width": "3"}, "f: width must be an integer, got '3'"),
        ({"width": True}, "f: width must be an integer, got True"),
        ({"width": 2.0}, "f: width must be an integer, got 2.0"),
        ({"width": None}, "f: width must be an integer, got None"),
        ({"width": 0}, "f: width must be >= 1, got 0"),
        ({"width": 1, "ratio": 0}, "f: ratio must be <= 1 and > 0, got 0"),
        ({"width": 1, "ratio": float("inf")}, "f: ratio must be a finite number, got inf"),
        ({"width": 1, "kind": "odd"}, "f: kind must be one of 'plain', 'fancy', got 'odd'"),
        ({"width": 1, "sizes": 3}, "f: sizes must be a list, each entry an integer, got 3"),
        ({"width": 1, "sizes": [1, "2"]}, "f: sizes must be a list, each entry an integer"),
        ({"width": 1, "sizes": [1, 0]}, "f: sizes must be >= 1"),
        ({"width": 1, "on": 1}, "f: on must be true or false, got 1"),
        ({"width": 1, "note": 5}, "f: note must be a string or null, got 5"),
    ],
)
def test_what_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigMismatch) as caught:
        parse_record(Sample, values, source="f")
    assert caught.value.message.startswith(message)


def test_unknown_keys_are_listed_once(caplog: pytest.LogCaptureFixture) -> None:
    values = {"width": 1, "colour": 2, "planned": 3, "zoom": 4}
    with caplog.at_level(logging.WARNING):
        check_unknown_keys(values, field_names(Sample), {"planned"}, source="f")
    assert [record.getMessage() for record in caplog.records] == ["f: ignoring unknown keys colour, zoom"]


def test_a_misspelling_of_an_absent_key_is_refused() -> None:
    with pytest.raises(ConfigMismatch, match="unknown key 'widths': did you mean 'width'"):
        check_unknown_keys({"widths": 1}, field_names(Sample), set(), source="f")


def test_a_key_that_looks_like_a_present_one_is_only_unknown() -> None:
    check_unknown_keys({"width": 1, "widths": 1}, field_names(Sample), set(), source="f")


def test_reading_files(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(MissingFile, match=r"config\.json"):
        read_json(path)
    for text in ("{", "[1]", '{"a": NaN}', '{"a": Infinity}'):
        path.write_text(text)
        with pytest.raises(ConfigMismatch, match=r"config\.json"):
            read_json(path)
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ConfigMismatch, match="cannot be read"):
        read_json(path)
    path.write_text('{"a": 1}')
    assert read_json(path) == {"a": 1}


def test_require_states_the_first_broken_rule() -> None:
    require([(False, "fine")], source="f")
    with pytest.raises(ConfigMismatch, match="f: second"):
        require([(False, "first"), (True, "second"), (True, "third")], source="f")


def test_sections_and_integers() -> None:
    values = {"part": {"count": 3, "none": 0, "flag": True}, "word": "x"}
    part = section(values, "part", source="f")
    assert positive_integer(part, "count", source="f") == 3
    for key in ("none", "flag", "absent"):
        with pytest.raises(ConfigMismatch, match=f"f: {key} must be a positive integer"):
            positive_integer(part, key, source="f")
    for key in ("word", "absent"):
        with pytest.raises(ConfigMismatch, match=f"f: {key} must be an object"):
            section(values, key, source="f")


def test_rotary_settings_of_either_age() -> None:
    """The top of the file wins; the place may be absent, null, or called otherwise, but nothing else than an object."""
    for place in ("rope_parameters", "rope_scaling"):
        values = {place: {"rope_theta": 5.0, "factor": 0.5}}
        assert lift_rope(values, "rope_theta", source="f") == {"rope_theta": 5.0, **values}
        assert lift_rope({**values, "rope_theta": 7.0}, "rope_theta", source="f")["rope_theta"] == 7.0
        assert "rope_theta" not in lift_rope({place: None}, "rope_theta", source="f")
        with pytest.raises(ConfigMismatch, match=f"f: {place} must be an object"):
            lift_rope({place: [1]}, "rope_theta", source="f")
    assert lift_rope({}, "rope_theta", source="f") == {}
