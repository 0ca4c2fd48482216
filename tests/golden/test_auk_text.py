"""The conditioner against the reference's numbers: mel, audio tower, thinker, layer fusion, resampling."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from oscine.audio.resample import resample
from oscine.families.auk.audio_tower import audio_tokens
from oscine.families.auk.mel import log_mel, mel_filters
from oscine.families.auk.thinker import Thinker
from oscine.families.auk.weights import Fusion
from tests.golden.auk_fixtures import Golden, check, check_all, golden

INPUT_KINDS = ("input_ids", "attention_mask", "input_features", "feature_attention_mask")


@pytest.fixture(scope="module")
def fixture(golden_root: Path) -> Golden:
    return golden(golden_root)


def encode(thinker: Thinker, fusion: Fusion, c: dict[str, Tensor]) -> dict[str, Tensor]:
    """Outputs of one group of cases from its inputs."""
    out: dict[str, Tensor] = {}
    embeds = None
    if "input_features" in c:
        mel = c["input_features"][0][:, c["feature_attention_mask"][0].bool()]
        out["audio_embeds"] = embeds = thinker.audio_tower(mel)
        assert len(embeds) == audio_tokens(mel.shape[1])
    mask = c.get("attention_mask")
    states = list(thinker.hidden_states(c["input_ids"], audio_embeds=embeds, attention_mask=mask))
    out["hidden_states"] = torch.stack(states)
    out["fused"] = thinker.fused(
        c["input_ids"], fusion.layer_weights, fusion.layer_scale, audio_embeds=embeds, attention_mask=mask
    )
    return out


def test_every_prompt_agrees(fixture: Golden) -> None:
    cases = fixture.cases("cases_text.safetensors")
    thinker, fusion = fixture.thinker(), fixture.dit()[1]
    for group in sorted({name.split(".")[0] for name in cases}):
        own = {name.removeprefix(f"{group}."): value for name, value in cases.items() if name.startswith(f"{group}.")}
        check_all(encode(thinker, fusion, own), own, set(INPUT_KINDS), fixture.single)


def test_resampling_agrees(fixture: Golden) -> None:
    cases = fixture.cases("cases_audio.safetensors")
    done = set()
    for name, value in cases.items():
        if match := re.fullmatch(r"resample\.(\d+)\.out_(\d+)", name):
            source = f"resample.{match[1]}.in"
            out = resample(cases[source][0].numpy(), int(match[1]), int(match[2]))
            check(name, torch.from_numpy(np.asarray(out))[None], value, fixture.single)
            done |= {source, name}
    unknown = sorted(set(cases) - done - {"mel.filters", "mel.features", "mel.wav_16k"})
    assert not unknown, f"no test for {unknown}"


@pytest.mark.parametrize("name", ["mel.filters", "mel.features"])
def test_mel_agrees(fixture: Golden, name: str) -> None:
    cases = fixture.cases("cases_audio.safetensors")
    if name not in cases:
        pytest.skip(f"no {name} in {fixture.root}")
    bins = cases[name].shape[1]
    actual = mel_filters(bins) if name == "mel.filters" else log_mel(cases["mel.wav_16k"][0], bins)[None]
    check(name, actual, cases[name], fixture.single)
