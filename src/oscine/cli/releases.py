"""The releases `oscine doctor` knows: what they need and under what licence, from the AUDIO8 spec, 1 and 2."""

from __future__ import annotations

from dataclasses import dataclass

CODEC_PARAMETERS = 337_428_866  # the same file in every release, always kept in float32
CODEC_FOLDED_PARAMETERS = 76_546_545
"""Those under weight norm: new tensors are made of them while the pickle is still held."""
RUNTIME_BYTES = 450_000_000
"""The interpreter with torch loaded (270 MB measured) and room for the codec to work in."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """A published checkpoint. `request_bytes` is what one running request of full length takes at 4 bytes a value."""

    name: str
    hub_ids: tuple[str, ...]
    lm_parameters: int
    request_bytes: int
    licence: str


_DENSE_REQUEST = 2048 * 24 * 2 * 2 * 64 * 4  # positions, layers, k and v, kv heads, head size, bytes
_HYBRID_REQUEST = _DENSE_REQUEST + 24 * (896 * 4 + 24 * 32 * 64) * 4  # and the convolution and state-space states

RELEASES = (
    Release(
        name="Audio8 TTS Preview 0.6B",
        hub_ids=("Audio8/Audio8-TTS-Preview-0.6b", "Edge0/Audio8-TTS-Preview-0.6b"),
        lm_parameters=601_159_424,
        request_bytes=_DENSE_REQUEST,
        licence="Apache-2.0",
    ),
    Release(
        name="Audio8 TTS Preview 0.1B",
        hub_ids=("Audio8/Audio8-TTS-Preview-0.1b", "Edge0/Audio8-TTS-Preview-0.1b"),
        lm_parameters=169_779_904,
        request_bytes=_HYBRID_REQUEST,
        licence="Audio8 Community License v1.0 (free below 2 million USD of annual revenue)",
    ),
)


def memory_needed(release: Release, lm_bytes_each: int) -> int:
    """Bytes to load the release and run one request of full length: weights by dtype, its state, the runtime."""
    codec = 4 * (CODEC_PARAMETERS + CODEC_FOLDED_PARAMETERS)
    return release.lm_parameters * lm_bytes_each + codec + release.request_bytes + RUNTIME_BYTES
