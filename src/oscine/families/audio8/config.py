"""The dimensions and defaults of a checkpoint, read from its folder (AUDIO8 spec, section 2).

A field that a folder leaves out has the value of the 0.6B release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oscine.checkpoint.config import (
    MOST_LAYERS,
    MOST_POSITIONS,
    bounded,
    check_unknown_keys,
    field_names,
    parse_record,
    read_json,
    read_json_if_present,
    require,
)
from oscine.families.audio8.codec.kinds import POST_FIELDS, AnyCodecConfig, codec_config
from oscine.families.audio8.speakers import Speaker, parse_speakers

IGNORED = frozenset(
    {
        # said by every Hugging Face folder, or about training
        "_name_or_path", "architectures", "auto_map", "bos_token_id", "dropout", "dtype", "initializer_range",
        "is_encoder_decoder", "model_type", "pad_token_id", "torch_dtype", "transformers_version", "use_cache",
        "use_gradient_checkpointing",
        # names of other classes for what we read elsewhere
        "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "hidden_size", "rms_norm_eps", "rope_theta",
        "max_position_embeddings", "expansion_factor",
        # unused by this computation
        "lm_head_multiplier", "mamba_expand", "mamba_norm_before_gate", "mamba_use_mlp", "codec_filename",
    }
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class HybridConfig:
    """The Falcon-H1 part of the 0.1B class (AUDIO8 spec, 3.3); field names are the checkpoint's."""

    mamba_d_ssm: int = bounded(least=1)
    mamba_n_heads: int = bounded(least=1)
    mamba_d_head: int = bounded(least=1)
    mamba_d_state: int = bounded(least=1)
    mamba_n_groups: int = bounded(1, least=1)
    mamba_d_conv: int = bounded(4, least=1)
    mamba_chunk_size: int = bounded(128, least=1)
    mamba_conv_bias: bool = True
    mamba_proj_bias: bool = bounded(False, choices=(False,))
    mamba_rms_norm: bool = bounded(False, choices=(False,))
    projectors_bias: bool = bounded(False, choices=(False,))
    attention_bias: bool = bounded(False, choices=(False,))
    mlp_bias: bool = bounded(False, choices=(False,))
    hidden_act: str = bounded("silu", choices=("silu",))
    embedding_multiplier: float = 1.0
    attention_in_multiplier: float = 1.0
    attention_out_multiplier: float = 1.0
    key_multiplier: float = 1.0
    ssm_in_multiplier: float = 1.0
    ssm_out_multiplier: float = 1.0
    mlp_multipliers: tuple[float, ...] = (1.0, 1.0)
    ssm_multipliers: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 1.0)

    @property
    def conv_dim(self) -> int:
        """Channels of the causal convolution: x, B and C."""
        return self.mamba_d_ssm + 2 * self.mamba_n_groups * self.mamba_d_state

    def check(self, source: str) -> None:
        """Raises ConfigMismatch when values do not fit each other."""
        heads = self.mamba_n_heads
        inner = heads * self.mamba_d_head
        require(
            [
                (
                    inner != self.mamba_d_ssm,
                    f"mamba_n_heads * mamba_d_head must equal mamba_d_ssm ({self.mamba_d_ssm}), got {inner}",
                ),
                (
                    heads % self.mamba_n_groups != 0,
                    f"mamba_n_heads must be a multiple of {self.mamba_n_groups} (mamba_n_groups), got {heads}",
                ),
                (len(self.mlp_multipliers) != 2, f"mlp_multipliers must hold 2 numbers: {self.mlp_multipliers}"),
                (len(self.ssm_multipliers) != 5, f"ssm_multipliers must hold 5 numbers: {self.ssm_multipliers}"),
            ],
            source=source,
        )


@dataclass(frozen=True, kw_only=True)
class LMConfig:
    """The language model, dense (`hybrid` is None) or hybrid; field names are the checkpoint's."""

    vocab_size: int = bounded(155776, least=1)
    dim: int = bounded(896, least=1)
    n_layer: int = bounded(24, least=1, most=MOST_LAYERS)
    n_head: int = bounded(14, least=1)
    n_local_heads: int = bounded(2, least=1)
    head_dim: int = bounded(64, least=2)
    intermediate_size: int = bounded(4864, least=1)
    max_seq_len: int = bounded(2048, least=2, most=MOST_POSITIONS)
    rope_base: float = bounded(1e6, above=0)
    norm_eps: float = bounded(1e-6, above=0)
    attention_qkv_bias: bool = True
    attention_qk_norm: bool = False
    attention_o_bias: bool = False
    tie_word_embeddings: bool = bounded(True, choices=(True,))
    codebook_size: int = bounded(4096, least=1)
    num_codebooks: int = bounded(10, least=2, most=MOST_LAYERS)
    semantic_begin_id: int = bounded(151678, least=0)
    semantic_end_id: int = bounded(155773, least=0)
    eos_token_id: int = bounded(151645, least=0)
    n_fast_layer: int = bounded(4, least=1, most=MOST_LAYERS)
    fast_dim: int = bounded(896, least=1)
    fast_n_head: int = bounded(14, least=1)
    fast_n_local_heads: int = bounded(2, least=1)
    fast_head_dim: int = bounded(64, least=2)
    fast_intermediate_size: int = bounded(4864, least=1)
    fast_attention_qkv_bias: bool = False
    fast_attention_qk_norm: bool = False
    fast_attention_o_bias: bool = False
    norm_fastlayer_input: bool = True
    ras_window_size: int = bounded(10, least=0)
    ras_temperature: float = bounded(1.0, least=0)
    ras_top_p: float = bounded(0.9, above=0)
    codec_sample_rate: int = bounded(44100, least=1)
    codec_frame_size: int = bounded(2048, least=1)
    hybrid: HybridConfig | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str = "config.json") -> LMConfig:
        """Config from parsed JSON. Raises ConfigMismatch, naming `source`, for anything that does not fit.

        A `slow_backbone` of `falcon_h1`, or the presence of `mamba_d_ssm`, makes it hybrid.
        """
        is_hybrid = values.get("slow_backbone") == "falcon_h1" or values.get("mamba_d_ssm") is not None
        own = {*field_names(cls, HybridConfig), "slow_backbone", "codec_config"} - {"hybrid"}
        known = own | {f"codec_post_{name}" for name in POST_FIELDS}
        check_unknown_keys(values, known, IGNORED, source=source)
        usable = {key: value for key, value in values.items() if key != "hybrid"}
        config = parse_record(cls, usable, source=source)
        if is_hybrid:
            hybrid = parse_record(HybridConfig, values, source=source)
            hybrid.check(source)
            config = dataclasses.replace(config, hybrid=hybrid)
        config._check(source)
        return config

    @property
    def max_length_of_prompt(self) -> int:
        """Columns a prompt may have, so that at least one frame fits."""
        return self.max_seq_len - 1

    def _check(self, source: str) -> None:
        size = self.semantic_end_id - self.semantic_begin_id + 1
        require(
            [
                (
                    self.n_head % self.n_local_heads != 0,
                    f"n_head ({self.n_head}) must be a multiple of n_local_heads ({self.n_local_heads})",
                ),
                (
                    self.fast_n_head % self.fast_n_local_heads != 0,
                    f"fast_n_head ({self.fast_n_head}) must be a multiple of fast_n_local_heads"
                    f" ({self.fast_n_local_heads})",
                ),
                (self.head_dim % 2 != 0, f"head_dim must be even, got {self.head_dim}"),
                (self.fast_head_dim % 2 != 0, f"fast_head_dim must be even, got {self.fast_head_dim}"),
                (
                    size != self.codebook_size,
                    f"semantic_begin_id..semantic_end_id must span codebook_size={self.codebook_size} ids, got {size}",
                ),
                (
                    self.semantic_end_id >= self.vocab_size,
                    f"semantic_end_id must be below vocab_size ({self.vocab_size}), got {self.semantic_end_id}",
                ),
                (
                    self.eos_token_id >= self.vocab_size,
                    f"eos_token_id must be below vocab_size ({self.vocab_size}), got {self.eos_token_id}",
                ),
                (
                    self.semantic_begin_id <= self.eos_token_id <= self.semantic_end_id,
                    f"eos_token_id must not be a semantic id, got {self.eos_token_id}",
                ),
            ],
            source=source,
        )


@dataclass(frozen=True, kw_only=True)
class GenerationDefaults:
    """How the checkpoint wants to be sampled when the caller says nothing."""

    do_sample: bool = True
    temperature: float = bounded(0.7, least=0)
    top_k: int = bounded(50, least=0)
    top_p: float = bounded(0.9, above=0)
    max_new_tokens: int = bounded(512, least=1)


PIECE_WEIGHT = 150
"""Longest piece in `text.split.speech_weight` units: the publishers advise at most 150 characters (AUDIO8 spec, 5)."""


@dataclass(frozen=True, kw_only=True)
class FrontEndConfig:
    """What `preprocessor_config.json` says; all but the first three keys are our own, as is `speakers`."""

    num_codebooks: int | None = None
    semantic_begin_id: int | None = None
    audio_sampling_rate: int | None = None
    text_frontend: str | None = None
    voice_cloning: bool = True
    piece_weight: int = bounded(PIECE_WEIGHT, least=12)


@dataclass(frozen=True, kw_only=True)
class Audio8Config:
    """Everything a checkpoint folder says about itself.

    `text_frontend` names the preparation of text the model was trained with (None: its raw text), `speakers` the
    voices it was trained with, the first one its default, `voice_cloning` whether it takes a reference,
    `piece_weight` how much text it speaks in one go.
    """

    lm: LMConfig
    codec: AnyCodecConfig
    generation: GenerationDefaults
    text_frontend: str | None = None
    speakers: Mapping[str, Speaker] = dataclasses.field(default_factory=dict)
    voice_cloning: bool = True
    piece_weight: int = PIECE_WEIGHT

    @classmethod
    def from_folder(cls, path: Path) -> Audio8Config:
        """Config of the checkpoint folder `path`. Raises MissingFile or ConfigMismatch."""
        values = read_json(path / "config.json")
        source = str(path / "config.json")
        lm = LMConfig.from_dict(values, source=source)
        codec = codec_config(values, source)
        generation_path = path / "generation_config.json"
        generation = read_json_if_present(generation_path) or {}
        front_path = path / "preprocessor_config.json"
        front_values = read_json_if_present(front_path) or {}
        front = parse_record(FrontEndConfig, front_values, source=str(front_path))
        _check_agreement(lm, codec, front, source, str(front_path))
        return cls(
            lm=lm,
            codec=codec,
            generation=parse_record(GenerationDefaults, generation, source=str(generation_path)),
            text_frontend=front.text_frontend,
            speakers=parse_speakers(front_values.get("speakers", {}), str(front_path)),
            voice_cloning=front.voice_cloning,
            piece_weight=front.piece_weight,
        )


def _check_agreement(
    lm: LMConfig, codec: AnyCodecConfig, front: FrontEndConfig, source: str, front_source: str
) -> None:
    require(
        [
            (
                lm.num_codebooks != codec.num_codebooks,
                f"num_codebooks must be the codec's {codec.num_codebooks}, got {lm.num_codebooks}",
            ),
            (
                lm.codec_sample_rate != codec.sample_rate,
                f"codec_sample_rate must be the codec's {codec.sample_rate}, got {lm.codec_sample_rate}",
            ),
            (
                lm.codec_frame_size != codec.frame_length,
                f"codec_frame_size must be the codec's {codec.frame_length}, got {lm.codec_frame_size}",
            ),
        ],
        source=source,
    )
    require(
        [
            (
                front.voice_cloning and not codec.encodes,
                "voice_cloning must be false: the codec that codec_config describes has no encoder",
            )
        ],
        source=front_source,
    )
    stated = {
        "num_codebooks": (front.num_codebooks, lm.num_codebooks),
        "semantic_begin_id": (front.semantic_begin_id, lm.semantic_begin_id),
        "audio_sampling_rate": (front.audio_sampling_rate, codec.sample_rate),
    }
    require(
        [
            (given is not None and given != meant, f"{key} must agree with config.json ({meant}), got {given}")
            for key, (given, meant) in stated.items()
        ],
        source=front_source,
    )
