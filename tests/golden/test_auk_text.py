"""The conditioner against the reference's numbers: mel, audio tower, thinker, layer fusion, resampling."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from oscine.audio.resample import resample
from oscine.families.auk.model.audio_tower import audio_tokens
from oscine.families.auk.model.mel import log_mel, mel_frames
from oscine.families.auk.model.thinker import Thinker
from oscine.families.auk.weights.rules import Fusion
from oscine.layers.log_mel import mel_filters
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


def test_mel_filters_agree(fixture: Golden) -> None:
    cases = fixture.cases("cases_audio.safetensors")
    if "mel.filters" not in cases:
        pytest.skip(f"no mel.filters in {fixture.root}")
    check("mel.filters", mel_filters(cases["mel.filters"].shape[1]).T, cases["mel.filters"], fixture.single)


def test_mel_features_agree(fixture: Golden) -> None:
    """The logarithm of weak bins magnifies what a float32 Fourier transform rounds, and CPUs round it differently.

    So ours is held to the formula in float64, and to the reference's numbers with their own distance from it on top.
    """
    cases = fixture.cases("cases_audio.safetensors")
    if "mel.features" not in cases:
        pytest.skip(f"no mel.features in {fixture.root}")
    expected = cases["mel.features"]
    wave = cases["mel.wav_16k"][0]
    actual = log_mel(wave, expected.shape[1])[None]
    exact = _log_mel_in_float64(wave, expected.shape[1])[None]
    check("mel.features in float64", actual.double(), exact, fixture.single)
    rounding = float((expected.double() - exact).abs().max() / expected.abs().max())
    assert rounding < 5 * fixture.single, f"the fixture is {rounding:.3g} from the formula: not a matter of rounding"
    check("mel.features", actual, expected, fixture.single + rounding)


def _log_mel_in_float64(wave: Tensor, num_bins: int) -> Tensor:
    """AUK spec, 3.1, with every step in float64."""
    window = torch.hann_window(400, dtype=torch.float64)
    padded = torch.nn.functional.pad(wave.double(), (0, 400))
    spectrum = torch.stft(padded, 400, 160, window=window, pad_mode="reflect", return_complex=True)
    power = spectrum.abs().square()
    logs = (mel_filters(num_bins).double() @ power).clamp(min=1e-10).log10()
    return (torch.maximum(logs, logs.max() - 8.0)[:, : mel_frames(len(wave))] + 4.0) / 4.0
