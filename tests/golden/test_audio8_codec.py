"""The codec against the reference's numbers: stages, sub-modules, streaming, and the released key list."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from oscine.families.audio8.codec.codec import Codec
from oscine.families.audio8.codec.config import CodecConfig
from oscine.families.audio8.codec.transformer import WindowTransformer
from oscine.families.audio8.codec.weights import codec_state, fold_weight_norm

ATOL, RTOL = 5e-5, 1e-4
FAMILY = "audio8"


def metadata(path: Path) -> dict[str, Any]:
    with safe_open(path, "pt") as file:
        return {key: json.loads(value) for key, value in (file.metadata() or {}).items()}


def fixtures(golden_root: Path, pattern: str) -> list[Path]:
    found = sorted((golden_root / FAMILY).glob(pattern))
    if not found:
        pytest.skip(f"no {FAMILY}/{pattern} below {golden_root}")
    return found


def codec_of(config: dict[str, Any], state: dict[str, Any]) -> Codec:
    with torch.device("meta"):
        codec = Codec(CodecConfig.from_dict(config))
    codec.load_state_dict(codec_state(state), strict=True, assign=True)
    return codec.eval()


def codec_of_folder(folder: Path) -> Codec:
    config = json.loads((folder / "config.json").read_text())["codec_config"]
    return codec_of(config, torch.load(folder / "codec.pth", weights_only=True))


def codec_for(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> Codec:
    own = {k.removeprefix("weights."): v for k, v in tensors.items() if k.startswith("weights.")}
    suffix = path.stem.removeprefix("codec_")
    state = own or torch.load(path.parent / f"ckpt_dense_{suffix}" / "codec.pth", weights_only=True)
    return codec_of(meta["codec_config"], state)


def check(name: str, actual: Tensor, expected: Tensor) -> None:
    assert actual.shape == expected.shape, f"{name}: {tuple(actual.shape)} for {tuple(expected.shape)}"
    if not expected.is_floating_point():
        wrong = (actual != expected).nonzero().tolist()
        assert not wrong, f"{name}: {len(wrong)} of {expected.numel()} differ, first at {wrong[:5]}"
        return
    error = (actual - expected).abs()
    at = int((error - RTOL * expected.abs()).argmax())
    assert torch.allclose(actual, expected, atol=ATOL, rtol=RTOL), (
        f"{name}: max abs {error.max():.3g}, max rel {(error / expected.abs().clamp_min(1e-12)).max():.3g}, "
        f"worst at flat index {at}"
    )


def encode_stages(codec: Codec, t: dict[str, Tensor]) -> dict[str, Tensor]:
    audio, quantizer = t["in.audio"], codec.quantizer
    padded = torch.nn.functional.pad(audio, (0, -audio.shape[-1] % codec.config.frame_length))
    encoded = codec.encoder(padded)
    down = quantizer.downsample(encoded)
    z = quantizer.pre_module(down)
    semantic, _ = quantizer.semantic_quantizer(z)
    residual, _ = quantizer.quantizer(z - semantic)
    codes, lengths = codec.encode(audio, t["in.audio_lengths"])
    return {
        "encoder": encoded,
        "downsample": down,
        "pre_module": z,
        "semantic_quantized": semantic,
        "residual_quantized": residual,
        "codes": codes,
        "code_lengths": lengths,
    }


def decode_stages(codec: Codec, t: dict[str, Tensor]) -> dict[str, Tensor]:
    codes = t["in.codes"].long()
    zq = codec.quantizer.code_vectors(codes)
    return {
        "zq": zq,
        "latent": codec.quantizer.post_module(zq),
        "quantizer_decode": codec.quantizer.decode(codes),
        "waveform": codec.decode(codes),
        "waveform_oob": codec.synthesize(t["in.codes_oob"].long()),
    }


def sub_modules(codec: Codec, t: dict[str, Tensor]) -> dict[str, Tensor]:
    named = {
        "conv_in": "encoder.block.0",
        "conv_strided": "encoder.block.2.block.4",
        "resunit_d9": "encoder.block.1.block.2",
        "snake": "encoder.block.1.block.3",
        "convtr": "decoder.model.1.block.1",
        "convnext": "quantizer.downsample.0.1",
        "down_odd": "quantizer.downsample.0",
        "up": "quantizer.upsample.0",
    }
    out = {name: codec.get_submodule(path)(t[f"in.{name}"]) for name, path in named.items() if f"in.{name}" in t}
    if "in.encoder_transformer" in t:
        width = t["in.encoder_transformer"].shape[1]
        stages = [m for m in codec.encoder.modules() if isinstance(m, WindowTransformer)]
        transformer = next(m for m in stages if m.norm.weight.shape[0] == width)
        out["encoder_transformer"] = transformer(t["in.encoder_transformer"])
    out["window_transformer_pre"] = codec.quantizer.pre_module(t["in.window_transformer"])
    out["window_transformer_post"] = codec.quantizer.post_module(t["in.window_transformer"])
    quantised, indices = codec.quantizer.semantic_quantizer.quantizers[0](t["in.vq"])
    return out | {"vq_quantized": quantised, "vq_indices": indices}


def conv_half(codec: Codec, t: dict[str, Tensor], meta: dict[str, Any]) -> dict[str, Tensor]:
    """Upsample and decoder on a few latent frames: with ten of context exact, with fewer not."""
    start = meta["streaming_case"]["start_frame"]
    end = start + meta["streaming_case"]["num_frames"]
    out = {}
    for key in (k for k in t if k.startswith("out.convhalf_ctx")):
        context = int(key.removeprefix("out.convhalf_ctx"))
        audio = codec.decoder(codec.quantizer.upsample(t["out.latent"][..., start - context : end]))
        out[key.removeprefix("out.")] = audio[..., context * codec.config.frame_length :]
    return out


@torch.no_grad()
def test_every_tensor(golden_root: Path) -> None:
    for path in fixtures(golden_root, "codec_*.safetensors"):
        t, meta = load_file(path), metadata(path)
        codec = codec_for(path, t, meta)
        assert codec.config.frame_length == meta["frame_length"]
        actual = encode_stages(codec, t) | decode_stages(codec, t) | sub_modules(codec, t) | conv_half(codec, t, meta)
        expected = {k.removeprefix("out."): v for k, v in t.items() if k.startswith("out.")}
        assert set(actual) == set(expected), f"{path.name}: tensors without a comparison"
        for name, tensor in expected.items():
            check(f"{path.name} {name}", actual[name], tensor)


@pytest.mark.parametrize("chunk", [1, 2, 5, 7, 24])
def test_streamed_equals_reference(golden_root: Path, chunk: int) -> None:
    for path in fixtures(golden_root, "codec_*.safetensors"):
        t, meta = load_file(path), metadata(path)
        codec = codec_for(path, t, meta)
        state = codec.open_stream()
        pieces = [codec.decode_chunk(piece, state) for piece in t["in.codes"].long().split(chunk, dim=-1)]
        check(f"{path.name} in chunks of {chunk}", torch.cat(pieces, -1), t["out.waveform"])


def test_codec_part_of_end_to_end(golden_root: Path) -> None:
    for path in fixtures(golden_root, "e2e_*.safetensors"):
        t, meta = load_file(path), metadata(path)
        codec = codec_of_folder(path.parent / path.stem.replace("e2e_", "ckpt_"))
        codes, _ = codec.encode(t["out.ref_audio_44k"][None, None])
        check(f"{path.name} reference codes", codes[0], t["out.ref_codes"])
        for case in meta["cases"]:
            audio = codec.decode(t[f"out.{case['name']}.codes"].long()[None])
            check(f"{path.name} {case['name']}", audio.flatten(), t[f"out.{case['name']}.audio"].flatten())


def test_released_key_list(golden_root: Path) -> None:
    """The tensors of the released file, folded, are exactly the parameters of the codec at full size."""
    (path,) = fixtures(golden_root, "real_checkpoint_shapes.json")
    (entry,) = (v for k, v in json.loads(path.read_text()).items() if k.startswith("codec.pth"))
    assert len(entry["shapes"]) == entry["tensors"] == 535
    assert sum(prod(shape) for shape in entry["shapes"].values()) == entry["parameters"] == 337_428_866
    state = {key: torch.empty(shape, device="meta") for key, shape in entry["shapes"].items()}
    folded = fold_weight_norm(state)
    with torch.device("meta"):
        codec = Codec(CodecConfig())
    own = codec.state_dict()
    assert len(folded) == 455
    assert {k: v.shape for k, v in folded.items()} == {k: v.shape for k, v in own.items()}
    assert not list(codec.buffers())
