"""Configuration of the Audex language models and audio tower, read strictly (AUDEX spec, 2.1 to 2.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oscine.checkpoint.config import (
    MOST_LAYERS,
    MOST_POSITIONS,
    bounded,
    check_unknown_keys,
    field_names,
    lift_rope,
    parse_record,
    require,
    section,
)
from oscine.checkpoint.json_text import shown
from oscine.errors import ConfigMismatch

DENSE_TYPES = ("nemotron_dense", "nemotron_dense_audex")
HYBRID_TYPES = ("nemotron_h", "nemotron_h_audex")
BLOCK_LETTERS = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
BLOCK_NAMES = {
    **{kind: kind for kind in BLOCK_LETTERS.values()},
    "linear_attention": "mamba",
    "full_attention": "attention",
    "sparse": "moe",
    "dense": "mlp",
}

NOTES = frozenset(
    {
        "architectures",
        "model_type",
        "dtype",
        "torch_dtype",
        "transformers_version",
        "auto_map",
        "use_cache",
        "initializer_range",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "attention_dropout",
        "hidden_dropout",
        "num_logits_to_keep",
        "rescale_prenorm_residual",
    }
)
"""Keys that change nothing here: notes on the file, training settings, ids that the tokenizer states."""

_AUDIO_KEYS = frozenset(
    {
        "audio_model_type",
        "audio_config",
        "audio_encoder_hidden_size",
        "audio_projector_intermediate_size",
        "audio_projector_activation",
        "audio_projector_norm_eps",
        "audio_preprocessor_path",
        "sound_token",
        "sound_token_id",
        "sound_start_token",
        "sound_start_token_id",
        "sound_end_token",
        "sound_end_token_id",
        "sound_target_rate",
        "sound_clip_duration",
        "sound_embedding_size",
    }
)
_AUDIO_NOTES = frozenset(
    {
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "encoder_layerdrop",
        "layerdrop",
        "init_std",
        "initializer_range",
        "model_type",
        "num_hidden_layers",
        "transformers_version",
        "architectures",
        "dtype",
        "torch_dtype",
    }
)


@dataclass(frozen=True, kw_only=True)
class DenseConfig:
    """The dense language model (2B): a transformer with grouped heads and a squared-ReLU feed-forward block."""

    vocab_size: int = bounded(least=1)
    hidden_size: int = bounded(least=1)
    intermediate_size: int = bounded(least=1)
    num_hidden_layers: int = bounded(least=1, most=MOST_LAYERS)
    num_attention_heads: int = bounded(least=1)
    num_key_value_heads: int = bounded(least=1)
    head_dim: int = bounded(least=2)
    norm_eps: float = bounded(above=0)
    hidden_act: str = bounded(choices=("relu2",))
    max_position_embeddings: int = bounded(least=1, most=MOST_POSITIONS)
    rope_theta: float = bounded(above=0)
    partial_rotary_factor: float = bounded(1.0, choices=(1.0,))
    tie_word_embeddings: bool = False
    attention_bias: bool = bounded(False, choices=(False,))
    mlp_bias: bool = bounded(False, choices=(False,))
    bias: bool = bounded(False, choices=(False,))
    logit_scale: float = bounded(1.0, choices=(1.0,))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str = "config.json") -> DenseConfig:
        """From the released JSON; `rope_theta` may stand in `rope_parameters` or at the top. Raises ConfigMismatch."""
        flat = lift_rope(values, "rope_theta", "partial_rotary_factor", "rope_type", source=source)
        kind = flat.get("rope_type", "default")
        known = field_names(cls) | NOTES | _AUDIO_KEYS | {"rope_parameters", "rope_scaling"}
        check_unknown_keys(values, known - NOTES, NOTES, source=source)
        config = parse_record(cls, flat, source=source)
        require(
            [
                (kind != "default", f"rope_type must be 'default', got {kind!r}"),
                (
                    config.num_attention_heads % config.num_key_value_heads != 0,
                    f"num_attention_heads {config.num_attention_heads} must be a multiple of num_key_value_heads "
                    f"{config.num_key_value_heads}",
                ),
                (config.head_dim % 2 != 0, f"head_dim must be even, got {config.head_dim}"),
            ],
            source=source,
        )
        return config


@dataclass(frozen=True, kw_only=True)
class HybridConfig:
    """The hybrid language model (30B-A3B): Mamba-2, mixture-of-experts and attention blocks; no rotary embedding."""

    vocab_size: int = bounded(least=1)
    hidden_size: int = bounded(least=1)
    blocks: tuple[str, ...] = bounded(choices=tuple(BLOCK_LETTERS.values()))
    num_attention_heads: int = bounded(least=1)
    num_key_value_heads: int = bounded(least=1)
    head_dim: int = bounded(least=1)
    mamba_num_heads: int = bounded(least=1)
    mamba_head_dim: int = bounded(least=1)
    ssm_state_size: int = bounded(least=1)
    n_groups: int = bounded(least=1)
    conv_kernel: int = bounded(least=2)
    chunk_size: int = bounded(least=1)
    n_routed_experts: int = bounded(least=1, most=MOST_LAYERS)
    num_experts_per_tok: int = bounded(least=1, most=MOST_LAYERS)
    moe_intermediate_size: int = bounded(least=1)
    moe_shared_expert_intermediate_size: int = bounded(least=1)
    routed_scaling_factor: float = bounded(above=0)
    layer_norm_epsilon: float = bounded(above=0)
    max_position_embeddings: int = bounded(least=1, most=MOST_POSITIONS)
    intermediate_size: int | None = None
    n_shared_experts: int = bounded(1, choices=(1,))
    n_group: int = bounded(1, least=1)
    topk_group: int = bounded(1, least=1)
    norm_topk_prob: bool = True
    use_conv_bias: bool = True
    tie_word_embeddings: bool = False
    mlp_hidden_act: str = bounded("relu2", choices=("relu2",))
    mamba_hidden_act: str = bounded("silu", choices=("silu",))
    use_bias: bool = bounded(False, choices=(False,))
    mamba_proj_bias: bool = bounded(False, choices=(False,))
    attention_bias: bool = bounded(False, choices=(False,))
    mlp_bias: bool = bounded(False, choices=(False,))
    residual_in_fp32: bool = bounded(False, choices=(False,))

    IGNORED = frozenset(
        {
            "hybrid_override_pattern",
            "layers_block_type",
            "layer_types",
            "num_hidden_layers",
            "time_step_min",
            "time_step_max",
            "time_step_floor",
            "time_step_limit",
            "time_step_rank",
            "rope_theta",
            "partial_rotary_factor",
            "rope_parameters",
            "mamba_ssm_cache_dtype",
            "norm_eps",
            "expand",
            "mamba_expand",
            "mamba_d_conv",
            "sliding_window",
            "hidden_act",
            "num_nextn_predict_layers",
            "mtp_hybrid_override_pattern",
            "mtp_layers_block_type",
            "moe_latent_size",
            "moe_shared_expert_overlap",
        }
    )
    """Read above, or of no effect at inference: the step size is not clamped and there is no rotary embedding."""

    @property
    def inner_size(self) -> int:
        """Channels of a Mamba block."""
        return self.mamba_num_heads * self.mamba_head_dim

    @property
    def conv_size(self) -> int:
        """Channels that pass a Mamba block's convolution: x, B and C."""
        return self.inner_size + 2 * self.n_groups * self.ssm_state_size

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str = "config.json") -> HybridConfig:
        """From the released JSON, with the blocks as a pattern or as a list. Raises ConfigMismatch."""
        known = field_names(cls) - {"blocks"} | _AUDIO_KEYS
        check_unknown_keys(values, known, cls.IGNORED | NOTES, source=source)
        blocks = _blocks(values, source)
        flat = {"layer_norm_epsilon": values.get("norm_eps"), **values, "blocks": blocks}
        if flat["layer_norm_epsilon"] is None:
            del flat["layer_norm_epsilon"]
        config = parse_record(cls, flat, source=source)
        require(config._broken(values), source=source)
        return config

    def _broken(self, values: Mapping[str, Any]) -> list[tuple[bool, str]]:
        layers = values.get("num_hidden_layers", len(self.blocks))
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        per_group = self.n_routed_experts // self.n_group
        return [
            (layers != len(self.blocks), f"num_hidden_layers is {layers}, but there are {len(self.blocks)} blocks"),
            (heads % kv_heads != 0, f"num_attention_heads {heads} must be a multiple of {kv_heads}"),
            (
                self.mamba_num_heads % self.n_groups != 0,
                f"mamba_num_heads {self.mamba_num_heads} must be a multiple of n_groups {self.n_groups}",
            ),
            (
                self.n_routed_experts % self.n_group != 0 or self.topk_group > self.n_group,
                f"{self.n_routed_experts} experts do not fall into {self.n_group} groups of which {self.topk_group}",
            ),
            (
                self.num_experts_per_tok > self.topk_group * per_group,
                f"num_experts_per_tok is {self.num_experts_per_tok} of {self.topk_group * per_group} experts",
            ),
            ("mlp" in self.blocks and not self.intermediate_size, "mlp blocks need intermediate_size"),
        ]


LMConfig = DenseConfig | HybridConfig


def parse_lm_config(values: Mapping[str, Any], *, source: str) -> LMConfig:
    """The language model's configuration; its kind is decided by `model_type`, checked against `architectures`.

    The root manifest says the same for both sizes, so `values` must come from a `checkpoint_folder_*`.
    Raises ConfigMismatch.
    """
    kind = values.get("model_type")
    if kind not in DENSE_TYPES + HYBRID_TYPES:
        allowed = ", ".join(DENSE_TYPES + HYBRID_TYPES)
        raise ConfigMismatch(f"{source}: model_type must be one of {allowed}, got {kind!r}")
    hybrid = kind in HYBRID_TYPES
    stem = "NemotronH" if hybrid else "NemotronDense"
    wrong = [name for name in values.get("architectures") or [] if not str(name).startswith(stem)]
    if wrong:
        raise ConfigMismatch(f"{source}: model_type {kind!r} does not go with architectures {wrong}")
    return (HybridConfig if hybrid else DenseConfig).from_dict(values, source=source)


@dataclass(frozen=True, kw_only=True)
class AudioConfig:
    """The audio encoder and its projector into the language model; sizes as in the released names."""

    num_mel_bins: int = bounded(least=1)
    d_model: int = bounded(least=1)
    encoder_layers: int = bounded(least=1, most=MOST_LAYERS)
    encoder_attention_heads: int = bounded(least=1)
    encoder_ffn_dim: int = bounded(least=1)
    max_source_positions: int = bounded(least=2, most=MOST_POSITIONS)
    projector_intermediate_size: int = bounded(least=1)
    projector_activation: str = bounded(choices=("relu2", "gelu"))
    projector_norm_eps: float = bounded(above=0)
    activation_function: str = bounded("gelu", choices=("gelu",))
    scale_embedding: bool = bounded(False, choices=(False,))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str = "config.json") -> AudioConfig:
        """From the configuration of `checkpoint_folder_full`. Raises ConfigMismatch."""
        audio = section(values, "audio_config", source=source)
        own = {key: audio[key] for key in audio if not key.startswith("projector_")}
        known = {name for name in field_names(cls) if not name.startswith("projector_")}
        check_unknown_keys(own, known, _AUDIO_NOTES, source=f"{source}: audio_config")
        prefix = "audio_projector_"
        renamed = {key.removeprefix("audio_"): values[key] for key in values if key.startswith(prefix)}
        config = parse_record(cls, {**own, **renamed}, source=source)
        width = values.get("audio_encoder_hidden_size", config.d_model)
        rows = values.get("sound_embedding_size", config.num_embeddings)
        require(
            [
                (width != config.d_model, f"audio_encoder_hidden_size is {width}, d_model {config.d_model}"),
                (config.d_model % config.encoder_attention_heads != 0, "d_model must be a multiple of the heads"),
                (rows != config.num_embeddings, f"sound_embedding_size is {rows}, not {config.num_embeddings}"),
            ],
            source=source,
        )
        return config

    @property
    def num_embeddings(self) -> int:
        """Rows that one clip becomes."""
        return self.max_source_positions // 2


def _blocks(values: Mapping[str, Any], source: str) -> list[str]:
    pattern = values.get("hybrid_override_pattern")
    listed = values.get("layers_block_type", values.get("layer_types"))
    given = list(pattern) if isinstance(pattern, str) else listed
    names = BLOCK_LETTERS if isinstance(pattern, str) else BLOCK_NAMES
    if not isinstance(given, list) or not given or any(kind not in names for kind in given):
        raise ConfigMismatch(
            f"{source}: the blocks must be hybrid_override_pattern, a text of {' '.join(BLOCK_LETTERS)}, or "
            f"layers_block_type, a list of {', '.join(BLOCK_NAMES)}; got {shown(pattern or listed)}"
        )
    require(
        [(len(given) > MOST_LAYERS, f"there are {len(given)} blocks; at most {MOST_LAYERS} are allowed")], source=source
    )
    return [names[kind] for kind in given]
