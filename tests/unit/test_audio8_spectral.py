"""The spectral codec at tiny dimensions: streams, neighbours, the source it filters, its config."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.errors import ConfigMismatch
from oscine.families.audio8.codec.codec import Codec
from oscine.families.audio8.codec.config import CodecConfig
from oscine.families.audio8.codec.kinds import build_codec, codec_config
from oscine.families.audio8.codec.spectral import SpectralCodec
from oscine.families.audio8.codec.spectral_config import SpectralConfig
from oscine.families.audio8.codec.spectral_source import noise, pitch_codes, pulses
from oscine.families.audio8.config import Audio8Config
from oscine.families.audio8.decoder import Audio8Decoder

CONFIG = SpectralConfig(
    sample_rate=2400,
    frame_length=120,
    num_codebooks=3,
    codebook_size=64,
    codebook_dim=4,
    dim=16,
    hidden_dim=24,
    num_blocks=2,
    steps_per_frame=2,
    fft_length=80,
    hop_length=20,
    lookahead=2,
    advance_codebook=1,
    advance_begin=8,
    advance_count=40,
    bend_codebook=2,
    bend_begin=48,
    bend_count=16,
    cycle_units=4,
)
FRAMES = 19


def make_codec() -> SpectralCodec:
    """A codec whose every parameter matters."""
    generator = torch.Generator().manual_seed(1)
    codec = SpectralCodec(CONFIG).eval()
    for parameter in codec.parameters():
        parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
    return codec


def random_codes(frames: int = FRAMES, seed: int = 0, rows: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, CONFIG.codebook_size, (rows, CONFIG.num_codebooks, frames), generator=generator)


def stream(codec: SpectralCodec, codes: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    state = codec.open_stream()
    pieces = [codec.decode_chunk(piece, state) for piece in codes.split(sizes, dim=-1)]
    return torch.cat([*pieces, codec.flush(state)], dim=-1)


@settings(max_examples=25, deadline=None)
@given(cuts=st.sets(st.integers(1, FRAMES - 1)), seed=st.integers(0, 9))
def test_any_chunking_equals_the_whole_bit_for_bit(cuts: set[int], seed: int) -> None:
    codec, codes = make_codec(), random_codes(seed=seed)
    edges = [0, *sorted(cuts), FRAMES]
    sizes = [b - a for a, b in itertools.pairwise(edges)]
    assert torch.equal(stream(codec, codes, sizes), codec.decode(codes))


@pytest.mark.parametrize("frames", [1, 2, 3, 5])
def test_every_length_gives_its_samples_and_the_first_frames_are_held_back(frames: int) -> None:
    codec, codes = make_codec(), random_codes(frames)
    state = codec.open_stream()
    settled = codec.decode_chunk(codes, state)
    assert settled.shape == (1, 1, max(0, frames - CONFIG.lookahead) * CONFIG.frame_length)
    whole = torch.cat([settled, codec.flush(state)], dim=-1)
    assert whole.shape == (1, 1, frames * CONFIG.frame_length)
    assert torch.equal(whole, codec.decode(codes))
    assert whole.abs().max() > 0.01


def test_a_frame_is_heard_in_its_own_place_and_not_before() -> None:
    codec, codes = make_codec(), random_codes()
    changed = codes.clone()
    changed[0, 0, 12] = (codes[0, 0, 12] + 7) % 64
    differs = (codec.decode(changed) - codec.decode(codes))[0, 0].abs().unflatten(0, (FRAMES, -1)).amax(1) > 0
    assert not differs[: 12 - CONFIG.lookahead].any()
    assert differs[12]


def test_neighbours_in_a_batch_do_not_matter() -> None:
    codec, codes = make_codec(), random_codes(rows=3)
    codes[1, :, 11:] = -1
    codes[2] = -1
    together = codec.decode(codes)
    assert torch.equal(together[:1], codec.decode(codes[:1]))
    assert torch.equal(together[1:2, :, : 11 * CONFIG.frame_length], codec.decode(codes[1:2, :, :11]))
    assert not together[1, :, 11 * CONFIG.frame_length :].any()
    assert not together[2].any()
    assert codec.decode(codes[2:]).shape == (1, 1, 0)


def test_codes_out_of_range_are_clamped() -> None:
    codec, codes = make_codec(), random_codes()
    high = codes.clone()
    high[:, 0, 3] = CONFIG.codebook_size - 1
    beyond = high.clone()
    beyond[:, 0, 3] = 10_000
    assert torch.equal(codec.decode(beyond), codec.decode(high))


def test_the_engines_decoder_streams_it() -> None:
    codec, codes = make_codec(), random_codes(7)
    decoder = Audio8Decoder(codec, torch.device("cpu"))
    assert decoder.warm_up == 0
    frames = list(codes[0].unbind(1))
    parts = [decoder.push(frames[:1]), decoder.push(frames[1:5]), decoder.push(frames[5:]), decoder.flush()]
    assert [len(part) for part in parts] == [0, 3 * 120, 2 * 120, 2 * 120]
    joined = torch.cat([torch.from_numpy(part) for part in parts])
    assert torch.equal(joined, codec.decode(codes)[0, 0])


def test_a_stream_remembers_a_bounded_amount() -> None:
    codec, state = make_codec(), make_codec().open_stream()
    codec.decode_chunk(random_codes(3), state)
    held = state.num_bytes
    codec.decode_chunk(random_codes(40), state)
    assert held == state.num_bytes == codec.stream_bytes()


def test_pulses_stand_where_the_phase_is_whole() -> None:
    advance = torch.full((1, 6), 20)  # five cycles a frame: 100 Hz, 24 samples
    start = (advance.cumsum(1) - advance) % CONFIG.cycle_units
    track = pulses(start, advance, torch.zeros_like(advance), CONFIG).flatten()
    assert len(track) == 4 * CONFIG.frame_length
    assert torch.arange(0, len(track), 24).tolist() == (track > 0.9 * track.max()).nonzero().flatten().tolist()
    assert float(track.square().mean()) == pytest.approx(1.0, abs=0.02)
    spectrum = torch.fft.rfft(track).abs()
    harmonics = torch.arange(20, len(spectrum), 20)
    others = torch.ones(len(spectrum), dtype=torch.bool).index_fill(0, harmonics, False)
    assert spectrum[others].max() < 1e-3 * spectrum[harmonics[:-1]].min()


def test_below_the_pitch_of_a_voice_there_are_no_pulses() -> None:
    advance = torch.full((1, 6), 4)  # 20 Hz
    assert not pulses(advance.cumsum(1), advance, torch.zeros_like(advance), CONFIG).any()


def test_a_bend_puts_the_phase_ahead_in_the_middle() -> None:
    steady, ahead = torch.tensor([[20] * 5]), torch.tensor([[0, 0, 2, 0, 0]])
    start = (steady.cumsum(1) - steady) % 4
    plain, bent = (pulses(start, steady, bend, CONFIG)[0] for bend in (torch.zeros_like(ahead), ahead))
    half = CONFIG.frame_length // 2
    assert float(bent[1, 0]) == pytest.approx(float(plain[1, 0]), rel=0.05)  # the start stays where it was
    # half a cycle ahead at the middle: where the plain one has no pulse, or has one, the other way round
    assert (float(plain[1, half]) > 1.0) != (float(bent[1, half]) > 1.0)


def test_pitch_codes_are_clamped_and_absent_frames_have_none() -> None:
    codes = torch.tensor([[[0, 0, -1], [0, 60, -1], [63, 0, -1]]])
    advance, bend = pitch_codes(codes, CONFIG)
    assert advance.tolist() == [[0, 39, 0]]
    assert bend.tolist() == [[7, -8, 0]]


def test_noise_is_white_and_a_matter_of_the_place_alone() -> None:
    whole = noise(0, 20_000, torch.device("cpu"))
    assert torch.equal(whole[7000:9000], noise(7000, 2000, torch.device("cpu")))
    assert float(whole.mean()) == pytest.approx(0.0, abs=0.03)
    assert float(whole.square().mean()) == pytest.approx(1.0, abs=0.03)
    for lag in (1, 2, 3, 24, 256):
        assert abs(float((whole[lag:] * whole[:-lag]).mean())) < 0.03
    assert float(whole[0]) == pytest.approx(-math.sqrt(3.0))  # the hash of zero is zero


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dim": 0}, "dim must be an integer >= 1, got 0"),
        ({"bend_begin": -1}, "bend_begin must be an integer >= 0, got -1"),
        ({"hop_length": 2.5}, "hop_length must be an integer >= 1, got 2.5"),
        ({"frame_length": 1250}, "frame_length must be a multiple of steps_per_frame * hop_length = 600"),
        ({"fft_length": 450}, "fft_length must be an even multiple of hop_length"),
        ({"lookahead": 1, "fft_length": 1200}, "lookahead frames must be longer than fft_length"),
        ({"bend_count": 127}, "bend_count must be even"),
        ({"bend_codebook": 5}, "must be below num_codebooks = 5"),
        ({"advance_count": 1000}, "advance codes must lie below codebook_size = 1152"),
        ({"bend_begin": 1100}, "bend codes must lie below codebook_size = 1152"),
        ({"width": 3}, "unknown keys ['width']"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_by_name(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigMismatch) as caught:
        SpectralConfig.from_dict(values)
    assert words in str(caught.value)


def test_kinds_of_codec_are_told_apart() -> None:
    stated = {"kind": "spectral", **dataclasses.asdict(CONFIG)}
    spectral = codec_config({"codec_config": json.loads(json.dumps(stated))}, "config.json")
    assert spectral == CONFIG
    assert isinstance(build_codec(spectral), SpectralCodec)
    assert not spectral.encodes
    released = codec_config({"codec_post_n_layer": 2}, "config.json")
    assert isinstance(released, CodecConfig)
    assert released.post_n_layer == 2
    assert released.encodes
    assert codec_config({"codec_config": {"kind": "released"}}, "config.json") == CodecConfig()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"codec_config": {"kind": "magic"}}, "kind must be 'released' or 'spectral', got 'magic'"),
        ({"codec_config": 3}, "codec_config must be an object, got 3"),
        ({"codec_config": {"kind": "spectral"}, "codec_post_n_layer": 8}, "codec_post_n_layer does not go with"),
    ],
)
def test_a_kind_that_is_not_known_is_refused_by_name(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigMismatch) as caught:
        codec_config(values, "config.json")
    assert words in str(caught.value)


def test_a_codec_is_told_by_its_first_codebook() -> None:
    codec = make_codec()
    assert codec.identity is codec.codebooks[0].weight
    with torch.device("meta"):
        released = Codec(CodecConfig())
    assert released.identity.shape == (4096, 8)


def test_a_folder_that_would_clone_with_a_codec_that_cannot_listen_is_refused(tmp_path: Path) -> None:
    values = {
        "model_type": "arktts",
        "num_codebooks": 3,
        "codec_sample_rate": 2400,
        "codec_frame_size": 120,
        "codec_config": {"kind": "spectral", **dataclasses.asdict(CONFIG)},
    }
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ConfigMismatch, match="voice_cloning must be false: the codec that codec_config"):
        Audio8Config.from_folder(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"voice_cloning": False}))
    assert Audio8Config.from_folder(tmp_path).codec == CONFIG


def test_a_codec_that_has_spoken_can_still_learn() -> None:
    """The transforms it kept from inference had no gradients to give: training in the same process failed."""
    config = dataclasses.replace(CONFIG, fft_length=120, hop_length=30, steps_per_frame=2)  # kept by no other test
    codec, codes = SpectralCodec(config), random_codes()
    with torch.inference_mode():
        codec.decode(codes)
    codec.synthesize(codes).square().sum().backward()
    assert codec.spectra.weight.grad is not None
    assert codec.spectra.weight.grad.abs().sum() > 0
