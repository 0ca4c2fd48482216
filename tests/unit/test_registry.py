"""Families are found by what they declare, lightly; one that is broken harms no other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import oscine
from oscine import families as loaders
from oscine.checkpoint.hub import bundled_folder
from oscine.errors import ConfigMismatch
from oscine.registry import GROUP, FamilySpec, families, family_of
from tests.unit.audex_models import tiny_folder


@pytest.fixture(autouse=True)
def _looked_up_again() -> Iterator[None]:
    families.cache_clear()
    yield
    families.cache_clear()


def test_listing_families_loads_no_model_code() -> None:
    code = (
        "import sys; from oscine.registry import families; print([spec.name for spec in families()]);"
        "print([m for m in ('torch', 'numpy', 'tokenizers', 'yaml') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["['audex', 'audio8', 'auk']", "[]"]


def test_every_family_has_the_modules_that_its_spec_promises() -> None:
    for spec in families():
        assert callable(spec.module("family").load)
        assert spec.bench is not None
        assert callable(spec.module("bench").from_random)
        assert all(family_of(name) is spec for name in spec.model_types)


TAKES_A_TYPE = (
    "from oscine.registry import FamilySpec\nFAMILY = FamilySpec(name='x', package='x', model_types=('auk',))"
)
TAKES_A_NAME = (
    "from oscine.registry import FamilySpec\nFAMILY = FamilySpec(name='auk', package='x', model_types=('x',))"
)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("FAMILY = 3", "it is a int"),
        (TAKES_A_TYPE, "taken by auk"),
        (TAKES_A_NAME, "taken by auk"),
    ],
)
def test_a_family_that_cannot_be_used_is_left_out_and_named(
    body: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "oddly.py").write_text(body)
    (tmp_path / "oddly-1.0.dist-info").mkdir()
    (tmp_path / "oddly-1.0.dist-info" / "METADATA").write_text("Name: oddly\nVersion: 1.0\n")
    (tmp_path / "oddly-1.0.dist-info" / "entry_points.txt").write_text(f"[{GROUP}]\nodd = oddly:FAMILY\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "oddly", raising=False)
    with caplog.at_level("WARNING"):
        assert [spec.name for spec in families()] == ["audex", "audio8", "auk"]
    assert "odd (oddly:FAMILY)" in caplog.text
    assert words in caplog.text


def test_an_unknown_model_type_is_refused_with_what_there_is() -> None:
    with pytest.raises(ConfigMismatch, match="'gpt2' is not supported; supported are arktts, auk"):
        family_of("gpt2")


def test_a_small_model_has_one_thread_and_a_large_one_gets_the_others_back(golden_root: Path) -> None:
    """`oscine.load()` left the bundled voice with all threads, which is slower; only the command line gave it one."""
    large, before = tiny_folder(golden_root), torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        for source, threads, expected in ((None, None, 1), (large, None, 3), (None, None, 1), (None, 2, 2)):
            with oscine.load(source, device="cpu", offline=True, threads=threads):
                assert torch.get_num_threads() == expected
        torch.set_num_threads(3)
        with oscine.load(large, device="cpu"):
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert loaders.suited_threads([bundled_folder()]) == loaders.suited_threads([bundled_folder()] * 2) == 1
    assert loaders.suited_threads([bundled_folder(), large]) is None


def test_what_a_spec_leaves_out() -> None:
    spec = FamilySpec(name="n", package="p", model_types=())
    assert spec.threads(Path()) is None
    assert spec.dtypes == ("float32", "bfloat16", "float16")


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("audio8.sampling", ["filter_top_k_top_p", "gumbel_argmax_sample", "ras_sample_batch", "ras_sample_semantic",
                             "sample_scores", "SAMPLING_EPS"]),
        ("audex.tta", ["build_tta_phase_token_ids", "validate_rvq_phase", "TTARVQPhaseMaskLogitsProcessor", "NEG_INF",
                       "XCODEC1_NUM_CODEBOOKS", "XCODEC1_CODEBOOK_SIZE", "AUDEX_AUDIOCODEC_TOKEN_OFFSET",
                       "AUDEX_AUDIOCODEC_VOCAB_SIZE", "AUDEX_AUDIOGEN_START_TOKEN_ID", "AUDEX_AUDIOGEN_END_TOKEN_ID",
                       "logger"]),
        ("auk.wire", ["decode_frame", "encode_frame"]),
        ("audex.guidance", ["CFGLogitsProcessor", "expand_cfg_prompts"]),
        ("auk", ["AuKPipeline", "AuKRequest", "AuKOutput", "AuKStepContext", "AuKTransformer", "AuKVAE", "plan_tiles",
                 "build_time_grid", "sample_latents", "dit_state_dict"]),
    ],
)  # fmt: skip
def test_documented_names_are_where_they_are_documented(place: str, names: list[str]) -> None:
    code = (
        f"import oscine.families.{place} as place; print(all(getattr(place, name) is not None for name in {names}));"
        f"from oscine.families.{place} import {names[0]}"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True\n"


def test_a_name_that_auk_does_not_document_is_an_attribute_error() -> None:
    from oscine.families import auk

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        auk.nothing  # noqa: B018
