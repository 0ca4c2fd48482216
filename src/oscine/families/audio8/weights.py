"""From a checkpoint's tensors to modules: the rules, and the loaders of each part (AUDIO8 spec, section 4)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from oscine.checkpoint.weights import DtypePolicy, WeightRules, load_strict, read_pickle, read_tensors
from oscine.errors import MissingFile
from oscine.families.audio8.codec.kinds import AnyCodec, AnyCodecConfig, build_codec
from oscine.families.audio8.codec.weights import codec_state
from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model.dual_ar import DualAR

LM_RULES = WeightRules(drop_suffixes=("freqs_cis", "rotary_emb.inv_freq", "mup_vector"))

FLOAT32_SUFFIXES = (".A_log", ".D", ".dt_bias")
"""Parameters of the scan: its arithmetic is float32, whatever the model runs in."""

CODEC_FILES = ("codec.safetensors", "codec.pth")


def lm_dtype_policy(dtype: torch.dtype) -> DtypePolicy:
    """Every parameter in `dtype`, except those of the scan."""
    return lambda name: torch.float32 if name.endswith(FLOAT32_SUFFIXES) else dtype


def build_lm(
    config: LMConfig,
    tensors: Iterable[tuple[str, Tensor]],
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    source: str = "weights",
) -> DualAR:
    """The language model filled from (key, tensor) pairs, for inference. Raises WeightMismatch."""
    with torch.device("meta"):
        model = DualAR(config)
    load_strict(model, tensors, dtype=lm_dtype_policy(dtype), device=device, source=source, rules=LM_RULES)
    return model.eval()


def load_language_model(folder: Path, config: LMConfig, *, device: torch.device | str, dtype: torch.dtype) -> DualAR:
    """The language model of a checkpoint folder. Raises MissingFile or WeightMismatch."""
    path = folder / "model.safetensors"
    return build_lm(config, read_tensors(path), device=device, dtype=dtype, source=str(path))


def load_codec(
    folder: Path, config: AnyCodecConfig, *, device: torch.device | str, dtype: torch.dtype = torch.float32
) -> AnyCodec:
    """The codec of a checkpoint folder, in float32 by default, for inference. Raises MissingFile or WeightMismatch."""
    path = next((folder / name for name in CODEC_FILES if (folder / name).is_file()), None)
    if path is None:
        raise MissingFile(f"{folder} holds none of {', '.join(CODEC_FILES)}")
    raw = dict(read_tensors(path)) if path.suffix == ".safetensors" else read_pickle(path)
    with torch.device("meta"):
        codec = build_codec(config)
    load_strict(codec, codec_state(raw).items(), dtype=dtype, device=device, source=str(path))
    return codec.eval()
