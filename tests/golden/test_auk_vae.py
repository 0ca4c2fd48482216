"""The VAE against the reference's numbers: filters, blocks, encoder, decoder, windows, and config variants."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from oscine.checkpoint.config import read_json
from oscine.families.auk import AuKVAE
from oscine.families.auk.codec.filters import Activation, Downsample, Upsample, kaiser_sinc_taps
from oscine.families.auk.codec.layers import AmpBlock, Chain
from tests.golden.auk_fixtures import Golden, check, check_all, golden

INPUTS = {
    "fir.x", "act.x", "up0.x", "enc.wav", "enc.odd_wav",
    "dec.z", "dec.z_b2", "dec.loud_z", "dec.z_1frame", "tile.z",
}  # fmt: skip


@pytest.fixture(scope="module")
def fixture(golden_root: Path) -> Golden:
    return golden(golden_root)


@pytest.fixture(scope="module")
def vae(fixture: Golden) -> AuKVAE:
    return fixture.vae()


def blocks(vae: AuKVAE, c: dict[str, Tensor]) -> dict[str, Tensor]:
    channels, x = c["fir.x"].shape[1], c["fir.x"]
    up = Upsample().open(channels).push(x, True)
    act = vae.resblocks[0].activations[0]
    assert isinstance(act, Activation)
    out = {
        "filter.taps": kaiser_sinc_taps(),
        "fir.up": up,
        "fir.down_causal": Downsample(True).open(channels).push(up, True),
        "fir.down_noncausal": Downsample(False).open(channels).push(up, True),
        "act.out": act.open().push(c["act.x"], True),
        "act.snake": act.act(c["act.x"]),
        "up0.out": vae.ups[0].open().push(c["up0.x"], True),
    }
    for index in (int(match[1]) for name in c if (match := re.fullmatch(r"amp(\d+)\.out", name))):
        block = vae.resblocks[index]
        assert isinstance(block, AmpBlock)
        out[f"amp{index}.out"] = Chain(block.open()).push(c["act.x"], True)
    folded = dict(vae.named_parameters())
    return out | {name: folded[name.removeprefix("folded.")] for name in c if name.startswith("folded.")}


def coding(vae: AuKVAE, c: dict[str, Tensor], spec: dict[str, Any]) -> dict[str, Tensor]:
    hop = vae.config.hop_length
    generator = torch.Generator().manual_seed(spec["encode_sample_seed"])
    odd, z = c["enc.odd_wav"], c["dec.z"]
    pad_frames = spec["pad_bucket_frames"] - z.shape[1]
    padded = torch.cat([z, c["pad.latent"].expand(1, pad_frames, -1)], dim=1)
    return {
        "enc.stats": torch.cat(vae.posterior(c["enc.wav"]), dim=1),
        "enc.mean": vae.encode(c["enc.wav"]),
        f"enc.sample_seed{spec['encode_sample_seed']}": vae.encode(c["enc.wav"], sample=True, generator=generator),
        "enc.odd_mean_full_length": vae.encode(odd),
        "enc.odd_mean_truncated_first": vae.encode(odd[:, : odd.shape[1] // hop * hop]),
        "dec.wav": vae.decode(z),
        "dec.wav_b2": vae.decode(c["dec.z_b2"]),
        "dec.loud_wav": vae.decode(c["dec.loud_z"]),
        "dec.wav_1frame": vae.decode(c["dec.z_1frame"]),
        "tile.full": vae.decode_windows(c["tile.z"], spec["tile"]),
        "pad.latent": -vae.global_mean / vae.global_log_std.sqrt(),
        f"pad.decoded_{spec['pad_bucket_frames']}_bucket_cropped": vae.decode(padded)[:, : z.shape[1] * hop],
    }


def test_every_case_agrees(fixture: Golden, vae: AuKVAE) -> None:
    cases = fixture.cases("cases_vae.safetensors")
    spec = fixture.spec["vae"]
    assert vae.decode_context_frames() == tuple(spec["context"])
    assert cases["tile.z"].shape[1] == spec["tile_frames"]
    inputs = INPUTS | {f"enc.noise_seed{spec['encode_sample_seed']}"}
    check_all({**blocks(vae, cases), **coding(vae, cases, spec)}, cases, inputs, fixture.single)


def test_the_whole_decode_equals_the_windows(fixture: Golden, vae: AuKVAE) -> None:
    cases = fixture.cases("cases_vae.safetensors")
    check("tile.full", vae.decode(cases["tile.z"]), cases["tile.full"], fixture.single)


@pytest.mark.parametrize("cached", [True, False])
def test_cached_filters_change_nothing(fixture: Golden, cached: bool) -> None:
    cases, vae = fixture.cases("cases_vae.safetensors"), fixture.vae()
    vae.set_decode_fast_paths(cached_filters=cached)
    check("dec.wav", vae.decode(cases["dec.z"]), cases["dec.wav"], fixture.single)


@pytest.mark.parametrize("sizes", [[1], [2, 5], [7], [30, 1], [1000]])
def test_streamed_pieces_equal_the_whole(fixture: Golden, vae: AuKVAE, sizes: list[int]) -> None:
    """Any cutting of the latents gives the samples of the whole decode, the clip's tail included."""
    z = fixture.cases("cases_vae.safetensors")["dec.z"]
    stream, parts, start = vae.open_decoder(), [], 0
    for index in range(z.shape[1]):
        size = sizes[index % len(sizes)]
        piece, start = z[:, start : start + size], start + size
        parts.append(stream.push(piece, final=start >= z.shape[1]))
        if start >= z.shape[1]:
            break
    check("streamed", torch.cat(parts, dim=1), vae.decode(z), fixture.single)


def test_config_variants(fixture: Golden) -> None:
    """Non-causal filters, linear snake, non-causal decoders: each config by name with its own weights."""
    variants = read_json(fixture.path("vae_variants.json"))
    cases = fixture.cases("cases_vae_variants.safetensors")
    variants = variants.get("variants", variants)
    for name, entry in variants.items():
        config = entry.get("config", entry.get("model_init_kwargs", entry))
        vae = AuKVAE.from_config({"latent_dim": fixture.config.vae.latent_dim, **config})
        vae.load_weights(fixture.path(f"vae_variant_{name}.safetensors"))
        context = entry.get("decode_context_frames", entry.get("context"))
        assert vae.decode_context_frames() == tuple(context), name
        own = {key.removeprefix(f"{name}."): value for key, value in cases.items() if key.startswith(f"{name}.")}
        assert own, f"no cases of variant {name}"
        compare_variant(name, vae, own, fixture.single)


DECODED = (("z", "latents", "in", "input", "dec_z"), ("wav", "audio", "out", "output", "dec_wav"))
ENCODED = (("wav", "audio", "enc_wav"), ("mean", "latents", "enc_mean"))
STATED = (ENCODED[0], ("stats", "enc_stats"))
Names = tuple[tuple[str, ...], tuple[str, ...]]


def partner(key: str, names: Names, result: Tensor, own: dict[str, Tensor]) -> str | None:
    """The output for the input `key`: same prefix and suffix, another word; else the only one of the result's shape."""
    prefix, dot, leaf = key.rpartition(".")
    for word in (word for word in names[0] if re.match(rf"{word}(_|$)", leaf)):
        found = [f"{prefix}{dot}{out}{leaf.removeprefix(word)}" for out in names[1]]
        if named := next((name for name in found if name in own), None):
            return named
    alike = [name for name, value in own.items() if name != key and value.shape == result.shape]
    return alike[0] if len(alike) == 1 else None


def compare_variant(name: str, vae: AuKVAE, own: dict[str, Tensor], tolerance: float) -> None:
    """Latents decode to audio; under a name that says so, audio encodes to latents."""
    done = set()
    for key, value in own.items():
        made: list[tuple[Names, Tensor]] = []
        if key.startswith("enc") and value.dim() == 2:
            made = [(ENCODED, vae.encode(value)), (STATED, torch.cat(vae.posterior(value), dim=1))]
        elif not key.startswith("enc") and value.dim() == 3 and value.shape[-1] == vae.config.latent_dim:
            made = [(DECODED, vae.decode(value))]
        for names, result in made:
            if out := partner(key, names, result, own):
                check(f"{name}.{out}", result, own[out], tolerance)
                done |= {key, out}
    assert set(own) == done, f"no test for {sorted(set(own) - done)} of variant {name}"
