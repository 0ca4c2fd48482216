"""The streaming speech decoder and XCodec1 against the reference's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from oscine.families.audex.codec.config import SpeechDecoderConfig
from oscine.families.audex.codec.speech_decoder import Chunk, SpeechDecoder, SpeechSession
from oscine.families.audex.weights.loading import load_xcodec
from tests.golden.audex_fixtures import check, fill, fixtures, read, record

TOL = 2e-5


def speech_decoders(golden_root: Path) -> list[tuple[str, SpeechDecoder, dict[str, Tensor], dict[str, Any]]]:
    found = []
    for path in fixtures(golden_root, "speech_decoder_*.safetensors"):
        tensors, meta = read(path)
        with torch.device("meta"):
            decoder = SpeechDecoder(SpeechDecoderConfig.from_dict(meta["config"]))
        fill(decoder, tensors)
        found.append((path.name, decoder, tensors, meta))
    return found


@torch.inference_mode()
def test_speech_decoder_stages(golden_root: Path) -> None:
    for name, decoder, t, _ in speech_decoders(golden_root):
        ids, module = t["token_ids"][None], decoder.module
        blocks = record({f"block{i}": block for i, block in enumerate(module.backbone.transformers)})
        projected = decoder.project(ids)
        after = module.look_ahead(projected, ids.shape[1])
        final = module.backbone(after)
        stages = {
            "embed": decoder.audex_speech_token_embedder(ids),
            "projected": projected,
            "after_lookahead": after,
            **blocks,
            "final_norm": final,
            "full_wav": module.head(final)[:, None],
            "batch2_wav": decoder(torch.cat([ids, ids.flip(1)])),
        }
        assert {key for key in t if key.startswith("block")} == set(blocks)
        for key, value in stages.items():
            check(f"{name} {key}", value, t[key], TOL)


@torch.inference_mode()
def test_speech_decoder_cached(golden_root: Path) -> None:
    for name, decoder, t, _ in speech_decoders(golden_root):
        ids, hop, steps = t["token_ids"].tolist(), decoder.config.hop_length, decoder.config.lookahead_steps
        lane, start = decoder.new_lane(), 0
        chunks = sorted(
            (key for key in t if key.startswith("decode_cached.")), key=lambda key: int(key.rpartition(".")[2])
        )
        assert chunks
        for key in chunks:
            count = t[key].shape[-1] // hop
            (samples,) = decoder.decode([Chunk(ids=ids[start : start + count + steps], frames=count, lane=lane)])
            check(f"{name} {key}", samples[None, None], t[key], TOL)
            start += count
        alone = t["decode_cached_no_lookahead_arg"]
        count = alone.shape[-1] // hop
        (samples,) = decoder.decode([Chunk(ids=ids[:count], frames=count, lane=decoder.new_lane())])
        check(f"{name} decode_cached_no_lookahead_arg", samples[None, None], alone, TOL)


def play(session: SpeechSession, events: list[Any], t: dict[str, Tensor], rate: int, label: str) -> None:
    cursor = 0
    for number, (op, *rest) in enumerate(events):
        if op == "reset":
            session.reset()
            cursor = 0
            continue
        assert op in ("push", "flush"), f"unknown event {op}"
        expected = rest[-1]
        if op == "push":
            found = session.push(t["token_ids"][cursor : cursor + rest[0]].tolist())
            cursor += rest[0]
        else:
            found = session.flush()
        assert [[rate, len(chunk)] for chunk in found] == [entry[:2] for entry in expected], f"{label} event {number}"
        for chunk, (_, _, key) in zip(found, expected, strict=True):
            check(f"{label} {key}", chunk, t[key], TOL)


@torch.inference_mode()
def test_speech_sessions(golden_root: Path) -> None:
    for name, decoder, t, meta in speech_decoders(golden_root):
        assert meta["sessions"]
        for label, session in meta["sessions"].items():
            stream = SpeechSession(decoder, session["chunk_frames"])
            play(stream, session["events"], t, decoder.config.sample_rate, f"{name} {label}")


@torch.inference_mode()
@pytest.mark.parametrize("portions", [[1] * 99, [5, 4, 5, 25], [23], [2, 19, 1]])
def test_streamed_equals_one_shot(golden_root: Path, portions: list[int]) -> None:
    """Without a chunk size, the first audio comes after look-ahead + 1 frames and all samples are those of one call."""
    for name, decoder, t, _ in speech_decoders(golden_root):
        ids, session = t["token_ids"].tolist(), SpeechSession(decoder)
        steps, pushed, chunks = decoder.config.lookahead_steps, 0, []
        for portion in portions:
            new = session.push(ids[pushed : pushed + portion])
            pushed = min(pushed + portion, len(ids))
            chunks += new
            assert sum(map(len, chunks)) == max(0, pushed - steps) * decoder.config.hop_length
        chunks += session.push(ids[pushed:]) + session.flush()
        check(name, torch.cat(chunks), t["full_wav"][0, 0], TOL)


@torch.inference_mode()
def test_xcodec(golden_root: Path) -> None:
    for path in fixtures(golden_root, "xcodec_*.safetensors"):
        t, meta = read(path)
        folder = path.parent / meta["weights"]
        if not folder.is_dir():
            pytest.skip(f"{path.name} needs the weights in {folder}")
        model = load_xcodec(folder, device=torch.device("cpu"))
        decoder = model.acoustic_decoder
        parts = {f"dec_block{i}": block for i, block in enumerate(decoder.block)}
        seen = record({"quantized": model.quantizer, "fc2_out": model.fc2, "dec_conv1": decoder.conv1, **parts})
        check("audio", model(t["codes"]), t["audio"], TOL)
        seen["fc2_out"] = seen["fc2_out"].transpose(1, 2)
        assert set(seen) == {key for key in t if key.startswith("dec_")} | {"quantized", "fc2_out"}
        for name, value in dict(seen).items():
            check(f"{path.name} {name}", value[..., : t[name].shape[-1]], t[name], TOL)
        one = model(t["codes"][..., :1])
        check("audio_one_frame", one, t["audio_one_frame"], TOL)
        hop = model.config.hop_length
        for key in (key for key in t if key.startswith("stage_audio")):
            kind = key.removeprefix("stage_audio").lstrip("_")
            ids = t["bad_ids"] if kind == "bad_ids" else t["codec_ids"]
            assert kind in ("", "bad_ids") or kind.startswith("cap"), f"unknown case {key}"
            limit = {"max_frames": int(kind[3:])} if kind.startswith("cap") else {}
            audio = model.decode_ids(ids, **limit)
            assert len(audio) == hop * min(len(ids), limit.get("max_frames", len(ids)))
            check(key, audio, t[key], TOL)
