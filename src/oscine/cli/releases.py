"""The releases `oscine doctor` knows: what they need and under what licence (AUDIO8 spec, 1 and 2; AUK spec, 1)."""

from __future__ import annotations

from dataclasses import dataclass

CODEC_PARAMETERS = 337_428_866  # the same file in every release, always kept in float32
CODEC_FOLDED_PARAMETERS = 76_546_545
"""Those under weight norm: new tensors are made of them while the pickle is still held."""
RUNTIME_BYTES = 450_000_000
"""The interpreter with torch loaded (270 MB measured) and room for the codec to work in."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """A published checkpoint. `request_bytes` is what one running request of full length takes at 4 bytes a value.

    `lm_parameters` are held in the chosen dtype, `codec_bytes` are always float32. `in_turn` is the larger of two parts
    that take turns where they do not fit together; None: everything must fit.
    """

    name: str
    hub_ids: tuple[str, ...]
    lm_parameters: int
    request_bytes: int
    licence: str
    codec_bytes: int = 4 * (CODEC_PARAMETERS + CODEC_FOLDED_PARAMETERS)
    in_turn: int | None = None


_DENSE_REQUEST = 2048 * 24 * 2 * 2 * 64 * 4  # positions, layers, k and v, kv heads, head size, bytes
_HYBRID_REQUEST = _DENSE_REQUEST + 24 * (896 * 4 + 24 * 32 * 64) * 4  # and the convolution and state-space states

AUDIO8_RELEASES = (
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


AUK_TRANSFORMER, AUK_VAE, AUK_ENCODER = 1_530_538_629, 159_299_797, 3_723_615_232
AUK_RELEASES = tuple(
    Release(
        name=name,
        hub_ids=(hub_id,),
        lm_parameters=AUK_TRANSFORMER + AUK_ENCODER,
        request_bytes=2 * (100 + 1500) * 1536 * 24 * 4,  # lanes, tokens, width, vectors alive, bytes
        licence="MIT; its encoder Qwen/Qwen2.5-Omni-3B: Qwen research licence, non-commercial",
        codec_bytes=4 * AUK_VAE,
        in_turn=AUK_ENCODER,
    )
    for name, hub_id in (("AuK", "tencent/AuK"), ("AuK-Flash", "tencent/AuK-Flash"))
)

RELEASES = (*AUDIO8_RELEASES, *AUK_RELEASES)


def memory_needed(release: Release, lm_bytes_each: int, *, in_turn: bool = False) -> int:
    """Bytes to load the release and run one request of full length: weights by dtype, its state, the runtime.

    `in_turn`: with the parts that can take turns in memory one at a time.
    """
    parameters = release.in_turn if in_turn and release.in_turn is not None else release.lm_parameters
    return parameters * lm_bytes_each + release.codec_bytes + release.request_bytes + RUNTIME_BYTES
