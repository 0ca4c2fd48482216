"""Small Audex models for unit tests: the miniature checkpoint, and one with a random hybrid language model."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from string import ascii_letters

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from oscine.families.audex.config import HybridConfig
from oscine.families.audex.family import AudexFamily, load, row_rule
from oscine.families.audex.model.hybrid import HybridLM
from oscine.families.audex.weights.loading import AudexModel, load_model

CPU = torch.device("cpu")


def tiny_folder(golden_root: Path) -> Path:
    """The miniature checkpoint; skips by name when the root has none."""
    folder = golden_root / "audex" / "tiny_audex"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return folder


def dense_family(golden_root: Path) -> AudexFamily:
    """The miniature checkpoint as a family."""
    return load(tiny_folder(golden_root), name="tiny", device=CPU, dtype=torch.float32)


def int8_family(golden_root: Path) -> AudexFamily:
    """The miniature checkpoint with int8 weights."""
    return load(tiny_folder(golden_root), name="tiny", device=CPU, dtype=torch.int8)


def hybrid_family(golden_root: Path) -> AudexFamily:
    """The same codecs and tokenizer around a random hybrid language model with every kind of block."""
    model = load_model(tiny_folder(golden_root), device=CPU, dtype=torch.float32)
    lm = random_hybrid(model.lm.config.vocab_size)
    block = model.tokens.speech
    lm.lm_head.weight[block.offset : block.offset + block.size] *= 4  # else it would rarely speak
    fields = {name: getattr(model, name) for name in ("speech_decoder", "xcodec", "tokenizer", "tokens")}
    return AudexFamily(AudexModel(lm=lm, tower=None, **fields), row_rule(lm, CPU, torch.float32), name="h")


def wordy_folder(source: Path, target: Path) -> Path:
    """A copy of the miniature that answers in letters and spaces, where the original makes few words."""
    shutil.copytree(source, target)
    shard = next((target / "checkpoint_folder_full").glob("model-00001-*.safetensors"))
    tokenizer = Tokenizer.from_file(str(target / "checkpoint_folder_full" / "tokenizer.json"))
    tensors = load_file(shard)
    letters = [token for sign in ascii_letters + " " for token in tokenizer.encode(sign, add_special_tokens=False).ids]
    tensors["lm_head.weight"][letters] *= 30
    save_file(tensors, shard)
    return target


def random_hybrid(vocab_size: int) -> HybridLM:
    """A hybrid model with odd sizes and weights large enough that choices differ."""
    config = HybridConfig(
        vocab_size=vocab_size,
        hidden_size=24,
        blocks=("mamba", "moe", "attention", "mlp", "mamba", "moe"),
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=10,
        mamba_num_heads=4,
        mamba_head_dim=6,
        ssm_state_size=8,
        n_groups=2,
        conv_kernel=4,
        chunk_size=16,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=12,
        moe_shared_expert_intermediate_size=20,
        routed_scaling_factor=2.5,
        layer_norm_epsilon=1e-5,
        max_position_embeddings=4096,
        intermediate_size=28,
    )
    generator = torch.Generator().manual_seed(5)
    lm = HybridLM(replace(config))
    for name, value in lm.named_parameters():
        spread = 0.1 if value.dim() == 1 else 0.4
        noise = torch.randn(value.shape, generator=generator) * spread
        value.requires_grad_(False).copy_(noise + (1.0 if "norm" in name else 0.0))
    return lm.eval()
