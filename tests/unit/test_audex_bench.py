"""The benchmark runs on the miniature checkpoint and reports every number it promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oscine import bench
from oscine.bench.audex import MASK_ROWS
from oscine.errors import InvalidRequest
from tests.unit.audex_models import tiny_folder


def test_bench_of_the_miniature(golden_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--batch", "2", "--frames", "7", "--repeats", "1", "--device", "cpu"]
    assert bench.main([str(tiny_folder(golden_root)), *size]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["batch"], report["frames"]) == (2, 7)
    assert set(report["mask_apply_s"]) == {str(rows) for rows in MASK_ROWS}
    for name in ("tokens_per_s", "lm_bytes_per_step", "bandwidth_share", "speech_streamed_rtf", "xcodec_rtf"):
        assert report[name] > 0, name
    for name in ("lm_step_s", "lm_step_speech_only_s"):
        assert 0 < report[name]["min"] <= report[name]["p99"]


def test_unknown_release() -> None:
    with pytest.raises(InvalidRequest, match="audex-2b"):
        bench.main(["no-such-model", "--random-weights"])
