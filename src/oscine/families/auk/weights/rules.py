"""From the keys of AuK and Qwen2.5-Omni files to the names of our modules (AUK spec, section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oscine.checkpoint.config import read_json
from oscine.checkpoint.weights import DtypePolicy, load_strict, read_pickle, read_tensors
from oscine.errors import InvalidRequest, MissingFile, WeightMismatch
from oscine.families.auk.model.dit import AuKTransformer
from oscine.families.auk.model.thinker import Thinker
from oscine.kernels.upcast_linear import to_upcast_linear

DIT_PREFIX = "transformer."
EMA_ENTRY, EMA_PREFIX = "ema_model_state_dict", "ema_model."
EMA_EXTRAS = frozenset({"initted", "step"})
THINKER_PREFIX = "thinker."
UNUSED_THINKER = (
    "thinker.visual.",
    "thinker.lm_head.",
    "thinker.audio_tower.audio_bos_eos_token",
    "talker.",
    "token2wav.",
)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ENCODER_COPY = "text_encoder."  # a frozen copy that a training checkpoint may carry


@dataclass(frozen=True, kw_only=True)
class Fusion:
    """How the conditioner mixes the thinker's layers; one set a variant, never shared (AUK spec, 3.1)."""

    layer_weights: Tensor
    layer_scale: Tensor


def dit_state_dict(checkpoint: Mapping[str, Any] | str | Path, prefix: str = DIT_PREFIX) -> dict[str, Tensor]:
    """Tensors of the transformer by its own names, from the content or the path of an AuK checkpoint.

    Understands the released file and a training checkpoint (`ema_model_state_dict` with keys `ema_model.*`). A mapping
    without any key under `prefix` is taken to be stripped already.
    """
    state = dict(_pairs(checkpoint))
    under = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    return under or {key: value for key, value in state.items() if key not in ("layer_weights", "layer_scale")}


def load_dit(module: AuKTransformer, path: Path, *, device: torch.device | str, dtype: torch.dtype) -> Fusion:
    """Fills the transformer strictly from a checkpoint file and returns the layer fusion found beside it.

    Rotary frequencies stay float32. Raises WeightMismatch for any key that is missing, stray or misshaped and for
    quantised values, InvalidRequest for a dtype such as FP8.
    """
    _check_dtype(dtype)
    fusion: dict[str, Tensor] = {}
    stray: list[str] = []

    def tensors() -> Iterator[tuple[str, Tensor]]:
        for key, value in _pairs(path):
            if key.startswith(DIT_PREFIX):
                yield key.removeprefix(DIT_PREFIX), _plain(value, key, path)
            elif key in ("layer_weights", "layer_scale"):
                fusion[key] = value.float().to(device)
            elif not key.startswith(ENCODER_COPY):
                stray.append(key)

    load_strict(module, tensors(), dtype=_dit_dtype(dtype), device=device, source=str(path))
    missing = sorted({"layer_weights", "layer_scale"} - set(fusion))
    if stray or missing:
        raise WeightMismatch(f"{path} does not fit the model: missing {missing}, unexpected {sorted(stray)[:10]}")
    if fusion["layer_weights"].dim() != 1 or fusion["layer_scale"].shape != (1,):
        shapes = {key: list(value.shape) for key, value in fusion.items()}
        raise WeightMismatch(f"{path}: layer_weights must be [layers] and layer_scale [1], got {shapes}")
    to_upcast_linear(module)
    return Fusion(**fusion)


def load_thinker(module: Thinker, folder: Path, *, device: torch.device | str, dtype: torch.dtype) -> None:
    """Fills the thinker from the shards of a Qwen2.5-Omni folder; the parts AuK does not use are never read.

    Raises as `load_dit` does.
    """
    _check_dtype(dtype)
    load_strict(module, thinker_tensors(thinker_files(folder)), dtype=dtype, device=device, source=str(folder))
    to_upcast_linear(module)


def thinker_files(folder: Path) -> list[Path]:
    """The encoder's weight files, by its index when there is one. Raises MissingFile."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        entries = read_json(index).get("weight_map")
        names = sorted(set(entries.values())) if isinstance(entries, dict) else []
        files = [folder / str(name) for name in names]
    else:
        files = sorted(folder.glob("model*.safetensors"))
    absent = [str(path) for path in files if not path.is_file()]
    if not files or absent:
        raise MissingFile(f"{folder} lacks the encoder's weights: {', '.join(absent) or 'model*.safetensors'}")
    return files


def thinker_tensors(files: list[Path]) -> Iterator[tuple[str, Tensor]]:
    """(our name, tensor) of the parts in use."""
    for path in files:
        for key, tensor in read_tensors(path, skip=is_unused):
            yield key.removeprefix(THINKER_PREFIX), _plain(tensor, key, path)


def is_unused(key: str) -> bool:
    """Whether a key of a Qwen2.5-Omni file belongs to a part that AuK leaves out."""
    return key.startswith(UNUSED_THINKER)


def _pairs(checkpoint: Mapping[str, Any] | str | Path) -> Iterator[tuple[str, Tensor]]:
    """(key, tensor) of a checkpoint, one at a time, the wrapping of a training checkpoint removed."""
    raw: Mapping[str, Any]
    if isinstance(checkpoint, Mapping):
        raw, source = checkpoint, "checkpoint"
    else:
        path, source = Path(checkpoint), str(checkpoint)
        if path.suffix == ".safetensors":
            yield from _unwrapped(read_tensors(path), source, ema=False)
            return
        raw = read_pickle(path)
    inner = raw.get(EMA_ENTRY, raw)
    if not isinstance(inner, Mapping):
        raise WeightMismatch(f"{source}: {EMA_ENTRY} must hold a mapping, got {type(inner).__name__}")
    yield from _unwrapped(inner.items(), source, ema=EMA_ENTRY in raw)


def _unwrapped(pairs: Iterable[tuple[str, Any]], source: str, *, ema: bool) -> Iterator[tuple[str, Tensor]]:
    for key, value in pairs:
        ema = ema or key.startswith(EMA_PREFIX)
        if ema and key in EMA_EXTRAS:
            continue
        if not isinstance(value, Tensor):
            raise WeightMismatch(f"{source}: {key!r} must be a tensor, got {type(value).__name__}")
        yield key.removeprefix(EMA_PREFIX), value


def _dit_dtype(dtype: torch.dtype) -> DtypePolicy:
    return lambda name: torch.float32 if name == "rotary_embed.inv_freq" else dtype


def _check_dtype(dtype: torch.dtype) -> None:
    if dtype not in DTYPES:
        names = ", ".join(str(known).removeprefix("torch.") for known in DTYPES)
        raise InvalidRequest(f"AuK runs in {names}; {dtype} is not supported", param="dtype")


def _plain(tensor: Tensor, key: str, source: Path) -> Tensor:
    """The tensor if its values mean what they say. Raises WeightMismatch for int8, FP8 and the like."""
    if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
        raise WeightMismatch(
            f"{source}: {key} is stored as {tensor.dtype}; quantised checkpoints (int8, w4a8, FP8) are not supported, "
            "use the release in float32 or bfloat16"
        )
    return tensor
