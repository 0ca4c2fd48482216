"""16-bit PCM: conversion from float samples and the WAV header, for a known or an unknown length."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from oscine.errors import NonFiniteOutput
from oscine.types import Samples

HEADER_BYTES = 44
UNKNOWN_SIZE = 0xFFFFFFFF
"""Declared by a stream: a RIFF size of 0 breaks Python's `wave`, a data size of 0 reads as empty."""


def wav_header(sample_rate: int, num_samples: int | None) -> bytes:
    """The 44 bytes before 16-bit mono samples; `num_samples` None, or past 4 GiB, declares an unknown length."""
    data = UNKNOWN_SIZE if num_samples is None else 2 * num_samples
    riff = data + HEADER_BYTES - 8
    if riff > UNKNOWN_SIZE:
        data = riff = UNKNOWN_SIZE
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16)
    return struct.pack("<4sI4s", b"RIFF", riff, b"WAVE") + form + struct.pack("<4sI", b"data", data)


def count_clipped(samples: Samples) -> int:
    """How many samples lie outside [-1, 1]."""
    return int(np.count_nonzero(np.abs(samples) > 1.0))


def check_finite(samples: Samples) -> None:
    """Raises NonFiniteOutput if a sample is NaN or infinite: never written as silence or noise."""
    if not np.isfinite(samples).all():
        bad = int(np.count_nonzero(~np.isfinite(samples)))
        raise NonFiniteOutput(f"{bad} of {len(samples)} audio samples are NaN or infinite; nothing was written")


def to_int16(samples: Samples) -> npt.NDArray[np.int16]:
    """Little-endian int16 [sample]: x times 32768, rounded half to even, limited to [-32768, 32767].

    The inverse of reading 16-bit audio as value / 32768, so that copying 16-bit audio changes nothing; no dither, so
    that equal samples give equal bytes.
    """
    check_finite(samples)
    scaled = np.rint(np.asarray(samples, dtype=np.float32) * np.float32(32768.0))
    limited: npt.NDArray[np.int16] = np.clip(scaled, -32768, 32767).astype("<i2")
    return limited


def pcm16_bytes(samples: Samples) -> bytes:
    """Signed 16-bit little-endian bytes of float samples [sample]; see `to_int16`."""
    return to_int16(samples).tobytes()


def codec_input(samples: Samples, *, lossless: bool) -> Samples | npt.NDArray[np.int16]:
    """What a codec is fed: our own int16 for a lossless one (so that flac equals wav), else floats within [-1, 1]."""
    if lossless:
        return to_int16(samples)
    check_finite(samples)
    return np.clip(np.asarray(samples, dtype=np.float32), -1.0, 1.0)
