"""The rules without tensors: prompts, durations, grids, window plans and counts."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from oscine.compat.auk_wire import decode_frame, encode_frame
from oscine.families.auk import build_time_grid, plan_tiles
from oscine.families.auk.codec.layers import encoder_frames
from oscine.families.auk.config import VAEConfig
from oscine.families.auk.duration import (
    gen_frames,
    instruct_seconds,
    nominal_seconds,
    quantized_frames,
    spoken_seconds,
    text_weight,
    transcript_seconds,
    zero_shot_seconds,
)
from oscine.families.auk.model.audio_tower import audio_tokens
from oscine.families.auk.model.mel import mel_frames
from oscine.families.auk.prompt import render_prompt
from tests.golden.auk_fixtures import golden
from tests.unit.auk_factory import RELEASED_VAE

EXACT = 1e-12


def close(value: float | None) -> Any:
    return value if value is None else pytest.approx(value, rel=EXACT, abs=EXACT)


def prompts(case: dict[str, Any]) -> None:
    assert render_prompt(case["instruction"], audio_tokens=int(case["has_audio"])) == case["prompt"]


def frames(case: dict[str, Any]) -> None:
    assert gen_frames(case["gen_seconds"], case["ref_frames"]) == case["frames"]


def frame_error(case: dict[str, Any]) -> None:
    assert case["error"] == "ValueError"
    with pytest.raises(ValueError, match="duration"):
        gen_frames(case["gen_seconds"], case["ref_frames"])


def grid(name: str, values: list[float]) -> None:
    steps, _, rest = name.removeprefix("nfe").partition("_")
    sway = None if rest in ("uniform", "none") else float(rest.removeprefix("sway")) if rest else -1.0
    assert build_time_grid(int(steps), sway).tolist() == values


def grid_error(case: list[str]) -> None:
    arguments = ast.literal_eval(case[0].replace("nan", "1e999"))
    assert case[1] == "ValueError"
    with pytest.raises(ValueError, match=r"grid|steps"):
        build_time_grid(**arguments)


def tiles(case: dict[str, Any]) -> None:
    plan = plan_tiles(case["frames"], case["tile"], case["left"], case["right"], case["sizes"])
    assert [list(window) for window in plan] == case["windows"]


def tile_error(case: dict[str, Any]) -> None:
    arguments = case["frames"], case["tile"], case.get("left", 53), case.get("right", 9), case.get("sizes", ())
    if case["error"] is None:
        assert plan_tiles(*arguments)
    else:
        with pytest.raises(ValueError, match="context"):
            plan_tiles(*arguments)


def tokens(case: dict[str, Any]) -> None:
    assert mel_frames(case["samples_16k"]) == case["mel_frames"]
    assert audio_tokens(case["mel_frames"]) == case["tokens"]


def encoded(case: dict[str, Any]) -> None:
    config = VAEConfig.from_dict(RELEASED_VAE)
    assert case["samples"] // config.hop_length == case["whole_frames"]
    assert encoder_frames(case["samples"], config) == case["encoder_frames"]


def cli(case: dict[str, Any]) -> None:
    seconds = transcript_seconds(
        case["ref_seconds"], case["ref_text"], case["gen_text"], gen_seconds=case["gen_seconds"], speed=case["speed"]
    )
    assert seconds == close(case["result"])


def pe_text(case: dict[str, Any]) -> None:
    text, language = case["text"], case["language"]
    assert text_weight(text, language) == close(case["weight"])
    assert instruct_seconds(text, language) == close(case["instruct_seconds"])
    assert spoken_seconds(text) == close(case["spoken_seconds"])


def pe_zero_shot(case: dict[str, Any]) -> None:
    seconds = zero_shot_seconds(case["reference_seconds"], case["target"], case["reference"])
    assert seconds == close(case["seconds"])


def pe_quantize(case: dict[str, Any]) -> None:
    count = quantized_frames(case["seconds"])
    assert count == case["frames"]
    assert nominal_seconds(count) == close(case["nominal"])
    assert gen_frames(nominal_seconds(count), 0) == count


def check_wire_frame(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["hex"])
    header, tensors = decode_frame(data)
    assert header == case["header"]
    assert encode_frame(header, tensors) == data
    for name, text in case["tensors"].items():
        kind, shape, values = re.fullmatch(r"(\w+) (\[[\d,]+\]) = (.*)", text).groups()  # type: ignore[union-attr]
        assert str(tensors[name].dtype) == f"torch.{kind}"
        assert list(tensors[name].shape) == ast.literal_eval(shape)
        assert tensors[name].tolist() == ast.literal_eval(values)


KINDS = {
    "prompts": prompts,
    "gen_frames": frames,
    "gen_frames_errors": frame_error,
    "time_grid_errors": grid_error,
    "tile_plans": tiles,
    "tile_plan_errors": tile_error,
    "audio_tokens": tokens,
    "vae_encoder_frames": encoded,
    "cli_duration": cli,
    "pe_text": pe_text,
    "pe_zero_shot": pe_zero_shot,
    "pe_quantize": pe_quantize,
}


def test_every_rule_agrees(golden_root: Path) -> None:
    misc = golden(golden_root).misc()
    for kind, cases in misc.items():
        if kind == "time_grids_float32":
            for name, values in cases.items():
                grid(name, values)
            continue
        if kind == "wire_frame":
            check_wire_frame(cases)
            continue
        handler = KINDS.get("tile_plans" if kind.startswith("tile_plans") else kind)
        assert handler is not None, f"no test for {kind}"
        assert cases, f"{kind} is empty"
        for case in cases:
            handler(case)
