"""Frames of the split deployment: `AUK1`, the header's length, JSON, safetensors (AUK spec, section 6)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from oscine.checkpoint.json_text import parse_json
from oscine.errors import InvalidRequest

MAGIC = b"AUK1"
_LENGTH = struct.Struct(">I")
MAX_HEADER_BYTES = 1 << 20


def encode_frame(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    """One frame of a JSON header and tensors."""
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    return MAGIC + _LENGTH.pack(len(text)) + text + safetensors.torch.save(dict(tensors))


def decode_frame(data: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(header, tensors) of a frame. Raises InvalidRequest for anything else."""
    start = len(MAGIC) + _LENGTH.size
    if len(data) < start or not data.startswith(MAGIC):
        raise InvalidRequest("not an AUK1 frame")
    (length,) = _LENGTH.unpack_from(data, len(MAGIC))
    if length > min(MAX_HEADER_BYTES, len(data) - start):
        raise InvalidRequest(f"the frame's header claims {length} bytes")
    try:
        header = parse_json(data[start : start + length], non_finite=True)
        tensors = safetensors.torch.load(data[start + length :])
    except (ValueError, SafetensorError) as error:
        raise InvalidRequest(f"the frame cannot be read: {error}") from error
    if not isinstance(header, dict):
        raise InvalidRequest("the frame's header must be a JSON object")
    return header, tensors
