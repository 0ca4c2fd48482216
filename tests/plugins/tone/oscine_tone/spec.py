"""What the family declares about itself; it imports no model code."""

from __future__ import annotations

from oscine.registry import BenchSpec, FamilySpec, Release
from oscine.types import Voice


def check_voice(voice: Voice) -> None:
    """Raises ValueError unless a cloned voice has one pitch in Hz."""
    if voice.speaker is None and [value.shape for value in voice.tensors.values()] != [(1,)]:
        raise ValueError("a voice of this family is one pitch")


FAMILY = FamilySpec(
    name="tone",
    package=__package__,
    model_types=("tone",),
    threads=lambda folder: 1,
    check_voice=check_voice,
    releases=(
        Release(
            name="Tone 1",
            hub_ids=("example/tone-1",),
            licence="CC0-1.0",
            lm_parameters=26,
            request_bytes=1 << 16,
            codec_bytes=0,
        ),
    ),
    bench=BenchSpec(names=("tone-1",)),
)
