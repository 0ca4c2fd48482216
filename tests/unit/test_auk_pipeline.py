"""The pipeline: what it refuses, caches and pins; shapes of the models; frames of the split deployment."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from oscine.compat.auk_wire import decode_frame, encode_frame
from oscine.errors import BadAudio, InputTooLong, InvalidRequest, NonFiniteOutput, OscineError
from oscine.families.auk import AuKPipeline, AuKRequest, sample_latents
from oscine.types import Samples
from tests.unit.auk_factory import TINY_ARCH, TINY_VAE, write_both


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("auk"))


@pytest.fixture(scope="module")
def pipeline(root: Path) -> AuKPipeline:
    return AuKPipeline.from_folder(root / "AuK")


def clip(seconds: float) -> Samples:
    return np.random.default_rng(0).standard_normal(int(seconds * 24000)).astype(np.float32) * np.float32(0.1)


def condition(tokens: int = 9) -> Tensor:
    return torch.randn(tokens, TINY_ARCH["text_hidden_dim"], generator=torch.Generator().manual_seed(0))


def short(**changes: Any) -> AuKRequest:
    return AuKRequest(**{"condition": condition(), "gen_seconds": 0.1, "num_steps": 2, "seed": 1, **changes})


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"gen_seconds": None}, InvalidRequest, "duration"),
        ({"condition": condition() * 0}, InvalidRequest, "no valid token"),
        ({"condition": condition()[:, :-1]}, InvalidRequest, "condition must be"),
        ({"condition": condition()[None].repeat(2, 1, 1)}, InvalidRequest, "condition must be"),
        ({"audio": np.zeros((2, 2, 2), np.float32)}, BadAudio, "one or two dimensions"),
        ({"audio": np.ones(479, np.float32)}, BadAudio, "shorter than one frame"),
        ({"audio": clip(30.1)}, InputTooLong, "30 s"),
        ({"t_grid": [0.0, 0.5, 0.5, 1.0]}, InvalidRequest, "strictly increasing"),
        ({"guidance": float("nan")}, InvalidRequest, "guidance"),
        ({"t_grid": [0.0, float("nan"), 1.0]}, InvalidRequest, "finite"),
        ({"t_grid": [0.5]}, InvalidRequest, "at least 2 times"),
        ({"guidance": -1.0}, InvalidRequest, "guidance"),
        ({"num_steps": 0}, InvalidRequest, "at least 1"),
        ({"num_steps": 2.5}, InvalidRequest, "whole number"),
        ({"gen_seconds": float("nan")}, InvalidRequest, "duration"),
        ({"audio": np.zeros(0, np.float32)}, BadAudio, "empty"),
        ({"audio": np.zeros((0, 24000), np.float32)}, BadAudio, "empty"),
        ({"sway": "strong"}, InvalidRequest, "sway"),
        ({"audio": np.zeros(24000, np.float32)}, BadAudio, "silent"),
        ({"audio": np.full(24000, np.nan, np.float32)}, BadAudio, "NaN"),
        ({"audio": np.ones(24000, np.float32), "sample_rate": 0}, BadAudio, "rate"),
        ({"output_type": "mp3"}, InvalidRequest, "output_type"),
        ({"seed": -1}, InvalidRequest, "seed"),
        ({"seed": 2**64}, InvalidRequest, "seed"),
    ],
)
def test_the_pipeline_refuses(
    pipeline: AuKPipeline, changes: dict[str, Any], error: type[OscineError], message: str
) -> None:
    with pytest.raises(error, match=message):
        pipeline.forward(short(**changes))


def test_the_pipeline_takes_exactly_one_request(pipeline: AuKPipeline) -> None:
    for requests in ([], [short(), short()]):
        with pytest.raises(InvalidRequest, match="exactly one"):
            pipeline.forward(requests)
    [output] = pipeline.forward([short()])
    assert output.audio is not None
    assert output.audio.shape == (5 * 480,)
    assert output.seed == 1


def test_text_padding_is_masked_when_sampling(pipeline: AuKPipeline) -> None:
    text = condition()[None]
    padded = torch.cat([text, torch.ones(1, 4, text.shape[2])], dim=1)
    mask = (torch.arange(padded.shape[1]) < text.shape[1])[None]
    run = partial(sample_latents, pipeline.dit, ref=None, ref_mask=None, gen_frames=5, nfe=2, seed=1)
    torch.testing.assert_close(run(text=padded, c_mask=mask), run(text=text, c_mask=None), rtol=1e-4, atol=1e-5)
    with pytest.raises(InvalidRequest, match="8 latent dimensions"):
        run(text=text, c_mask=None, latent_dim=9)


def test_channels_are_averaged(pipeline: AuKPipeline) -> None:
    left, right = clip(0.2), clip(0.2)[::-1].copy()
    mono = pipeline.reference_latents(short(audio=(left + right) / 2))
    for stereo in (np.stack([left, right]), np.stack([left, right], axis=1)):
        assert torch.equal(pipeline.reference_latents(short(audio=stereo)), mono)


def test_reference_means_are_cached_and_draws_are_not(root: Path) -> None:
    pipeline = AuKPipeline.from_folder(root / "AuK", reference_cache=1)
    first = pipeline.reference_latents(short(audio=clip(0.2)))
    assert pipeline.reference_latents(short(audio=clip(0.2))) is first
    pipeline.reference_latents(short(audio=clip(0.3)))
    assert pipeline.reference_latents(short(audio=clip(0.2))) is not first
    drawn = [pipeline.reference_latents(short(audio=clip(0.2), vae_sample=True, seed=s)) for s in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    for size in (-1, 1.5, True):
        with pytest.raises(InvalidRequest, match="cache size"):
            AuKPipeline.from_folder(root / "AuK", reference_cache=size)  # type: ignore[arg-type]


def test_flash_ignores_other_settings_and_says_so_once(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = AuKPipeline.from_folder(root / "AuK-Flash")
    with caplog.at_level(logging.WARNING, logger="oscine"):
        outputs = [pipeline.forward(short(num_steps=n, guidance=g))[0].audio for n, g in ((2, 2.0), (9, 0.0))]
    assert outputs[0] is not None
    assert outputs[1] is not None
    assert torch.equal(outputs[0], outputs[1])
    assert caplog.text.count("AuK-Flash runs its own 4 steps") == 1


def test_latents_decode_to_the_audio(pipeline: AuKPipeline) -> None:
    request = short(audio=clip(0.2), gen_seconds=None)
    [latents], [audio] = (pipeline.forward(replace(request, output_type=kind)) for kind in ("latent", "audio"))
    assert latents.latents is not None
    assert audio.audio is not None
    assert latents.audio is None
    assert latents.latents.shape == (1, 10, TINY_VAE["latent_dim"])
    assert torch.equal(pipeline.vae.decode(latents.latents)[0], audio.audio)


def test_the_reported_seed_repeats_the_run(pipeline: AuKPipeline) -> None:
    """The draw of the clip's latents included; a generator gives what its seed gives."""
    request = short(audio=clip(0.2), vae_sample=True, seed=None)
    [first] = pipeline.forward(request)
    [again] = pipeline.forward(replace(request, seed=first.seed))
    assert first.seed is not None
    generator = torch.Generator().manual_seed(first.seed)
    [drawn] = pipeline.forward(replace(request, generator=generator))
    for other in (again, drawn):
        assert first.audio is not None
        assert other.audio is not None
        assert torch.equal(first.audio, other.audio)
    assert drawn.seed is None


def test_any_rate_is_resampled_for_the_reference(pipeline: AuKPipeline) -> None:
    latents = pipeline.reference_latents(short(audio=clip(0.2)[:1600], sample_rate=8000))
    assert latents is not None
    assert latents.shape[1] == 10


def test_infinite_latents_are_an_error(root: Path) -> None:
    pipeline = AuKPipeline.from_folder(root / "AuK")
    pipeline.dit.proj_out.bias.fill_(float("inf"))
    with pytest.raises(NonFiniteOutput, match="latents"):
        pipeline.forward(short())


def test_wrong_shapes_are_named(pipeline: AuKPipeline) -> None:
    dit, vae, text = pipeline.dit, pipeline.vae, condition()[None]
    context = dit.prepare(text, target_len=4)
    with pytest.raises(ValueError, match=r"must be \[batch, 4, 8\]"):
        dit.step(torch.zeros(1, 5, 8), 0.0, context)
    with pytest.raises(ValueError, match="ref must be"):
        dit.prepare(text, target_len=4, ref=torch.zeros(1, 3, 9))
    with pytest.raises(ValueError, match="ref_mask must be"):
        dit.prepare(text, target_len=4, ref=torch.zeros(1, 3, 8), ref_mask=torch.ones(1, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="at least one frame"):
        dit.prepare(text, target_len=0)
    with pytest.raises(ValueError, match="2 rows of latents for a context of 1"):
        dit.step(torch.zeros(2, 4, 8), 0.0, context)
    with pytest.raises(ValueError, match=r"time must be a number or \[1\]"):
        dit.step(torch.zeros(1, 4, 8), torch.zeros(3), context)
    table = dit.prepare(text, target_len=4, timesteps=torch.zeros(2))
    with pytest.raises(ValueError, match="step 2 of a table of 2"):
        dit.step(torch.zeros(1, 4, 8), 0.0, table, 2)
    for latents in (torch.zeros(3, TINY_VAE["latent_dim"]), torch.zeros(1, 3, 9)):
        with pytest.raises(ValueError, match="latents must be"):
            vae.decode(latents)
    for wav in (torch.zeros(480), torch.zeros(2, 480), torch.zeros(1, 0)):
        with pytest.raises(ValueError, match=r"must be \[1, samples\]"):
            vae.encode(wav)


def test_the_text_cache_is_used_under_guidance_and_cleared(pipeline: AuKPipeline) -> None:
    dit, one, other = pipeline.dit, condition()[None], condition()[None] * 2 + 1
    first = dit.prepare(one, target_len=3, cfg_infer=True, cache=True).c
    assert torch.equal(dit.prepare(other, target_len=3, cfg_infer=True, cache=True).c, first)
    assert not torch.equal(dit.prepare(other, target_len=3, cfg_infer=True).c, first)
    dit.clear_cache()
    assert not torch.equal(dit.prepare(other, target_len=3, cfg_infer=True, cache=True).c, first)
    with pytest.raises(InvalidRequest, match="cached text"):
        dit.prepare(one[:, :-1], target_len=3, cfg_infer=True, cache=True)
    dit.clear_cache()


def test_a_failed_forward_leaves_no_text_behind(pipeline: AuKPipeline) -> None:
    """The next request would get the failed one's text without a word."""
    dit, one, other = pipeline.dit, condition()[None], condition()[None] * 2 + 1
    x = torch.zeros(1, 3, 8)
    kept = dit(x, one, 0.5, cfg_infer=True, cache=True)
    assert torch.equal(dit(x, other, 0.5, cfg_infer=True, cache=True), kept)
    with pytest.raises(InvalidRequest, match="time must be"):
        dit(x, one, torch.zeros(2), cfg_infer=True, cache=True)
    assert not torch.equal(dit(x, other, 0.5, cfg_infer=True, cache=True), kept)
    dit.clear_cache()


@pytest.mark.parametrize(
    "data", [b"", b"AUK1", b"AUK2\0\0\0\2{}", b"AUK1\0\0\1\0{}", b"AUK1\0\0\0\2[]", b"AUK1\0\0\0\2{]"]
)
def test_broken_frames_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="frame"):
        decode_frame(data)
    header, tensors = decode_frame(encode_frame({"a": 1}, {"x": torch.ones(2)}))
    assert header == {"a": 1}
    assert torch.equal(tensors["x"], torch.ones(2))
