"""Text, and reference audio where there is one, to prompt, codes and waveform: the whole path of the public API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

import oscine
from oscine.audio.resample import resample
from oscine.families.audio8.prompt import prefix_columns, suffix_columns
from oscine.stream import SpeechStream, collect
from oscine.types import AudioInput, Request, Voice

KINDS = ("text", "clone")


def files(root: Path) -> list[Path]:
    found = sorted((root / "audio8").glob("e2e_*.safetensors"))
    if not found:
        pytest.skip(f"no e2e_*.safetensors in {root / 'audio8'}")
    return found


def read(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    with safe_open(path, "np") as file:
        return file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def options(case: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {"max_new_tokens": case["max_new_tokens"], "min_new_frames": 0, "normalize": False}
    if not case["do_sample"]:
        return given | {"temperature": 0.0}
    return given | {name: case[name] for name in ("seed", "temperature", "top_p", "top_k")}


def test_audio8_e2e_cases(golden_root: Path, tmp_path: Path) -> None:
    for path in files(golden_root):
        metadata, tensors = read(path)
        folder = path.with_name(path.stem.replace("e2e_", "ckpt_"))
        if not folder.is_dir():
            pytest.skip(f"{folder} is absent")
        reference = json.loads(metadata["reference"])
        with oscine.load(folder, device="cpu", voices_dir=tmp_path) as model:
            for case in json.loads(metadata["cases"]):
                assert case["kind"] in KINDS, f"{path.name}: unknown kind {case['kind']!r}"
                check(model, case, tensors, reference["sample_rate"], f"{path.name} {case['name']}")


def check(model: oscine.Model, case: dict[str, Any], tensors: dict[str, np.ndarray], rate: int, where: str) -> None:
    request = options(case)
    if case["kind"] == "clone":
        # Below the shortest reference the API reads, so it enters one step later, as a request.
        reference = AudioInput(samples=one(tensors, "in.ref_audio"), sample_rate=rate)
        request |= {"ref_audio": reference, "ref_text": case["ref_text"]}
    plan = model._family.prepare(Request(text=case["text"], **request), case["name"])
    stream = SpeechStream(model._family, model._engine, plan)
    audio = collect(stream)
    (job,) = stream.plan.jobs
    name = f"out.{case['name']}"
    if case["kind"] == "clone":
        codes = torch.from_numpy(tensors["out.ref_codes"]).long()
        assert torch.equal(model._family.step_model().encode_reference(job.inputs.reference), codes), where
    else:
        codes = None
    lm = model._family._config.lm
    columns = torch.cat([prefix_columns(job.inputs.prompt, codes, lm), suffix_columns(job.inputs.prompt, lm)], dim=1)
    np.testing.assert_array_equal(columns.numpy(), tensors[f"{name}.prompt_ids"], err_msg=f"{where} prompt")
    frames = torch.stack(list(job.frames), dim=1).numpy()
    np.testing.assert_array_equal(frames, tensors[f"{name}.codes"], err_msg=f"{where} codes")
    assert frames.shape[1] == case["frames"], where
    assert stream.finish_reason == ("stop" if case["finished"] else "length"), where
    np.testing.assert_allclose(audio, tensors[f"{name}.audio"], atol=5e-5, rtol=1e-4, err_msg=f"{where} audio")


def test_audio8_e2e_reference_audio(golden_root: Path, tmp_path: Path) -> None:
    for path in files(golden_root):
        metadata, tensors = read(path)
        folder = path.with_name(path.stem.replace("e2e_", "ckpt_"))
        if not folder.is_dir():
            pytest.skip(f"{folder} is absent")
        rate = json.loads(metadata["reference"])["sample_rate"]
        audio = AudioInput(samples=one(tensors, "in.ref_audio"), sample_rate=rate)
        with oscine.load(folder, device="cpu", voices_dir=tmp_path) as model:
            resampled = resample(audio.samples, rate, model.capabilities.sample_rate)
            np.testing.assert_allclose(resampled, one(tensors, "out.ref_audio"), atol=2e-5, err_msg=path.name)
            voice: Voice = model._family.encode_voice("reference", audio, "The quick brown fox.")
        np.testing.assert_array_equal(voice.tensors["codes"], tensors["out.ref_codes"], err_msg=path.name)


def one(tensors: dict[str, np.ndarray], prefix: str) -> np.ndarray:
    """The tensor whose name begins with `prefix`; the rest of the name is its rate."""
    (name,) = (name for name in tensors if name.startswith(prefix))
    return tensors[name]
