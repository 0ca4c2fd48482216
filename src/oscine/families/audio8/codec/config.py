"""The codec's dimensions: constants of the released model, overridden by our own small codecs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from math import prod
from typing import Any

from oscine.checkpoint.config import MOST, MOST_ENTRIES, MOST_LAYERS
from oscine.checkpoint.json_text import shown
from oscine.errors import ConfigMismatch

MAY_BE_ZERO = frozenset(
    {
        "encoder_dim",
        "encoder_transformer_layers",
        "n_residual_codebooks",
        "pre_n_layer",
        "post_n_layer",
        "warm_up_frames",
    }
)

BUILT_ONE_BY_ONE = frozenset({"encoder_transformer_layers", "n_residual_codebooks", "pre_n_layer", "post_n_layer"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodecConfig:
    """Dimensions of a codec; the defaults are the released one (AUDIO8 spec, section 2).

    `encoder_dim` 0 means a codec that speaks only: it has none of the parts that turn audio into codes.
    `warm_up_frames` is by how many frames a stream's samples lag behind its codes: so many come first that no code
    describes. Rates and factors may have any length; `decoder_rates` must have the product of `encoder_rates`. Raises
    ConfigMismatch when values do not fit each other.
    """

    sample_rate: int = 44100
    encoder_dim: int = 64
    encoder_rates: tuple[int, ...] = (2, 4, 8, 8)
    encoder_transformer_layers: tuple[int, ...] = (0, 0, 0, 4)
    encoder_window: int = 512
    latent_dim: int = 1024
    decoder_dim: int = 1536
    decoder_rates: tuple[int, ...] = (8, 8, 4, 2)
    transformer_head_dim: int = 64
    semantic_codebook_size: int = 4096
    n_residual_codebooks: int = 9
    residual_codebook_size: int = 1024
    codebook_dim: int = 8
    downsample_factors: tuple[int, ...] = (2, 2)
    pre_n_layer: int = 8
    pre_n_head: int = 16
    pre_intermediate_size: int = 3072
    post_n_layer: int = 8
    post_n_head: int = 16
    post_n_local_heads: int = 8
    post_intermediate_size: int = 1216
    quantizer_window: int = 128
    warm_up_frames: int = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_value(field.name, field.type == "int", getattr(self, field.name))
        for problem, broken in self._relations().items():
            if broken:
                raise ConfigMismatch(f"codec_config: {problem}")

    def _relations(self) -> dict[str, bool]:
        """Statement of each rule between fields → whether it is broken."""
        heads = [self.encoder_dim * 2 ** (i + 1) for i, n in enumerate(self.encoder_transformer_layers) if n]
        return {
            "encoder_transformer_layers and encoder_rates must have the same length": len(self.encoder_rates)
            != len(self.encoder_transformer_layers),
            "decoder_rates and encoder_rates must have the same product": prod(self.decoder_rates)
            != prod(self.encoder_rates),
            f"decoder_dim must be a multiple of {2 ** len(self.decoder_rates)}": bool(
                self.decoder_dim % 2 ** len(self.decoder_rates)
            ),
            "post_n_head must be a multiple of post_n_local_heads": bool(self.post_n_head % self.post_n_local_heads),
            "transformer_head_dim must be even": bool(self.transformer_head_dim % 2),
            "an encoder transformer's width must be a multiple of transformer_head_dim": any(
                dim % self.transformer_head_dim for dim in heads
            ),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CodecConfig:
        """Config from parsed JSON (lists become tuples, absent names keep the released value).

        Raises ConfigMismatch for an unknown key, a wrong type or a value out of range.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigMismatch(f"codec_config: unknown keys {unknown}; known are {sorted(known)}")
        fields: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
        return cls(**fields)

    @property
    def encodes(self) -> bool:
        """Whether the codec can turn audio into codes."""
        return self.encoder_dim > 0

    @property
    def lag_frames(self) -> int:
        """By how many frames the audio of a stream comes after its codes."""
        return self.warm_up_frames

    @property
    def num_codebooks(self) -> int:
        """Codes per frame: one semantic, the rest residual."""
        return 1 + self.n_residual_codebooks

    @property
    def frame_length(self) -> int:
        """Samples per code frame."""
        return prod(self.encoder_rates) * prod(self.downsample_factors)

    @property
    def frame_rate(self) -> float:
        """Code frames per second, Hz."""
        return self.sample_rate / self.frame_length


def _check_value(name: str, scalar: bool, value: Any) -> None:
    """Raises ConfigMismatch unless `value` is an int (or a tuple of ints) of the field's range."""
    least = 0 if name in MAY_BE_ZERO else 1
    items = (value,) if scalar else value
    good = isinstance(items, tuple) and 0 < len(items) <= MOST_ENTRIES
    if not good or any(type(item) is not int or item < least for item in items):
        kind = "an integer" if scalar else f"a list of 1 to {MOST_ENTRIES} integers"
        raise ConfigMismatch(f"codec_config: {name} must be {kind} >= {least}, got {shown(value)}")
    most = MOST_LAYERS if name in BUILT_ONE_BY_ONE else MOST
    if any(item > most for item in items):
        raise ConfigMismatch(f"codec_config: {name} must be at most {most}, got {shown(value)}")
