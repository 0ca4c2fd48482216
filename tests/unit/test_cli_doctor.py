"""`oscine doctor` and `oscine inspect`: what they report, and the numbers behind it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from oscine.cli.doctor import IN_TURN, RESIDENT, cpu_features, plan_of
from oscine.cli.main import main
from oscine.cli.units import human_bytes, human_count
from oscine.families.audio8.spec import CODEC_FOLDED_PARAMETERS, CODEC_PARAMETERS
from oscine.registry import Release, families


def releases(family: str) -> tuple[Release, ...]:
    return next(spec.releases for spec in families() if spec.name == family)


@pytest.fixture(autouse=True)
def _no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


def test_doctor(capsys: Any) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [model["name"] for model in report["models"]] == [
        release.name for spec in families() for release in spec.releases
    ]
    for model in report["models"]:
        assert model["licence"]
        assert model["cached"] is None
        assert model["needed_bytes"]["float32"] > model["needed_bytes"]["bfloat16"] > 2e9
        free = report["machine"]["free_bytes"]
        assert model["fits"]["float32"] is (None if free is None else model["needed_bytes"]["float32"] <= free)
    assert report["exactness"]["max_rows"] >= report["exactness"]["min_rows"]
    assert {name: entry["backends"]["eager"] for name, entry in report["families"].items()} == {
        "audex": True, "audio8": True, "auk": True,
    }  # fmt: skip
    assert report["families"]["audio8"]["model_types"] == ["arktts"]
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "family      auk: eager, compiled" in text
    assert "Community License" in text
    assert "exactness" in text


def test_the_counts_are_those_of_the_released_files(golden_root: Path) -> None:
    path = golden_root / "audio8" / "real_checkpoint_shapes.json"
    if not path.exists():
        pytest.skip(f"absent: {path.name}")
    files = json.loads(path.read_text())
    by_size = {name.split()[0]: entry for name, entry in files.items()}
    assert by_size["codec.pth"]["parameters"] == CODEC_PARAMETERS
    shapes = dict(by_size["codec.pth"]["shapes"])
    ends = (".original0", ".original1", ".weight_g", ".weight_v")
    folded = sum(math.prod(shape) for name, shape in shapes.items() if name.endswith(ends))
    assert folded == CODEC_FOLDED_PARAMETERS
    for release in releases("audio8"):
        assert by_size[f"audio8-{release.name.split()[-1].lower()}"]["parameters"] == release.lm_parameters
        assert release.memory(4) - release.memory(2) == 2 * release.lm_parameters


def test_auk_needs_its_encoder_and_says_under_what_licence(capsys: Any) -> None:
    """AuK-Flash in bfloat16 is meant for a machine of 16 GB; where it does not fit whole, parts take turns."""
    for release in releases("auk"):
        whole, in_turn = release.memory(2), release.memory(2, in_turn=True)
        assert 11.1e9 < whole < 16e9
        assert whole - in_turn == 2 * (release.lm_parameters - 3_723_615_232)
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "Qwen research licence, non-commercial" in text
    assert "parts in turn" in text
    assert f"plan: {RESIDENT}" in text or f"plan: {IN_TURN}" in text


def test_audex_says_what_int8_needs_and_its_licence(capsys: Any) -> None:
    assert main(["doctor", "--json"]) == 0
    models = {model["name"]: model for model in json.loads(capsys.readouterr().out)["models"]}
    small, large = (models[release.name] for release in releases("audex"))
    assert small["needed_bytes"]["int8"] < small["needed_bytes"]["float32"]
    assert set(large["needed_bytes"]) == {"float32", "bfloat16"}
    assert 60e9 < large["needed_bytes"]["bfloat16"] < 80e9
    assert main(["doctor"]) == 0
    assert "NVIDIA OneWay Noncommercial License" in capsys.readouterr().out


def test_the_plan_is_what_loading_would_do() -> None:
    auk, audio8 = releases("auk")[0], releases("audio8")[0]
    assert plan_of(auk, 30 << 30) == {"float32": RESIDENT, "bfloat16": RESIDENT}
    assert plan_of(auk, 16 << 30) == {"float32": IN_TURN, "bfloat16": RESIDENT}
    assert plan_of(auk, 10 << 30) == {"float32": IN_TURN, "bfloat16": IN_TURN}
    assert plan_of(auk, None) == plan_of(audio8, 1 << 40) == {}


def test_cpu_features(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    assert cpu_features(info) == []
    info.write_text("processor: 0\nflags\t: fpu amx_bf16 avx2 avx2x\n")
    assert cpu_features(info) == ["avx2", "amx_bf16"]
    info.write_text("processor: 0\n")
    assert cpu_features(info) == []


def test_inspect(golden_root: Path, tmp_path: Path, capsys: Any) -> None:
    folder = golden_root / "audio8" / "ckpt_dense_a"
    if not folder.exists():
        pytest.skip(f"absent: {folder.name}")
    assert main(["inspect", str(folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["model_type"], report["supported"]) == ("arktts", True)
    assert report["parameters"] == sum(sum((file["parameters"] or {}).values()) for file in report["weights"])
    (tmp_path / "config.json").write_text('{"model_type": "other"}')
    (tmp_path / "code.py").write_text("raise SystemExit")
    assert main(["inspect", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "other (not supported" in text
    assert "never run" in text


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("/absent", 2, "no model"),
        ("org/absent", 1, "downloading is off"),
        (str(Path(__file__).parent), 1, "config.json"),
    ],
)
def test_inspect_refuses(source: str, code: int, message: str, capsys: Any) -> None:
    assert main(["inspect", source]) == code
    assert message in capsys.readouterr().err


def test_numbers_for_people() -> None:
    assert [human_bytes(n) for n in (5, 1999, 1_350_000_000, 20_000_000_000)] == [
        "5 B",
        "2.00 kB",
        "1.35 GB",
        "20.0 GB",
    ]
    assert [human_count(n) for n in (5, 337_428_866)] == ["5", "337.4 M"]
