"""The benchmark runs on the miniature checkpoint and reports every number it promises."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from oscine import bench
from oscine.errors import InvalidRequest
from oscine.families.audex import bench as audex
from tests.unit.audex_models import CPU, tiny_folder

HEADS = ("whole_head", "speech_head")


def report_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert bench.main([*arguments, "--repeats", "1", "--device", "cpu"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return report


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_bench_of_the_miniature(golden_root: Path, capsys: pytest.CaptureFixture[str], dtype: str) -> None:
    size = ["--batch", "1,3", "--frames", "7", "--dtype", dtype]
    report = report_of(capsys, str(tiny_folder(golden_root)), *size)
    assert (report["batches"], report["frames"], report["dtype"]) == ([1, 3], 7, dtype)
    assert set(report["mask_apply_s"]) == {str(rows) for rows in audex.MASK_ROWS}
    assert min(report["mask_apply_s"].values()) > 0
    for head in HEADS:
        for batch in (1, 3):
            measured = report[head][str(batch)]
            assert 0 < measured["step_s"]["min"] <= measured["step_s"]["p99"]
            assert measured["tokens_per_s"] == pytest.approx(batch / measured["step_s"]["p50"])
            share = report[head]["bytes_per_step"] / measured["step_s"]["p50"] / report["memory_bandwidth"]
            assert measured["bandwidth_share"] == pytest.approx(share)
    assert report["speech_head"]["bytes_per_step"] < report["whole_head"]["bytes_per_step"]
    assert set(report["speech_rtf"]) == {"1", "3"}
    assert report["xcodec_rtf"] > 0
    assert report["speech_first_audio_frames"] == 5


def test_bytes_of_int8_are_a_quarter(golden_root: Path) -> None:
    folder, size = tiny_folder(golden_root), {"batches": (1,), "frames": 2, "repeats": 1, "parts": ("lm",)}
    narrow, wide = (
        audex.from_folder(folder, device=CPU, dtype=dtype, **size).run()["whole_head"]["bytes_per_step"]
        for dtype in (torch.int8, torch.float32)
    )
    # The scales weigh much beside rows of 32 values: 4 bytes to 32, against 128.
    assert 0.25 < narrow / wide < 0.3


@pytest.mark.parametrize("parts", [("lm",), ("decoder", "xcodec"), ("mask",)])
def test_parts_of_random_weights(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], parts: tuple[str, ...]
) -> None:
    """Narrow models in the place of the release's, whose tokens stay."""
    narrow = replace(audex.CONFIGS["audex-2b"], hidden_size=16, intermediate_size=16, num_hidden_layers=1)
    monkeypatch.setitem(audex.CONFIGS, "audex-2b", replace(narrow, num_attention_heads=2, num_key_value_heads=1))
    decoder = replace(audex.SPEECH_DECODER, hidden_dim=32, vq_dim=32, heads=2, pos_meb_dim=16, depth=1)
    monkeypatch.setattr(audex, "SPEECH_DECODER", decoder)
    monkeypatch.setattr(audex, "XCODEC", replace(audex.XCODEC, decoder_hidden_size=32))
    monkeypatch.setattr(audex, "MASK_ROWS", (1, 2))
    arguments = ["--random-weights", "--parts", ",".join(parts), "--frames", "6", "--dtype", "int8"]
    report = report_of(capsys, "audex-2b", *arguments)
    found = {name for name in ("whole_head", "speech_rtf", "xcodec_rtf", "mask_apply_s") if name in report}
    wanted = {"lm": "whole_head", "decoder": "speech_rtf", "xcodec": "xcodec_rtf", "mask": "mask_apply_s"}
    assert found == {wanted[part] for part in parts}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-model", "--random-weights"], "audex-2b"),
        (["audio8-0.6b", "--random-weights", "--batch", "1,4"], "several numbers is for audex, not for audio8"),
        (["auk", "--random-weights", "--parts", "lm"], "conditioner, dit, vae; got 'lm'"),
        (["auk", "--random-weights", "--parts", "dit,dit"], "names a part twice"),
        (["audio8-0.6b", "--random-weights", "--parts", "lm"], "--parts is not for audio8"),
        (["auk", "--random-weights", "--dtype", "int8"], "auk has no int8 weights"),
        (["audex-2b", "--random-weights", "--batch", "0,4"], "--batch must be at least 1"),
    ],
)
def test_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        bench.main(arguments)


def test_an_unknown_part(golden_root: Path) -> None:
    with pytest.raises(InvalidRequest, match="lm, decoder, xcodec, mask; got 'head'"):
        bench.main([str(tiny_folder(golden_root)), "--parts", "lm,head"])
