"""Cleaning of text and token ids of prompts: `prompts.json`, with the tokenizer of the folder it was made with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from oscine.families.audio8.config import Audio8Config
from oscine.families.audio8.prompt import (
    PromptBuilder,
    clean_script,
    clean_text,
    frame_columns,
    normalize_text,
    prefix_columns,
    suffix_columns,
)
from tests.golden.audio8_files import find

KINDS = {"normalize", "clean_script", "text_only", "clone", "errors"}


def prompts(golden_root: Path) -> list[tuple[Path, dict[str, list[dict[str, Any]]]]]:
    paths = sorted((golden_root / "audio8").glob("prompts*.json"))
    if not paths:
        pytest.skip(f"no audio8/prompts*.json in {golden_root}")
    found = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in paths]
    for path, data in found:
        assert set(data) <= KINDS, f"{path.name} holds kinds this test does not know: {set(data) - KINDS}"
    return found


def builder_for(path: Path) -> PromptBuilder:
    """With the tokenizer of `ckpt_dense_<the file's own suffix>`, else of the first dense folder."""
    own = path.parent / f"ckpt_dense_{path.stem.removeprefix('prompts').strip('_')}"
    folders = [own] if own.is_dir() else sorted(path.parent.glob("ckpt_dense_*"))
    if not folders:
        pytest.skip(f"{path.name} needs the tokenizer of a ckpt_dense_* folder")
    return PromptBuilder.from_folder(folders[0], Audio8Config.from_folder(folders[0]).lm)


def test_normalisation(golden_root: Path, subtests: pytest.Subtests) -> None:
    for path, data in prompts(golden_root):
        for case in data.get("normalize", []):
            with subtests.test(f"{path.stem}:{case['text']!r}"):
                assert normalize_text(case["text"]) == case["plain"]
                assert normalize_text(case["text"], add_default_speaker=True) == case["with_default_speaker"]
        for case in data.get("clean_script", []):
            with subtests.test(f"{path.stem}:clean {case['text']!r}"):
                assert clean_script(case["text"]) == case["cleaned"]


def test_errors(golden_root: Path, subtests: pytest.Subtests) -> None:
    for path, data in prompts(golden_root):
        for case in data.get("errors", []):
            with subtests.test(f"{path.stem}:{case['text']!r}"):
                assert case["error"] == "ValueError"
                with pytest.raises(ValueError, match="text"):
                    normalize_text(case["text"])


def test_text_only_prompts(golden_root: Path, subtests: pytest.Subtests) -> None:
    for path, data in prompts(golden_root):
        builder = builder_for(path)
        for case in data.get("text_only", []):
            with subtests.test(f"{path.stem}:{case['text']!r}"):
                prompt = builder.text_only(normalize_text(case["text"]))
                assert [*prompt.before, *prompt.after] == case["ids"]
                assert prompt.num_columns() == len(case["ids"])


def test_reference_prompts(golden_root: Path, subtests: pytest.Subtests) -> None:
    for path, data in prompts(golden_root):
        builder = builder_for(path)
        for case in data.get("clone", []):
            with subtests.test(f"{path.stem}:{case['text']!r}"):
                assert normalize_text(case["text"]) == case["normalized"]
                assert normalize_text(case["ref_text"], add_default_speaker=True) == case["normalized_ref"]
                prompt = builder.reference(normalize_text(case["text"]), case["ref_text"])
                assert list(prompt.before) == case["prefix"]
                assert list(prompt.after) == case["suffix"]
                frames = next(int(k.split("_")[2]) for k in case if k.startswith("length_with_"))
                assert prompt.num_columns(frames) == case[f"length_with_{frames}_frames"]


def test_whole_prompts_of_the_end_to_end_cases(golden_root: Path, subtests: pytest.Subtests) -> None:
    for file in find(golden_root, "e2e_*.safetensors"):
        folder = file.path.with_name(file.name.replace("e2e_", "ckpt_"))
        config = Audio8Config.from_folder(folder).lm
        builder = PromptBuilder.from_folder(folder, config)
        for case in file.meta["cases"]:
            with subtests.test(f"{file.name}:{case['name']}"):
                assert case["kind"] in ("text", "clone")
                text, ref = normalize_text(case["text"]), case["ref_text"]
                prompt = builder.text_only(text) if ref is None else builder.reference(text, ref)
                codes = None if ref is None else file["out.ref_codes"]
                columns = torch.cat([prefix_columns(prompt, codes, config), suffix_columns(prompt, config)], 1)
                assert torch.equal(columns, file[f"out.{case['name']}.prompt_ids"])
                if codes is not None:
                    assert torch.equal(frame_columns(codes, config)[1:], codes)


def test_clean_text_is_what_normalisation_does_without_tags(golden_root: Path) -> None:
    for _, data in prompts(golden_root):
        for case in data.get("clean_script", []):
            if case["text"].strip() and "<" not in case["text"]:
                assert clean_text(case["text"]) == normalize_text(case["text"])
