"""From the tensors of a codec file to the names and values `Codec` holds (AUDIO8 spec, section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from oscine.errors import WeightMismatch

# suffixes of (magnitude g, direction v) → suffix of the folded weight
WEIGHT_NORM_SUFFIXES = (
    ("parametrizations.weight.original0", "parametrizations.weight.original1", "weight"),
    ("weight_g", "weight_v", "weight"),
)
DROPPED_SUFFIXES = ("freqs_cis", "causal_mask")
GENERATOR_PREFIX = "generator."


def fold_weight_norm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """State with every weight-norm pair replaced by its weight `g * v / ||v||`; other keys pass through.

    The norm runs over all dims but dim 0, which for a transposed convolution is the INPUT channel. Raises
    WeightMismatch when one half of a pair is missing.
    """
    folded: dict[str, Tensor] = {}
    for key, value in state.items():
        for g_suffix, v_suffix, suffix in WEIGHT_NORM_SUFFIXES:
            if key.endswith(f".{g_suffix}"):
                stem = key.removesuffix(g_suffix)
                folded[stem + suffix] = _fold(value, _partner(state, key, stem + v_suffix))
                break
            if key.endswith(f".{v_suffix}"):
                _partner(state, key, key.removesuffix(v_suffix) + g_suffix)
                break
        else:
            folded[key] = value
    return folded


def codec_state(raw: Mapping[str, Any]) -> dict[str, Tensor]:
    """Folded codec state from the content of a codec file.

    Takes the `state_dict` entry when there is one; when any key contains `generator.`, keeps only those keys and
    removes that part; drops RoPE tables and masks; folds weight norm. Raises WeightMismatch for a value that is no
    tensor and for a lone half of a weight-norm pair.
    """
    state = raw.get("state_dict", raw)
    if not isinstance(state, Mapping):
        raise WeightMismatch(f"codec file: `state_dict` is a {type(state).__name__}, not a mapping of tensors")
    if any(GENERATOR_PREFIX in key for key in state):
        state = {k.replace(GENERATOR_PREFIX, "", 1): v for k, v in state.items() if GENERATOR_PREFIX in k}
    kept = {key: value for key, value in state.items() if not key.endswith(DROPPED_SUFFIXES)}
    wrong = [key for key, value in kept.items() if not isinstance(value, Tensor)]
    if wrong:
        raise WeightMismatch(f"codec file: {len(wrong)} entries are no tensors, first {wrong[:10]}")
    return fold_weight_norm(kept)


def _partner(state: Mapping[str, Tensor], key: str, partner: str) -> Tensor:
    if partner not in state:
        raise WeightMismatch(f"codec file: {key} has no {partner} beside it")
    return state[partner]


def _fold(g: Tensor, v: Tensor) -> Tensor:
    """`g * v / ||v||` in float32, cast to v's dtype; g [dim0, 1, ...], v [dim0, ...]."""
    if g.numel() != v.shape[0]:
        raise WeightMismatch(f"codec file: weight norm shapes {tuple(g.shape)} and {tuple(v.shape)} do not fit")
    wide = v.float()
    norm = torch.linalg.vector_norm(wide, dim=tuple(range(1, v.dim())), keepdim=True)
    folded: Tensor = wide * (g.float().reshape(norm.shape) / norm)
    return folded.to(v.dtype)
