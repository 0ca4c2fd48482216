"""The checkpoint's configuration: released defaults, the hybrid, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from oscine.errors import ConfigMismatch
from oscine.families.audio8.config import Audio8Config, GenerationDefaults, HybridConfig, LMConfig
from tests.audio8_toys import TINY

MAMBA = {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16}


def test_an_empty_config_is_the_released_dense_model() -> None:
    config = LMConfig.from_dict({})
    assert config == LMConfig()
    assert (config.dim, config.n_layer, config.n_local_heads, config.vocab_size) == (896, 24, 2, 155776)
    assert config.semantic_end_id - config.semantic_begin_id + 1 == config.codebook_size == 4096
    assert config.hybrid is None
    assert config.max_length_of_prompt == 2047


@pytest.mark.parametrize("extra", [{"slow_backbone": "falcon_h1"}, {}, {"slow_backbone": None}])
def test_the_hybrid_is_told_by_name_or_by_its_fields(extra: dict[str, Any]) -> None:
    config = LMConfig.from_dict({**MAMBA, **extra})
    assert config.hybrid == HybridConfig(**MAMBA)
    assert config.hybrid.conv_dim == 64 + 2 * 16
    assert config.hybrid.embedding_multiplier == 1.0
    assert LMConfig.from_dict({"slow_backbone": "other"}).hybrid is None


def test_the_hybrids_sizes_have_no_default() -> None:
    with pytest.raises(ConfigMismatch, match="'mamba_d_ssm' is missing"):
        LMConfig.from_dict({"slow_backbone": "falcon_h1"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_head": 15}, r"n_head \(15\) must be a multiple of n_local_heads \(2\)"),
        ({"fast_n_head": 15}, "fast_n_head"),
        ({"head_dim": 63}, "head_dim must be even, got 63"),
        ({"fast_head_dim": 63}, "fast_head_dim must be even"),
        ({"codebook_size": 4095}, "must span codebook_size=4095 ids, got 4096"),
        ({"vocab_size": 155773}, "semantic_end_id must be below vocab_size"),
        ({"eos_token_id": 155776}, "eos_token_id must be below vocab_size"),
        ({"eos_token_id": 151678}, "eos_token_id must not be a semantic id"),
        ({"n_layer": 0}, "n_layer must be >= 1 and <= 1024, got 0"),
        ({"n_head": "14"}, "n_head must be an integer, got '14'"),
        ({"rope_base": 0}, "rope_base must be > 0"),
        ({"num_codebooks": 1}, "num_codebooks must be >= 2"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings must be one of True"),
        ({**MAMBA, "mamba_rms_norm": True}, "mamba_rms_norm must be one of False, got True"),
        ({**MAMBA, "attention_bias": True}, "attention_bias must be one of False"),
        ({**MAMBA, "hidden_act": "gelu"}, "hidden_act must be one of 'silu'"),
        ({**MAMBA, "mamba_n_heads": 5}, "mamba_n_heads \\* mamba_d_head must equal mamba_d_ssm"),
        ({**MAMBA, "mamba_n_groups": 3}, "mamba_n_heads must be a multiple of 3"),
        ({**MAMBA, "mlp_multipliers": [1.0]}, "mlp_multipliers must hold 2"),
        ({**MAMBA, "ssm_multipliers": [1.0, 2.0]}, "ssm_multipliers must hold 5"),
        ({"n_local_head": 2}, "did you mean 'n_local_heads'"),
        ({"codec_post_n_layers": 3}, "did you mean 'codec_post_n_layer'"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigMismatch, match=f"config.json: .*{message}"):
        LMConfig.from_dict(changes)


def test_other_unknown_keys_are_ignored_aloud(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = LMConfig.from_dict({"auto_map": {}, "num_key_value_heads": 14, "zebra": 1})
    assert config == LMConfig()
    assert [record.getMessage() for record in caplog.records] == ["config.json: ignoring unknown keys zebra"]


def folder_with(path: Path, **files: dict[str, Any]) -> Path:
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def test_a_folder_with_nothing_but_a_config_has_the_released_defaults(tmp_path: Path) -> None:
    config = Audio8Config.from_folder(folder_with(tmp_path, config={}))
    assert config.lm == LMConfig()
    assert config.generation == GenerationDefaults()
    assert dataclasses.asdict(config.generation)["max_new_tokens"] == 512
    assert (config.codec.post_n_layer, config.codec.frame_length) == (8, 2048)
    assert (config.text_frontend, dict(config.speakers), config.voice_cloning) == (None, {}, True)
    assert config.piece_weight == 150


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config": {"codec_config": 3}}, "codec_config must be an object"),
        ({"config": TINY}, "num_codebooks must be the codec's 10, got 4"),
        ({"config": {"codec_sample_rate": 24000}}, "codec_sample_rate must be the codec's 44100, got 24000"),
        ({"config": {}, "generation_config": {"temperature": -1}}, r"generation_config.json: temperature must be >= 0"),
        ({"config": {}, "generation_config": {"top_k": "50"}}, "top_k must be an integer"),
        ({"config": {}, "preprocessor_config": {"num_codebooks": 9}}, "num_codebooks must agree with config.json"),
        ({"config": {}, "preprocessor_config": {"voice_cloning": "no"}}, "voice_cloning must be true or false"),
        (
            {"config": {}, "preprocessor_config": {"speakers": {"a": -1}}},
            "the tag of 'a' must be an integer >= 0",
        ),
        (
            {"config": {}, "preprocessor_config": {"speakers": {"a": "b"}}},
            "speakers: 'a' must be an integer or have a tag",
        ),
        ({"config": {}, "preprocessor_config": {"speakers": {"a": {"gender": "male"}}}}, "must be an integer or have"),
        ({"config": {}, "preprocessor_config": {"speakers": ["a"]}}, "speakers must map names to speakers"),
        (
            {"config": {}, "preprocessor_config": {"speakers": {"a": {"tag": 1, "gender": "tenor"}}}},
            "the gender of 'a' must be one of",
        ),
        ({"config": {}, "preprocessor_config": {"piece_weight": 5}}, "piece_weight must be >= 12"),
    ],
)
def test_folders_that_are_refused(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigMismatch, match=message):
        Audio8Config.from_folder(folder_with(tmp_path, **files))
