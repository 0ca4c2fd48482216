"""What Audio8 TTS declares about itself (AUDIO8 spec, 1 and 2)."""

from __future__ import annotations

from pathlib import Path

from oscine.families.audio8.backends import SMALL_WEIGHTS
from oscine.registry import BenchSpec, FamilySpec, Release
from oscine.types import Voice

CODEC_PARAMETERS = 337_428_866  # the same file in every release, always kept in float32
CODEC_FOLDED_PARAMETERS = 76_546_545
"""Those under weight norm: new tensors are made of them while the pickle is still held."""
_CODEC_BYTES = 4 * (CODEC_PARAMETERS + CODEC_FOLDED_PARAMETERS)

_DENSE_REQUEST = 2048 * 24 * 2 * 2 * 64 * 4  # positions, layers, k and v, kv heads, head size, bytes
_HYBRID_REQUEST = _DENSE_REQUEST + 24 * (896 * 4 + 24 * 32 * 64) * 4  # and the convolution and state-space states


def threads(folder: Path) -> int | None:
    """One for a small model: it is slower with more, and its codec works on another core meanwhile."""
    file = folder / "model.safetensors"
    return 1 if file.is_file() and file.stat().st_size <= 4 * SMALL_WEIGHTS else None


def backends() -> dict[str, bool]:
    """Compiled steps, if they were made when oscine was installed, and the path that they stand for."""
    from oscine.families.audio8.backends.native import load_library

    return {"native": load_library() is not None, "eager": True}


def check_voice(voice: Voice) -> None:
    """Raises ValueError unless a cloned voice has codes int64 [codebook, frame] and nothing else."""
    if voice.version != 1:
        raise ValueError(f"its version is {voice.version}; this release reads version 1")
    if not voice.tensors and voice.speaker is not None:
        return
    if set(voice.tensors) != {"codes"}:
        raise ValueError(f"its tensors are {', '.join(sorted(voice.tensors)) or 'none'}, expected codes")
    codes = voice.tensors["codes"]
    if codes.dtype != "int64" or codes.ndim != 2 or not codes.size or codes.min() < 0:
        raise ValueError(f"its codes are {codes.dtype} {codes.shape}, expected int64 [codebook, frame] of at least 0")


FAMILY = FamilySpec(
    name="audio8",
    package=__package__,
    model_types=("arktts",),
    hub_files=("codec.pth",),
    backends=backends,
    threads=threads,
    check_voice=check_voice,
    releases=(
        Release(
            name="Audio8 TTS Preview 0.6B",
            hub_ids=("Audio8/Audio8-TTS-Preview-0.6b", "Edge0/Audio8-TTS-Preview-0.6b"),
            lm_parameters=601_159_424,
            request_bytes=_DENSE_REQUEST,
            codec_bytes=_CODEC_BYTES,
            licence="Apache-2.0",
        ),
        Release(
            name="Audio8 TTS Preview 0.1B",
            hub_ids=("Audio8/Audio8-TTS-Preview-0.1b", "Edge0/Audio8-TTS-Preview-0.1b"),
            lm_parameters=169_779_904,
            request_bytes=_HYBRID_REQUEST,
            codec_bytes=_CODEC_BYTES,
            licence="Audio8 Community License v1.0 (free below 2 million USD of annual revenue)",
        ),
    ),
    bench=BenchSpec(names=("audio8-0.6b", "audio8-0.1b")),
)
