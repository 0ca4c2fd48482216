"""The kinds of codec a checkpoint may have: the released one, and a spectral decoder that speaks only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oscine.errors import ConfigMismatch
from oscine.families.audio8.codec import spectral_config
from oscine.families.audio8.codec.codec import Codec
from oscine.families.audio8.codec.config import CodecConfig
from oscine.families.audio8.codec.spectral import SpectralCodec
from oscine.families.audio8.codec.spectral_config import SpectralConfig

AnyCodec = Codec | SpectralCodec
AnyCodecConfig = CodecConfig | SpectralConfig

RELEASED = "released"
"""Kind of a `codec_config` that states none."""

POST_FIELDS = ("n_layer", "n_head", "n_local_heads", "intermediate_size")
"""Fields of the released codec that a config may also state beside `codec_config`, as `codec_post_*`."""


def codec_config(values: Mapping[str, Any], source: str) -> AnyCodecConfig:
    """The codec that the config of a checkpoint, parsed JSON, states. Raises ConfigMismatch."""
    stated = values.get("codec_config", {})
    if not isinstance(stated, Mapping):
        raise ConfigMismatch(f"{source}: codec_config must be an object, got {stated!r}")
    kind = stated.get("kind", RELEASED)
    beside = {f"post_{name}": values[f"codec_post_{name}"] for name in POST_FIELDS if f"codec_post_{name}" in values}
    if kind == spectral_config.KIND:
        if beside:
            raise ConfigMismatch(f"{source}: codec_{sorted(beside)[0]} does not go with a codec of the kind {kind!r}")
        return SpectralConfig.from_dict(stated)
    if kind != RELEASED:
        raise ConfigMismatch(
            f"{source}: codec_config: kind must be {RELEASED!r} or {spectral_config.KIND!r}, got {kind!r}"
        )
    return CodecConfig.from_dict({name: value for name, value in {**stated, **beside}.items() if name != "kind"})


def build_codec(config: AnyCodecConfig) -> AnyCodec:
    """An unfilled codec of the kind that `config` describes."""
    return SpectralCodec(config) if isinstance(config, SpectralConfig) else Codec(config)
