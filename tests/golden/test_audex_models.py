"""The language models, the audio tower and the norms against the reference's numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from oscine.families.audex.config import AudioConfig, DenseConfig, HybridConfig
from oscine.families.audex.model.audio_tower import AudioTower
from oscine.families.audex.model.dense import DenseLM
from oscine.families.audex.model.hybrid import HybridLM
from oscine.families.audex.model.mamba import Mamba, gated_group_norm
from oscine.families.audex.model.moe import Router
from oscine.families.audex.weights.rules import LM_RULES, lm_keys
from oscine.layers.norm import plain_rms_norm, rms_norm, upcast_rms_norm
from tests.golden.audex_fixtures import check, fill, fixtures, read, record

DENSE_TOL, HYBRID_TOL, AUDIO_TOL = 2e-5, 5e-5, 2e-5
LM = DenseLM | HybridLM
Model = TypeVar("Model", DenseLM, HybridLM)


def prefill(model: LM, embeddings: Tensor) -> tuple[Tensor, Any]:
    lane = model.new_lane(4)  # grows, so that growth is exercised
    return model.prefill(embeddings, lane), lane


def greedy(model: LM, hidden: Tensor, lane: Any, count: int) -> tuple[list[int], list[Tensor]]:
    tokens, rows = [], []
    logits = model.logits(hidden[-1])
    while True:
        rows.append(logits)
        tokens.append(int(logits.argmax()))
        if len(tokens) == count:
            return tokens, rows
        pair = torch.tensor([tokens[-1]] * 2)
        logits = model.logits(model.decode(pair, [lane]))[0]


def model_of(path: Path, build: Callable[[Any], Model]) -> tuple[Model, dict[str, Tensor]]:
    """What `build` makes of a fixture's configuration, with its weights; and all its tensors."""
    tensors, meta = read(path)
    with torch.device("meta"):
        model = build(meta["config"])
    fill(model, lm_tensors(tensors, model.config.tie_word_embeddings), LM_RULES)
    return model, tensors


def lm_tensors(tensors: dict[str, Tensor], tied: bool) -> dict[str, Tensor]:
    """The weights among `tensors` that the loader would take from a checkpoint."""
    weights = {key.removeprefix("w."): Path() for key in tensors if key.startswith("w.")}
    return {f"w.{key}": tensors[f"w.{key}"] for key in lm_keys(weights, tied=tied)}


def dense_of(path: Path) -> tuple[DenseLM, dict[str, Tensor]]:
    return model_of(path, lambda config: DenseLM(DenseConfig.from_dict(config)))


def hybrid_of(path: Path) -> tuple[HybridLM, dict[str, Tensor]]:
    return model_of(path, lambda config: HybridLM(HybridConfig.from_dict(config)))


@torch.inference_mode()
def test_dense_lm(golden_root: Path) -> None:
    for path in fixtures(golden_root, "dense_lm_*.safetensors"):
        model, t = dense_of(path)
        outputs = record({f"layer{i}": layer for i, layer in enumerate(model.model.layers)})
        hidden, lane = prefill(model, model.embed(t["input_ids"]))
        for name in (f"layer{i}" for i in range(model.config.num_hidden_layers)):
            check(f"{path.name} {name}", outputs[name], t[name], DENSE_TOL)
        check("final_hidden", hidden, t["final_hidden"], DENSE_TOL)
        check("logits", model.logits(hidden), t["logits"], DENSE_TOL)
        assert greedy(model, hidden, lane, len(t["greedy"]))[0] == t["greedy"].tolist()
        from_embeds, _ = prefill(model, t["embeds_in"])
        check("logits_from_embeds", model.logits(from_embeds), t["logits_from_embeds"], DENSE_TOL)


@torch.inference_mode()
def test_hybrid_lm(golden_root: Path) -> None:
    for path in fixtures(golden_root, "hybrid_lm_*.safetensors"):
        model, t = hybrid_of(path)
        blocks = dict(enumerate(model.backbone.layers))
        routers = {i: b.mixer.gate for i, b in blocks.items() if b.kind == "moe"}
        outputs = record({f"layer{i}": block for i, block in blocks.items()})
        routed = record({f"router{i}": router for i, router in routers.items()})
        hidden, lane = prefill(model, model.embed(t["input_ids"]))
        for i, block in blocks.items():
            check(f"{path.name} layer{i}", outputs[f"layer{i}"], t[f"layer{i}"], HYBRID_TOL)
            if isinstance(block.mixer, Mamba):
                check(f"state{i}.conv", lane.states[block.mixer.conv_name], t[f"state{i}.conv"], HYBRID_TOL)
                check(f"state{i}.ssm", lane.states[block.mixer.ssm_name], t[f"state{i}.ssm"], HYBRID_TOL)
        for name, (experts, weights) in routed.items():
            ordered, order = experts.sort(dim=-1)
            check(f"{name}.experts", ordered, t[f"{name}.experts"], 0)
            check(f"{name}.weights", weights.gather(-1, order), t[f"{name}.weights"], HYBRID_TOL)
        check("final_hidden", hidden, t["final_hidden"], HYBRID_TOL)
        check("logits", model.logits(hidden), t["logits"], HYBRID_TOL)
        tokens, rows = greedy(model, hidden, lane, len(t["greedy"]))
        assert tokens == t["greedy"].tolist()
        check("greedy_logits", torch.stack(rows), t["greedy_logits"], HYBRID_TOL)


@torch.inference_mode()
def test_hybrid_prefill_does_not_depend_on_the_chunk(golden_root: Path) -> None:
    """One token at a time through the recurrence ends where the chunked scan of the whole prompt does."""
    for path in fixtures(golden_root, "hybrid_lm_*.safetensors"):
        model, t = hybrid_of(path)
        lane = model.new_lane(len(t["input_ids"]))
        for token in t["input_ids"]:
            hidden = model.decode(token.expand(2), [lane])[0]
        check("logits", model.logits(hidden), t["logits"][-1], HYBRID_TOL)
        assert isinstance(next(r for r in model.modules() if isinstance(r, Router)), Router)


@torch.inference_mode()
def test_audio_tower(golden_root: Path) -> None:
    for path in fixtures(golden_root, "audio_encoder_*.safetensors"):
        t, meta = read(path)
        projector = meta["projector"]
        values = {
            "audio_config": meta["audio_config"],
            "audio_encoder_hidden_size": projector["audio_encoder_hidden_size"],
            "audio_projector_intermediate_size": projector["intermediate_size"],
            "audio_projector_activation": projector["activation"],
            "audio_projector_norm_eps": projector["norm_eps"],
        }
        with torch.device("meta"):
            tower = AudioTower(AudioConfig.from_dict(values), projector["text_hidden_size"])
        fill(tower, t)
        encoded = tower.audio_encoder(t["input_features"])
        check(f"{path.name} encoder_out", encoded, t["encoder_out"], AUDIO_TOL)
        check("projected", tower.audio_projector(encoded), t["projected"], AUDIO_TOL)
        rows = tower(t["input_features"])
        items = sorted(key for key in t if key.startswith("item"))
        assert torch.equal(torch.cat([t[key] for key in items]), t["projected"].flatten(0, 1))
        check("items", rows.flatten(0, 1), torch.cat([t[key] for key in items]), AUDIO_TOL)


def test_norms(golden_root: Path) -> None:
    """The dtype rules differ; in bfloat16 a wrong one is off by more than one unit in the last place."""
    for path in fixtures(golden_root, "norms*.safetensors"):
        t, meta = read(path)
        eps, group = meta["eps"], meta["gated_group_size"]
        for dtype, tol in ((torch.float32, 1e-6), (torch.bfloat16, 2.0**-8)):
            x, weight, gate = t["x"].to(dtype), t["weight"].to(dtype), t["gate"].to(dtype)
            found = {
                "dense": rms_norm(x, weight, eps["dense"]),
                "hybrid": upcast_rms_norm(x, weight, eps["hybrid"]),
                "hybrid_gated": gated_group_norm(x, gate, weight, group, eps["hybrid_gated"]),
                "decoder": plain_rms_norm(x, weight, eps["decoder"]),
                "projector": upcast_rms_norm(x, weight, eps["projector"]),
            }
            assert set(found) == set(eps), f"no test for {set(eps) ^ set(found)}"
            for name, value in found.items():
                expected = t[f"{name}_{str(dtype).removeprefix('torch.')}"]
                assert value.dtype == expected.dtype
                if dtype == torch.float32:
                    check(name, value, expected, tol)
                else:
                    assert bool(((value - expected).abs() <= tol * expected.abs()).all()), name
