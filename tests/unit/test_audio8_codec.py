"""Properties of the codec at tiny dimensions: chunking, causality, padding, configuration, weight names."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from oscine.errors import ConfigMismatch, UnsupportedFeature, WeightMismatch
from oscine.families.audio8.codec import transformer as codec_transformer
from oscine.families.audio8.codec.codec import Codec
from oscine.families.audio8.codec.config import CodecConfig
from oscine.families.audio8.codec.layers import CausalConv, StreamState
from oscine.families.audio8.codec.weights import codec_state, fold_weight_norm

CONFIG = CodecConfig(
    sample_rate=2400,
    encoder_dim=4,
    encoder_rates=(3, 2),
    encoder_transformer_layers=(0, 1),
    encoder_window=6,
    latent_dim=16,
    decoder_dim=16,
    decoder_rates=(2, 3),
    transformer_head_dim=8,
    semantic_codebook_size=32,
    n_residual_codebooks=3,
    residual_codebook_size=16,
    codebook_dim=4,
    downsample_factors=(2, 3),
    pre_n_layer=1,
    pre_n_head=2,
    pre_intermediate_size=24,
    post_n_layer=2,
    post_n_head=4,
    post_n_local_heads=2,
    post_intermediate_size=24,
    quantizer_window=5,
)
FRAMES = 20


@pytest.fixture(scope="module")
def codec() -> Codec:
    return make_codec()


def make_codec() -> Codec:
    """A codec whose every parameter matters: gains and layer scales near one instead of near zero."""
    generator = torch.Generator().manual_seed(1)
    codec = Codec(CONFIG).eval()
    for name, parameter in codec.named_parameters():
        fan_in = max(1, parameter[0].numel()) if parameter.dim() > 1 else 1
        noise = torch.randn(parameter.shape, generator=generator) * (0.8 / fan_in**0.5 if parameter.dim() > 1 else 0.3)
        gain = name.endswith(("gamma", "alpha", "norm.weight"))
        parameter.data = noise * 0.1 + 1 if gain else noise
    return codec


def random_codes(frames: int = FRAMES, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 16, (1, CONFIG.num_codebooks, frames), generator=generator)


def stream(codec: Codec, codes: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    state = codec.open_stream()
    return torch.cat([codec.decode_chunk(piece, state) for piece in codes.split(sizes, dim=-1)], dim=-1)


@settings(max_examples=25, deadline=None)
@given(cuts=st.sets(st.integers(1, FRAMES - 1)), seed=st.integers(0, 9))
def test_any_chunking_equals_the_whole(cuts: set[int], seed: int) -> None:
    """Convolutions of other lengths round otherwise, on some CPUs by 1.3e-5 of a full wave after all layers.

    So float64, in which only the parts that are float32 by definition round, shows that the sums are the same ones.
    """
    codes = random_codes(seed=seed)
    edges = [0, *sorted(cuts), FRAMES]
    sizes = [b - a for a, b in itertools.pairwise(edges)]
    for codec, tolerance in ((make_codec(), 3e-5), (make_codec().double(), 2e-6)):
        whole = codec.decode(codes)
        assert whole.abs().mean() > 0.01
        assert (stream(codec, codes, sizes) - whole).abs().max() <= tolerance


def test_streaming_on_one_grid_is_bit_equal(codec: Codec) -> None:
    codes = random_codes()
    assert torch.equal(stream(codec, codes, [4] * 5), stream(codec, codes, [4] * 5))


def test_two_streams_do_not_disturb_each_other(codec: Codec) -> None:
    a, b = random_codes(seed=1), random_codes(seed=2)
    alone = [stream(codec, codes, [4] * 5) for codes in (a, b)]
    states = [codec.open_stream(), codec.open_stream()]
    mixed: list[list[torch.Tensor]] = [[], []]
    for pieces in zip(a.split(4, -1), b.split(4, -1), strict=True):
        for i, piece in enumerate(pieces):
            mixed[i].append(codec.decode_chunk(piece, states[i]))
    assert torch.equal(torch.cat(mixed[0], -1), alone[0])
    assert torch.equal(torch.cat(mixed[1], -1), alone[1])


def test_stream_memory_is_constant(codec: Codec) -> None:
    state, sizes = codec.open_stream(), []
    assert state.num_bytes == 0
    for piece in random_codes(60).split(3, dim=-1):
        codec.decode_chunk(piece, state)
        sizes.append(state.num_bytes)
    assert sizes[0] < sizes[-1] == sizes[4]
    held = sum(t.untyped_storage().nbytes() for tensors in state.tensors.values() for t in tensors)
    assert held == sizes[-1]


def test_later_codes_never_change_earlier_audio(codec: Codec) -> None:
    codes = random_codes()
    changed = codes.clone()
    changed[..., 11] = (changed[..., 11] + 1) % 16
    before, after = codec.decode(codes), codec.decode(changed)
    edge = 11 * CONFIG.frame_length
    assert torch.equal(before[..., :edge], after[..., :edge])
    assert not torch.equal(before[..., edge:], after[..., edge:])


def test_padding_of_a_batch_does_not_change_codes(codec: Codec) -> None:
    audio = torch.randn(1, 1, 7 * CONFIG.frame_length - 5, generator=torch.Generator().manual_seed(3))
    alone, frames = codec.encode(audio)
    assert alone.shape == (1, CONFIG.num_codebooks, 7)
    assert frames.tolist() == [7]
    noise = torch.randn(1, 1, 4 * CONFIG.frame_length + 5, generator=torch.Generator().manual_seed(4))
    batch = torch.cat([audio, torch.zeros_like(noise)], -1)
    both, frames = codec.encode(torch.cat([batch, batch.roll(3, -1)]), torch.tensor([audio.shape[-1], 1]))
    assert frames.tolist() == [7, 1]
    assert torch.equal(both[0, :, :7], alone[0])
    assert (both[0, :, 7:] == -1).all()
    assert (both[1, :, 1:] == -1).all()
    assert (both[1, :, :1] >= 0).all()


def test_absent_frames_are_cut_and_large_codes_clamped(codec: Codec) -> None:
    codes = random_codes(6)
    absent = torch.cat([codes, torch.full_like(codes[..., :2], -1)], dim=-1)
    assert torch.equal(codec.decode(absent), codec.decode(codes))
    large = codes.clone()
    large[:, 2] = 4095
    limit = codes.clone()
    limit[:, 2] = CONFIG.residual_codebook_size - 1
    assert torch.equal(codec.decode(large), codec.decode(limit))
    assert codec.decode(absent[..., 6:]).shape == (1, 1, 0)


def test_a_shorter_row_ends_in_silence(codec: Codec) -> None:
    codes = random_codes(6).repeat(2, 1, 1)
    codes[1, :, 4:] = -1
    audio = codec.decode(codes)
    edge = 4 * CONFIG.frame_length
    assert torch.allclose(audio[1, :, :edge], audio[0, :, :edge], atol=1e-5)
    assert not audio[1, :, edge:].any()


def test_attention_in_query_blocks_equals_one_block(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1, 16, 37, generator=torch.Generator().manual_seed(5))
    whole = codec.quantizer.post_module(x)
    monkeypatch.setattr(codec_transformer, "QUERY_BLOCK", 8)
    assert torch.allclose(codec.quantizer.post_module(x), whole, atol=1e-5)


def test_a_strided_stream_refuses_a_ragged_piece() -> None:
    conv = CausalConv(1, 1, 4, stride=2)
    with pytest.raises(ValueError, match="no multiple of the stride 2"):
        conv(torch.zeros(1, 1, 3), StreamState())


def test_no_trace_of_gradients_in_a_stream(codec: Codec) -> None:
    state = codec.open_stream()
    audio = codec.decode_chunk(random_codes(2), state)
    assert not audio.requires_grad
    assert not any(t.requires_grad for held in state.tensors.values() for t in held)


def test_config_properties() -> None:
    config = CodecConfig()
    assert (config.num_codebooks, config.frame_length) == (10, 2048)
    assert config.frame_rate == pytest.approx(21.533, abs=1e-3)
    assert CodecConfig.from_dict({"latent_dim": 8, "encoder_rates": [4, 4, 4, 8]}).encoder_rates == (
        4,
        4,
        4,
        8,
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"latent_dims": 4}, "unknown keys"),
        ({"latent_dim": "4"}, "latent_dim must be an integer"),
        ({"latent_dim": True}, "latent_dim must be an integer"),
        ({"latent_dim": 0}, ">= 1, got 0"),
        ({"encoder_rates": 4}, "encoder_rates must be a list"),
        ({"encoder_rates": [2, 4, 8, 8.0]}, "encoder_rates must be a list"),
        ({"encoder_rates": []}, "encoder_rates must be a list"),
        ({"encoder_rates": [8, 8, 8]}, "same length"),
        ({"decoder_rates": [8, 8, 4, 4]}, "same product"),
        ({"decoder_dim": 24}, "multiple of 16"),
        ({"post_n_local_heads": 3}, "multiple of post_n_local_heads"),
        ({"transformer_head_dim": 63}, "must be even"),
        ({"transformer_head_dim": 96}, "multiple of transformer_head_dim"),
    ],
)
def test_bad_configs_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigMismatch, match=words):
        CodecConfig.from_dict(values)


def normed(module: nn.Module, old_names: bool) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """State of `module` under weight norm, magnitudes off the norms, and the weight in effect."""
    nn.utils.parametrizations.weight_norm(module, dim=0)
    pair = module.parametrizations.weight
    pair.original0.data *= 1.5
    names = ("weight_g", "weight_v") if old_names else tuple(f"parametrizations.weight.original{i}" for i in (0, 1))
    state = {
        f"x.{names[0]}": pair.original0.data,
        f"x.{names[1]}": pair.original1.data,
        "x.bias": module.bias.data,
    }
    return state, module.weight.data


@pytest.mark.parametrize("old_names", [False, True])
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
def test_folded_weight_is_the_one_in_effect(kind: type[nn.Module], old_names: bool) -> None:
    state, weight = normed(kind(3, 5, 4), old_names)
    folded = fold_weight_norm(state)
    assert sorted(folded) == ["x.bias", "x.weight"]
    assert torch.allclose(folded["x.weight"], weight, atol=1e-7)
    assert fold_weight_norm(folded).keys() == folded.keys()


@pytest.mark.parametrize("missing", ["g", "v"])
def test_half_a_weight_norm_pair_is_refused(missing: str) -> None:
    state, _ = normed(nn.Conv1d(3, 5, 4), old_names=True)
    del state[f"x.weight_{missing}"]
    with pytest.raises(WeightMismatch, match=f"no x.weight_{missing} beside it"):
        fold_weight_norm(state)


def test_wrapped_codec_files() -> None:
    value = torch.zeros(1)
    plain = {"a.bias": value, "b.freqs_cis": value, "b.causal_mask": value}
    wrapped = {"state_dict": {f"generator.{k}": v for k, v in plain.items()} | {"discriminator.c": value}}
    assert list(codec_state(plain)) == list(codec_state(wrapped)) == ["a.bias"]
    with pytest.raises(WeightMismatch, match="no tensors"):
        codec_state({"a": 3})
    with pytest.raises(WeightMismatch, match="not a mapping"):
        codec_state({"state_dict": 3})


def test_a_codec_without_an_encoder_speaks_as_before_and_says_that_it_cannot_listen() -> None:
    whole, codes = make_codec(), random_codes()
    mute = Codec(dataclasses.replace(CONFIG, encoder_dim=0)).eval()
    kept = mute.state_dict().keys()
    left_out = whole.state_dict().keys() - kept
    assert {name.split(".in_proj")[0].split(".")[-2] for name in left_out if "in_proj" in name} == {"quantizers"}
    assert {".".join(name.split(".")[:2]) for name in left_out if "in_proj" not in name} == {
        "encoder.block",
        "quantizer.downsample",
        "quantizer.pre_module",
    }
    mute.load_state_dict({name: whole.state_dict()[name] for name in kept})
    assert torch.equal(mute.decode(codes), whole.decode(codes))
    assert mute.identity.equal(whole.identity)
    with pytest.raises(UnsupportedFeature, match="has no encoder"):
        mute.encode(torch.zeros(1, 1, 720))
