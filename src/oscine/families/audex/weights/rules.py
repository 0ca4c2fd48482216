"""Which tensors are read from which files, and how they become parameters (AUDEX spec, 1.1 and 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from oscine.checkpoint.config import read_json
from oscine.checkpoint.weights import DtypePolicy, WeightRules, read_tensors
from oscine.errors import ConfigMismatch, MissingFile, WeightMismatch
from oscine.kernels.int8 import quantized

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
FULL_FOLDER = "checkpoint_folder_full"

AUDIO_PREFIXES = ("audio_encoder.", "audio_projector.")
LM_RULES = WeightRules(
    drop_suffixes=("rotary_emb.inv_freq",), rename=((r"^model\.embeddings\.", "model.embed_tokens."),)
)
"""A saved rotary table is not needed; some writers call the embedding otherwise. All else is read as it is."""

INT8_SUFFIXES = (*(f".{kind}_proj.weight" for kind in ("q", "k", "v", "o", "up", "down")), "lm_head.weight")
"""Matrices of the dense model that int8 is for; the table of embeddings, of which a step reads a row, stays wide."""

XCODEC_DROPPED = ("acoustic_encoder.", "encoder_semantic.", "decoder_semantic.", "semantic_model.", "fc.", "fc1.")
XCODEC_RULES = WeightRules(drop_suffixes=("codebook.embed_avg", "codebook.cluster_size", "codebook.inited"))


def shard_paths(folder: Path) -> dict[str, Path]:
    """Key → file of every tensor that the index of a checkpoint folder lists.

    A shard lies in the folder itself or in its sibling, the full checkpoint, and is read where it is. Without an index
    a single weight file counts. Raises MissingFile with both paths, or ConfigMismatch for an index of another form.
    """
    index_path, single = folder / INDEX_FILE, folder / SINGLE_FILE
    if not index_path.exists() and single.exists():
        return {key: single for key, _ in read_tensors(single)}
    weight_map = read_json(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ConfigMismatch(f"{index_path}: weight_map must be an object of tensor names and file names")
    files = {name: _find_shard(folder, name, index_path) for name in sorted(set(map(str, weight_map.values())))}
    return {key: files[str(name)] for key, name in weight_map.items()}


def lm_keys(shards: Mapping[str, Path], *, tied: bool) -> dict[str, Path]:
    """The part of `shards` that belongs to the language model; extra heads and a tied head's copy are left out."""
    dropped = (*AUDIO_PREFIXES, "mtp.", *(("lm_head.",) if tied else ()))
    return {key: path for key, path in shards.items() if not key.startswith(dropped)}


def audio_keys(shards: Mapping[str, Path]) -> dict[str, Path]:
    """The part of `shards` that belongs to the audio tower."""
    return {key: path for key, path in shards.items() if key.startswith(AUDIO_PREFIXES)}


def read_shards(shards: Mapping[str, Path]) -> Iterator[tuple[str, Tensor]]:
    """The tensors listed, file by file; what else is in a file is passed over."""
    for path in sorted(set(shards.values())):
        for key, tensor in read_tensors(path):
            if shards.get(key) == path:
                yield key, tensor


def lm_dtypes(dtype: torch.dtype) -> DtypePolicy:
    """The dtype of each parameter of a language model: router, state recurrence and int8 scales stay float32."""

    def policy(name: str) -> torch.dtype:
        wide = ".mixer.gate." in name or name.endswith((".mixer.A_log", ".mixer.D", ".mixer.dt_bias", ".scale"))
        return torch.float32 if wide else dtype

    return policy


def as_int8(tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """The tensors with each matrix of `INT8_SUFFIXES` as its int8 `weight` and `scale`. Raises WeightMismatch."""
    for key, tensor in tensors:
        if not (key.endswith(INT8_SUFFIXES) and tensor.dim() == 2):
            yield key, tensor
            continue
        if not tensor.isfinite().all():
            raise WeightMismatch(f"{key} holds NaN or infinite values, which int8 cannot")
        matrix = quantized(tensor)
        yield key, matrix.weight
        yield key.removesuffix("weight") + "scale", matrix.scale


def xcodec_tensors(path: Path, num_codebooks: int) -> Iterator[tuple[str, Tensor]]:
    """What decoding with the first `num_codebooks` needs of an XCodec1 file, and any key of unknown purpose."""
    beyond = {f"quantizer.quantizers.{i}." for i in range(num_codebooks, 64)}
    for key, tensor in read_tensors(path):
        if not key.startswith((*XCODEC_DROPPED, *beyond)):
            yield key, tensor


def _find_shard(folder: Path, name: str, index_path: Path) -> Path:
    if Path(name).name != name:
        raise ConfigMismatch(f"{index_path}: {name!r} must be a plain file name")
    places = [folder / name, folder.parent / FULL_FOLDER / name]
    for place in places:
        if place.is_file():
            return place
    raise MissingFile(f"{places[0]} is missing, and so is {places[1]}; the checkpoint needs one of the two")
