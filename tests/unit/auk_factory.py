"""Tiny AuK checkpoints in every folder layout, with random weights and a byte-level tokenizer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn

from oscine.families.auk import AuKTransformer, AuKVAE
from oscine.families.auk.config import AuKConfig, ThinkerConfig
from oscine.families.auk.model.thinker import Thinker

RELEASED_ARCH: dict[str, Any] = {
    "dim": 1536, "heads": 24, "dim_head": 64, "ff_mult": 2, "text_hidden_dim": 2048, "num_layers": 10,
    "num_single_layers": 20, "attn_mask_enabled": True,
}  # fmt: skip
RELEASED_VAE: dict[str, Any] = {
    "upsample_rates": [5, 4, 3, 2, 2, 2], "upsample_kernel_sizes": [10, 8, 6, 4, 4, 4],
    "upsample_initial_channel": 1536, "resblock_kernel_sizes": [3, 7, 11],
    "resblock_dilation_sizes": [[1, 3, 5]] * 3, "downsample_rates": [2, 2, 2, 3, 4, 5],
    "downsample_channels": [12, 24, 48, 96, 192, 384, 768], "latent_dim": 64, "snake_logscale": True,
    "use_vae": True, "causal": True, "act_causal": True, "flow_hidden_channels": 256,
}  # fmt: skip
RELEASED_THINKER: dict[str, Any] = {
    "thinker_config": {
        "text_config": {
            "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
            "num_attention_heads": 16, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
            "head_dim": 128,
        },
        "audio_config": {
            "d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
            "num_mel_bins": 128, "n_window": 100, "output_dim": 2048,
        },
        "audio_token_index": 151646, "audio_start_token_id": 151647, "audio_end_token_id": 151648,
    }
}  # fmt: skip

TINY_ARCH = {**RELEASED_ARCH, "dim": 32, "heads": 2, "dim_head": 16, "text_hidden_dim": 24, "num_layers": 1,
             "num_single_layers": 2}  # fmt: skip
TINY_VAE: dict[str, Any] = {
    **RELEASED_VAE, "upsample_rates": [20, 24], "upsample_kernel_sizes": [40, 48], "upsample_initial_channel": 8,
    "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1]], "downsample_rates": [24, 20],
    "downsample_channels": [2, 3, 4], "latent_dim": 8,
}  # fmt: skip
SPECIALS = ("<|im_start|>", "<|im_end|>", "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>", "<|endoftext|>")
VOCAB = 256 + len(SPECIALS)


def thinker_values() -> dict[str, Any]:
    return {
        "thinker_config": {
            "text_config": {
                "vocab_size": VOCAB, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
            },
            "audio_config": {
                "d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 24,
                "num_mel_bins": 16, "n_window": 100, "output_dim": 24,
            },
            "audio_token_index": 258, "audio_start_token_id": 259, "audio_end_token_id": 260,
        }
    }  # fmt: skip


def config_values(name: str = "AuK") -> dict[str, Any]:
    vae = {key: value for key, value in TINY_VAE.items() if key != "latent_dim"}
    return {
        "model": {
            "name": name,
            "arch": {**TINY_ARCH, "depth": 30, "dropout": 0.1},
            "vae": {
                "vae_name": "BigVGANFlowVAE",
                "target_sample_rate": 24000,
                "downsample_rate": 480,
                "latent_dim": TINY_VAE["latent_dim"],
                "model_init_kwargs": {**vae, "latent_dim": "${model.vae.latent_dim}"},
            },
            "text_encoder": {"text_encoder_path": "../Qwen2.5-Omni-3B"},
        }
    }


def tiny_config(name: str = "AuK") -> AuKConfig:
    values = config_values(name)
    values["model"]["vae"]["model_init_kwargs"]["latent_dim"] = TINY_VAE["latent_dim"]
    return AuKConfig.from_dict(values, source="tiny")


@dataclass(frozen=True)
class TinyWeights:
    dit: dict[str, Tensor]
    vae: dict[str, Tensor]
    thinker: dict[str, Tensor]


def tiny_weights(seed: int = 0) -> TinyWeights:
    """Random tensors under the released keys."""
    config = tiny_config()
    dit = random_state(AuKTransformer.from_config(config.dit), seed)
    vae = random_state(AuKVAE.from_config(config.vae), seed + 1)
    thinker = random_state(Thinker(ThinkerConfig.from_dict(thinker_values(), source="tiny")), seed + 2)
    layers = thinker_values()["thinker_config"]["text_config"]["num_hidden_layers"]
    return TinyWeights(
        dit={
            **{f"transformer.{key}": value for key, value in dit.items()},
            "layer_weights": torch.linspace(-1, 1, layers),
            "layer_scale": torch.ones(1),
        },
        vae={**vae, "global_log_std": torch.ones_like(vae["global_log_std"]), "flow.0.weight": torch.zeros(2)},
        thinker={
            **{f"thinker.{key}": value for key, value in thinker.items()},
            "thinker.lm_head.weight": torch.zeros(2, 2),
            "talker.model.norm.weight": torch.zeros(2),
        },
    )


def random_state(module: nn.Module, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for key, value in module.state_dict().items():
        fixed = key.endswith(("filter", "inv_freq"))
        noise = torch.randn(value.shape, generator=generator) / max(1, value.shape[-1]) ** 0.5
        state[key] = value.clone() if fixed else 1 + 0.1 * noise if key.endswith("norm.weight") else noise
        if key.endswith("weight_g"):
            state[key] = 0.5 + 0.1 * noise.abs()
    return state


def write_tokenizer(folder: Path) -> None:
    """Bytes are ids 0..255; the special tokens follow."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    tokenizer.save(str(folder / "tokenizer.json"))


def write_released(root: Path, *, name: str = "AuK", weights: TinyWeights | None = None) -> Path:
    """`root/AuK` beside `root/Qwen2.5-Omni-3B`; the first is returned."""
    weights = weights or tiny_weights()
    folder, encoder = root / name, root / "Qwen2.5-Omni-3B"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config_values(name), sort_keys=False), encoding="utf-8")
    file = "auk_flash.safetensors" if name == "AuK-Flash" else "auk_base.safetensors"
    save_file(weights.dit, folder / file)
    save_file(weights.vae, folder / "vae.safetensors")
    if not encoder.exists():
        write_encoder(encoder, weights)
    return folder


def write_both(root: Path) -> Path:
    """`root` with `AuK` and `AuK-Flash` beside the encoder of both."""
    write_released(root)
    write_released(root, name="AuK-Flash")
    return root


def write_encoder(folder: Path, weights: TinyWeights) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "config.json").exists():
        (folder / "config.json").write_text(json.dumps(thinker_values()), encoding="utf-8")
    write_tokenizer(folder)
    names = sorted(weights.thinker)
    shards = {f"model-0000{i + 1}-of-00002.safetensors": names[i::2] for i in range(2)}
    for shard, keys in shards.items():
        save_file({key: weights.thinker[key] for key in keys}, folder / shard)
    index = {"weight_map": {key: shard for shard, keys in shards.items() for key in keys}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def write_training(root: Path, weights: TinyWeights | None = None) -> Path:
    """As released, but the DiT is a training checkpoint."""
    weights = weights or tiny_weights()
    folder = write_released(root, weights=weights)
    (folder / "auk_base.safetensors").unlink()
    ema = {f"ema_model.{key}": value for key, value in weights.dit.items()}
    extras = {"initted": torch.tensor(True), "step": torch.tensor(7)}
    torch.save({"ema_model_state_dict": {**ema, **extras}, "step": 7}, folder / "model_7.pt")
    return folder


def write_flat(
    root: Path,
    *,
    variant: str = "base",
    defaults: dict[str, Any] | None = None,
    weights: TinyWeights | None = None,
) -> Path:
    """Everything in one folder."""
    weights = weights or tiny_weights()
    folder = root / "flat"
    folder.mkdir(parents=True)
    values = {
        **thinker_values(),
        "model_type": "qwen2_5_omni",
        "dit": dict(TINY_ARCH),
        "vae": dict(TINY_VAE),
        "variant": variant,
        "defaults": {"nfe": 32, "cfg": 2.0, "sway": -1.0} if defaults is None else defaults,
    }
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    save_file(weights.dit, folder / "auk.safetensors")
    save_file(weights.vae, folder / "vae.safetensors")
    write_encoder(folder, weights)
    return folder
