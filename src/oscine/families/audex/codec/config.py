"""Configuration of the two codecs of Audex, read strictly (AUDEX spec, 2.4 and 2.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from oscine.checkpoint.config import MOST_LAYERS, bounded, check_unknown_keys, field_names, parse_record, require
from oscine.errors import ConfigMismatch
from oscine.families.audex.config import NOTES


@dataclass(frozen=True, kw_only=True)
class SpeechDecoderConfig:
    """The causal speech decoder: one token of `codebook_levels` a frame, `hop_length` samples a frame."""

    hidden_dim: int = bounded(least=1)
    depth: int = bounded(least=1, most=MOST_LAYERS)
    heads: int = bounded(least=1)
    pos_meb_dim: int = bounded(least=2)
    hop_length: int = bounded(least=1)
    vq_dim: int = bounded(least=1)
    lookahead_steps: int = bounded(least=0)
    sample_rate: int = bounded(least=1)
    codebook_levels: tuple[int, ...] = bounded(least=2)
    codebook_size: int = bounded(least=1)
    token_embed_dim: int = bounded(least=1)

    IGNORED = frozenset({"embed_tokens_from_codes"}) | NOTES

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str = "config.json") -> SpeechDecoderConfig:
        """From the released JSON. Raises ConfigMismatch."""
        check_unknown_keys(values, field_names(cls), cls.IGNORED, source=source)
        config = parse_record(cls, values, source=source)
        require(
            [
                (
                    config.pos_meb_dim * config.heads != config.hidden_dim,
                    f"pos_meb_dim {config.pos_meb_dim} must be hidden_dim / heads "
                    f"({config.hidden_dim} / {config.heads})",
                ),
                (config.pos_meb_dim % 2 != 0, f"pos_meb_dim must be even, got {config.pos_meb_dim}"),
                (
                    prod(config.codebook_levels) != config.codebook_size,
                    f"codebook_size {config.codebook_size} is not the product of codebook_levels",
                ),
                (
                    len(config.codebook_levels) != config.token_embed_dim,
                    f"token_embed_dim {config.token_embed_dim} is not the number of codebook_levels",
                ),
            ],
            source=source,
        )
        return config


@dataclass(frozen=True, kw_only=True)
class XCodecConfig:
    """The decoding half of XCodec1; `hop_length` is the product of `upsampling_ratios`."""

    sample_rate: int = bounded(least=1)
    codebook_size: int = bounded(least=1)
    codebook_dim: int = bounded(least=1)
    hidden_size: int = bounded(least=1)
    decoder_hidden_size: int = bounded(least=1)
    upsampling_ratios: tuple[int, ...] = bounded(least=1)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str = "config.json") -> XCodecConfig:
        """From the released JSON, of which the encoding half is not looked at. Raises ConfigMismatch."""
        acoustic = values.get("acoustic_model_config")
        if values.get("model_type") != "xcodec" or not isinstance(acoustic, Mapping):
            raise ConfigMismatch(f"{source}: this is not the configuration of an xcodec model with an acoustic part")
        names = ("hidden_size", "decoder_hidden_size", "upsampling_ratios")
        inner = {key: acoustic[key] for key in names if key in acoustic}
        own = {key: values[key] for key in ("sample_rate", "codebook_size", "codebook_dim") if key in values}
        config = parse_record(cls, {**own, **inner}, source=source)
        halvings = 2 ** len(config.upsampling_ratios)
        require(
            [
                (
                    config.decoder_hidden_size % halvings != 0,
                    f"decoder_hidden_size {config.decoder_hidden_size} cannot be halved once per upsampling ratio",
                )
            ],
            source=source,
        )
        return config

    @property
    def hop_length(self) -> int:
        """Samples a frame."""
        return prod(self.upsampling_ratios)

    @property
    def frame_rate(self) -> float:
        """Frames a second."""
        return self.sample_rate / self.hop_length
