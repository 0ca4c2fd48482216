"""Configuration of the DiT, the VAE and the Qwen2.5-Omni thinker, as the released files state it (AUK spec, 2)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from oscine.checkpoint.config import (
    MOST_LAYERS,
    bounded,
    field_names,
    lift_rope,
    parse_record,
    positive_integer,
    require,
    section,
)
from oscine.checkpoint.json_text import check_depth
from oscine.errors import ConfigMismatch, MissingFile

Variant = Literal["base", "flash"]
FLASH_NAME = "AuK-Flash"
FIR_TAPS = 12
_MOST_BYTES = 1 << 17
_MOST_VALUES = 10_000
_REFERENCE = re.compile(r"^\$\{([^{}]+)\}$")


@dataclass(frozen=True, kw_only=True)
class DiTConfig:
    """Dimensions of the transformer; `ff_mult` times `dim` is the feed-forward width, rounded down."""

    dim: int = bounded(least=1)
    heads: int = bounded(least=1)
    dim_head: int = bounded(least=2)
    ff_mult: float = bounded(above=0)
    latent_dim: int = bounded(least=1)
    text_hidden_dim: int = bounded(least=1)
    num_layers: int = bounded(least=0, most=MOST_LAYERS)
    num_single_layers: int = bounded(least=0, most=MOST_LAYERS)
    attn_mask_enabled: bool = False

    @classmethod
    def from_dict(cls, arch: Mapping[str, Any], latent_dim: int, *, source: str) -> DiTConfig:
        """From `model.arch`; `dim_head` is dim / heads when absent, keys of training are not looked at."""
        values = {"latent_dim": latent_dim, **arch}
        if values.get("dim_head") is None:
            dim, heads = values.get("dim"), values.get("heads")
            ok = isinstance(dim, int) and isinstance(heads, int) and heads > 0 and dim % heads == 0
            require([(not ok, f"dim {dim!r} must be a multiple of heads {heads!r}")], source=source)
            values["dim_head"] = dim // heads  # type: ignore[operator]
        config = parse_record(cls, values, source=source)
        broken = [(config.dim_head % 2 == 1, f"dim_head must be even for rotary positions, got {config.dim_head}")]
        require(broken, source=source)
        return config


@dataclass(frozen=True, kw_only=True)
class VAEConfig:
    """`vae.model_init_kwargs`: `causal` is about convolutions, `act_causal` about the filters of the activations."""

    upsample_rates: tuple[int, ...] = bounded(least=1)
    upsample_kernel_sizes: tuple[int, ...] = bounded(least=1)
    upsample_initial_channel: int = bounded(least=1)
    resblock_kernel_sizes: tuple[int, ...] = bounded(least=1)
    resblock_dilation_sizes: tuple[tuple[int, ...], ...]
    downsample_rates: tuple[int, ...] = bounded(least=1)
    downsample_channels: tuple[int, ...] = bounded(least=1)
    latent_dim: int = bounded(least=1)
    snake_logscale: bool = True
    use_vae: bool = True
    causal: bool = True
    act_causal: bool = True

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str = "vae.model_init_kwargs") -> VAEConfig:
        """From the released keys, unknown ones ignored. Raises ConfigMismatch (a ValueError)."""
        config = parse_record(cls, {key: _as_lists(value) for key, value in values.items()}, source=source)
        rates, kernels = config.upsample_rates, config.upsample_kernel_sizes
        require(
            [
                (not config.use_vae, "use_vae must be true: a plain autoencoder has no latent statistics"),
                (len(rates) != len(kernels), "upsample_rates and upsample_kernel_sizes differ in length"),
                (
                    config.causal and any(k != 2 * r for r, k in zip(rates, kernels, strict=False)),
                    f"a causal decoder needs kernel = 2 * rate, got rates {rates}, kernels {kernels}",
                ),
                (
                    any(k < r for r, k in zip(rates, kernels, strict=False)),
                    f"upsample kernels {kernels} must not be shorter than their rates {rates}",
                ),
                (
                    len(config.resblock_kernel_sizes) != len(config.resblock_dilation_sizes),
                    "resblock_kernel_sizes and resblock_dilation_sizes differ in length",
                ),
                (
                    len(config.downsample_channels) != len(config.downsample_rates) + 1,
                    "downsample_channels must hold one more entry than downsample_rates",
                ),
                (
                    math.prod(rates) != math.prod(config.downsample_rates),
                    f"upsample_rates {rates} and downsample_rates {config.downsample_rates} differ in product",
                ),
                (
                    config.upsample_initial_channel % 2 ** len(rates) != 0,
                    f"upsample_initial_channel must be a multiple of {2 ** len(rates)}",
                ),
            ],
            source=source,
        )
        return config

    @property
    def hop_length(self) -> int:
        """Samples a latent frame."""
        return math.prod(self.upsample_rates)


RELEASED_VAE = VAEConfig(
    upsample_rates=(5, 4, 3, 2, 2, 2),
    upsample_kernel_sizes=(10, 8, 6, 4, 4, 4),
    upsample_initial_channel=1536,
    resblock_kernel_sizes=(3, 7, 11),
    resblock_dilation_sizes=((1, 3, 5),) * 3,
    downsample_rates=(2, 2, 2, 3, 4, 5),
    downsample_channels=(12, 24, 48, 96, 192, 384, 768),
    latent_dim=64,
)
"""That of both releases (AUK spec, 2)."""


@dataclass(frozen=True, kw_only=True)
class ThinkerTextConfig:
    """The decoder layers of the thinker."""

    vocab_size: int = bounded(least=1)
    hidden_size: int = bounded(least=1)
    intermediate_size: int = bounded(least=1)
    num_hidden_layers: int = bounded(least=1, most=MOST_LAYERS)
    num_attention_heads: int = bounded(least=1)
    num_key_value_heads: int = bounded(least=1)
    rms_norm_eps: float = bounded(above=0)
    rope_theta: float = bounded(above=0)
    head_dim: int | None = None

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads


@dataclass(frozen=True, kw_only=True)
class AudioTowerConfig:
    """The audio tower of the thinker; a chunk is `2 * n_window` mel frames."""

    d_model: int = bounded(least=4)
    encoder_layers: int = bounded(least=0, most=MOST_LAYERS)
    encoder_attention_heads: int = bounded(least=1)
    encoder_ffn_dim: int = bounded(least=1)
    num_mel_bins: int = bounded(least=1)
    n_window: int = bounded(least=1)
    output_dim: int = bounded(least=1)
    scale_embedding: bool = bounded(False, choices=(False,))
    activation_function: str = bounded("gelu", choices=("gelu",))


@dataclass(frozen=True, kw_only=True)
class ThinkerConfig:
    """The part of Qwen2.5-Omni that AuK uses."""

    text: ThinkerTextConfig
    audio: AudioTowerConfig
    audio_token_index: int
    audio_start_token_id: int
    audio_end_token_id: int

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str) -> ThinkerConfig:
        """From the released `config.json`. Raises ConfigMismatch."""
        thinker = section(values, "thinker_config", source=source)
        text_values = lift_rope(section(thinker, "text_config", source=source), "rope_theta", source=source)
        text = parse_record(ThinkerTextConfig, text_values, source=source)
        audio = parse_record(AudioTowerConfig, section(thinker, "audio_config", source=source), source=source)
        require(
            [
                (
                    text.num_attention_heads % text.num_key_value_heads != 0,
                    "query heads must be a multiple of kv heads",
                ),
                (text.head_size % 2 == 1, f"head size must be even for rotary positions, got {text.head_size}"),
                (audio.d_model % 2 == 1, f"audio d_model must be even, got {audio.d_model}"),
                (audio.d_model % audio.encoder_attention_heads != 0, "audio d_model must be a multiple of its heads"),
                (audio.output_dim != text.hidden_size, "audio output_dim must equal the text hidden_size"),
            ],
            source=source,
        )
        return cls(
            text=text,
            audio=audio,
            audio_token_index=positive_integer(thinker, "audio_token_index", source=source),
            audio_start_token_id=positive_integer(thinker, "audio_start_token_id", source=source),
            audio_end_token_id=positive_integer(thinker, "audio_end_token_id", source=source),
        )


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Steps, guidance strength and sway of a request that asks for nothing else, named as a flat folder does.

    AuK-Flash has its own grid instead, `sampler.FLASH_GRID` (AUK spec, 6).
    """

    nfe: int = bounded(32, least=1, most=1000)
    cfg: float = bounded(2.0, least=0, most=100)
    sway: float | None = -1.0

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str) -> Recipe:
        """From `defaults`, absent ones being the publishers'. Raises ConfigMismatch, also for keys not known here."""
        unknown = ", ".join(sorted(set(values) - field_names(cls)))
        require([(bool(unknown), f"defaults has {unknown}; nfe, cfg and sway are what can be set")], source=source)
        return parse_record(cls, values, source=f"{source}: defaults")


BASE_RECIPE = Recipe()


@dataclass(frozen=True, kw_only=True)
class AuKConfig:
    """One AuK checkpoint without its encoder; `recipe` is that of the base variant."""

    name: str
    variant: Variant
    sample_rate: int
    dit: DiTConfig
    vae: VAEConfig
    recipe: Recipe = BASE_RECIPE

    @property
    def frame_rate(self) -> float:
        """Latent frames a second."""
        return self.sample_rate / self.vae.hop_length

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str) -> AuKConfig:
        """From the released `config.yaml`, interpolations resolved already. Raises ConfigMismatch."""
        model = section(values, "model", source=source)
        vae = section(model, "vae", source=source)
        latent_dim = positive_integer(vae, "latent_dim", source=source)
        return cls(
            name=str(model.get("name", "AuK")),
            variant="flash" if model.get("name") == FLASH_NAME else "base",
            sample_rate=positive_integer(vae, "target_sample_rate", source=source),
            dit=DiTConfig.from_dict(section(model, "arch", source=source), latent_dim, source=source),
            vae=_vae_config(vae, section(vae, "model_init_kwargs", source=source), latent_dim, source=source),
        )

    @classmethod
    def from_flat(cls, values: Mapping[str, Any], *, source: str) -> AuKConfig:
        """From the `config.json` of a flat folder: the thinker's, with `dit`, `vae`, `variant` and `defaults` added.

        Flash keeps its own recipe: `defaults` are those of the base variant there too.
        """
        vae, dit = section(values, "vae", source=source), section(values, "dit", source=source)
        init = section(vae, "model_init_kwargs", source=source) if "model_init_kwargs" in vae else vae
        latent_dim = positive_integer({**init, **vae, **dit}, "latent_dim", source=source)
        variant = str(values.get("variant", "base")).lower()
        flash = variant in ("flash", FLASH_NAME.lower())
        require(
            [(not flash and variant not in ("base", "auk"), f"variant {variant!r} is not base or flash")], source=source
        )
        recipe = None if values.get("defaults") is None else section(values, "defaults", source=source)
        return cls(
            name=FLASH_NAME if flash else "AuK",
            variant="flash" if flash else "base",
            sample_rate=positive_integer({"target_sample_rate": 24000, **vae}, "target_sample_rate", source=source),
            dit=DiTConfig.from_dict(dit, latent_dim, source=source),
            vae=_vae_config(vae, init, latent_dim, source=source),
            recipe=Recipe.from_dict(recipe or {}, source=source),
        )


def _vae_config(vae: Mapping[str, Any], init: Mapping[str, Any], latent_dim: int, *, source: str) -> VAEConfig:
    """The VAE of `init`, which must agree with what the section `vae` says of it. Raises ConfigMismatch."""
    config = VAEConfig.from_dict({"latent_dim": latent_dim, **init}, source=source)
    hop = vae.get("downsample_rate", config.hop_length)
    require(
        [
            (config.latent_dim != latent_dim, "latent_dim of the VAE and of its model_init_kwargs differ"),
            (hop != config.hop_length, f"downsample_rate {hop!r} is not the product of upsample_rates"),
        ],
        source=source,
    )
    return config


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping of a YAML file with every scalar that is exactly `${a.b.c}` replaced by the value at that path.

    Raises MissingFile, or ConfigMismatch for bad YAML, a dangling path or a circle of references.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it has {path.stat().st_size} bytes, more than the {_MOST_BYTES} it may have")
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
        check_depth(value)
    except FileNotFoundError:
        raise MissingFile(f"{path} is missing") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigMismatch(f"{path} cannot be read as YAML: {error}") from error
    except RecursionError:
        raise ConfigMismatch(f"{path} cannot be read as YAML: it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ConfigMismatch(f"{path} must hold one mapping, got {type(value).__name__}")
    resolved: dict[str, Any] = _resolve(value, value, (), str(path), [0])
    return resolved


def _resolve(value: Any, root: Any, seen: tuple[str, ...], source: str, num_values: list[int]) -> Any:
    """`value` with its references followed; `num_values` counts what comes of it, which references can multiply."""
    num_values[0] += 1
    require([(num_values[0] > _MOST_VALUES, f"it has more than {_MOST_VALUES} values")], source=source)
    if isinstance(value, dict):
        return {key: _resolve(item, root, seen, source, num_values) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, root, seen, source, num_values) for item in value]
    match = _REFERENCE.match(value) if isinstance(value, str) else None
    if match is None:
        return value
    path = match.group(1)
    require([(path in seen, f"${{{path}}} refers to itself")], source=source)
    target = root
    for part in path.split("."):
        known = isinstance(target, dict) and part in target
        require([(not known, f"${{{path}}} names nothing in this file")], source=source)
        target = target[part]
    return _resolve(target, root, (*seen, path), source, num_values)


def _as_lists(value: Any) -> Any:
    """Tuples as lists, all the way down: what JSON and YAML give."""
    return [_as_lists(item) for item in value] if isinstance(value, (list, tuple)) else value
