"""What the slow model remembers of its rows: keys and values, and for the hybrid the recurrent state."""

from __future__ import annotations

import torch

from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model.hybrid import MixerState
from oscine.runtime.cache import CacheShape, SequenceCache


def cache_shape(config: LMConfig, dtype: torch.dtype) -> CacheShape:
    """What a row keeps, of each layer of a hybrid also its `MixerState`."""
    states: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
    if config.hybrid is not None:
        hybrid = config.hybrid
        parts = {
            "conv": ((hybrid.mamba_d_conv - 1, hybrid.conv_dim), dtype),
            "ssm": ((hybrid.mamba_n_heads, hybrid.mamba_d_head, hybrid.mamba_d_state), torch.float32),
        }
        states = {f"{name}.{layer}": part for layer in range(config.n_layer) for name, part in parts.items()}
    return CacheShape(
        layers=config.n_layer, kv_heads=config.n_local_heads, head_dim=config.head_dim, dtype=dtype, states=states
    )


def mixer_state(cache: SequenceCache, layer: int, rows: slice) -> MixerState:
    """A layer's recurrent state of `rows`: views, updated in place."""
    return MixerState(conv=cache.states[f"conv.{layer}"][rows], ssm=cache.states[f"ssm.{layer}"][rows])
