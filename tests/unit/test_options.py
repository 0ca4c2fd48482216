"""One table of options: what a model does not honour is refused by name, what is out of range by value."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from oscine.errors import InvalidRequest, UnsupportedFeature
from oscine.options import COMMON_OPTIONS, RequestOptions, check_request, supported_options
from oscine.types import AudioInput, Capabilities, Request

CAPABILITIES = Capabilities(
    family="toy",
    model="toy",
    tasks=("speech",),
    languages=("en",),
    sample_rate=24000,
    frame_rate=25.0,
    voice_cloning=False,
    streaming=True,
    licence="none",
    options=supported_options({"seed": None, "temperature": 0.7, "normalize": True}, temperature=2.0),
)


def test_the_table_the_typed_dict_and_the_request_agree() -> None:
    assert set(COMMON_OPTIONS) == set(RequestOptions.__annotations__)
    assert set(COMMON_OPTIONS) <= {field.name for field in fields(Request)}


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", 2.5), ("temperature", -0.1), ("temperature", float("nan")), ("seed", -1), ("seed", 1.5)],
)
def test_a_value_out_of_range_or_of_another_type_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=name) as caught:
        check_request(Request(text="x", **{name: value}), CAPABILITIES)
    assert caught.value.param == name
    assert str(value) in caught.value.message


def test_an_option_of_another_family_is_refused_not_ignored() -> None:
    with pytest.raises(UnsupportedFeature, match="cfg_scale") as caught:
        check_request(Request(text="x", cfg_scale=2.0), CAPABILITIES)
    assert caught.value.param == "cfg_scale"


def test_a_bool_is_not_a_number_and_a_whole_number_is_a_float() -> None:
    with pytest.raises(InvalidRequest):
        check_request(Request(text="x", seed=True), CAPABILITIES)
    check_request(Request(text="x", temperature=1, seed=3, normalize=False), CAPABILITIES)


def test_cloning_and_tasks_follow_the_capabilities() -> None:
    import numpy as np

    audio = AudioInput(samples=np.zeros(10, np.float32), sample_rate=24000)
    with pytest.raises(UnsupportedFeature, match="clone"):
        check_request(Request(text="x", ref_audio=audio), CAPABILITIES)
    with pytest.raises(UnsupportedFeature, match="'sound'"):
        check_request(Request(task="sound", text="x"), CAPABILITIES)
