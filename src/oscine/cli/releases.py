"""The releases `oscine doctor` knows: what they need and under what licence.

AUDIO8 spec, 1 and 2; AUK spec, 1; AUDEX spec, 1 and 6.7.
"""

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
    that take turns where they do not fit together; None: everything must fit. `int8_parameters` are those that int8
    makes a byte each, the others of the language model staying at 4 bytes on the CPU; None: there is no int8.
    """

    name: str
    hub_ids: tuple[str, ...]
    lm_parameters: int
    request_bytes: int
    licence: str
    codec_bytes: int = 4 * (CODEC_PARAMETERS + CODEC_FOLDED_PARAMETERS)
    in_turn: int | None = None
    int8_parameters: int | None = None


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

AUDEX_DENSE, AUDEX_HYBRID = 2_250_360_832, 31_977_054_528
AUDEX_DENSE_TOWER, AUDEX_HYBRID_TOWER = 650_601_728, 653_223_168
AUDEX_CODECS = 613_758_976 + 24_657_729  # the speech decoder, and what of XCodec1 decodes
AUDEX_EMBEDDINGS = 205_312 * 2048
AUDEX_SPOKEN = 2048 + 120
"""Tokens and prompt of a spoken request."""
# Twice: while a cache grows, the old one is there too.
_DENSE_LANE = 2 * AUDEX_SPOKEN * 28 * 2 * 8 * 128 * 4  # positions, layers, k and v, kv heads, head size, bytes
_HYBRID_LANE = 2 * (AUDEX_SPOKEN * 6 * 2 * 2 * 128 * 4 + 23 * (6144 * 4 * 4 + 4096 * 128 * 4))  # and Mamba's states
_SPEECH_KEYS = 2 * AUDEX_SPOKEN * 12 * 2 * 2048 * 4  # of the speech decoder
_AUDEX_LICENCE = "NVIDIA OneWay Noncommercial License (research and development only); XCodec1 has its own"
AUDEX_RELEASES = (
    Release(
        name="Nemotron-Labs-Audex-2B",
        hub_ids=("nvidia/Nemotron-Labs-Audex-2B",),
        lm_parameters=AUDEX_DENSE + AUDEX_DENSE_TOWER,
        request_bytes=_DENSE_LANE + _SPEECH_KEYS,
        licence=_AUDEX_LICENCE,
        codec_bytes=4 * AUDEX_CODECS,
        int8_parameters=AUDEX_DENSE - AUDEX_EMBEDDINGS,
    ),
    Release(
        name="Nemotron-Labs-Audex-30B-A3B",
        hub_ids=("nvidia/Nemotron-Labs-Audex-30B-A3B",),
        lm_parameters=AUDEX_HYBRID + AUDEX_HYBRID_TOWER,
        request_bytes=_HYBRID_LANE + _SPEECH_KEYS,
        licence=_AUDEX_LICENCE,
        codec_bytes=4 * AUDEX_CODECS,
    ),
)

RELEASES = (*AUDIO8_RELEASES, *AUK_RELEASES, *AUDEX_RELEASES)


def memory_needed(release: Release, lm_bytes_each: int, *, in_turn: bool = False) -> int:
    """Bytes to load the release and run one request of full length: weights by dtype, its state, the runtime.

    `in_turn`: with the parts that can take turns in memory one at a time.
    """
    parameters = release.in_turn if in_turn and release.in_turn is not None else release.lm_parameters
    return parameters * lm_bytes_each + release.codec_bytes + release.request_bytes + RUNTIME_BYTES


def int8_memory_needed(release: Release) -> int | None:
    """The same with int8 weights on the CPU; None for a release that has none."""
    if release.int8_parameters is None:
        return None
    return memory_needed(release, 4) - 3 * release.int8_parameters
