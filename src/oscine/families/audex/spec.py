"""What Audex declares about itself (AUDEX spec, 1 and 6.7)."""

from __future__ import annotations

from oscine.registry import BenchSpec, FamilySpec, Release

DENSE_PARAMETERS, HYBRID_PARAMETERS = 2_250_360_832, 31_977_054_528
DENSE_TOWER, HYBRID_TOWER = 650_601_728, 653_223_168
CODEC_PARAMETERS = 613_758_976 + 24_657_729  # the speech decoder, and what of XCodec1 decodes
EMBEDDINGS = 205_312 * 2048

SPOKEN = 2048 + 120  # tokens and prompt of a spoken request
# Twice: while a cache grows, the old one is there too.
_DENSE_LANE = 2 * SPOKEN * 28 * 2 * 8 * 128 * 4  # positions, layers, k and v, kv heads, head size, bytes
_HYBRID_LANE = 2 * (SPOKEN * 6 * 2 * 2 * 128 * 4 + 23 * (6144 * 4 * 4 + 4096 * 128 * 4))  # and Mamba's states
_SPEECH_KEYS = 2 * SPOKEN * 12 * 2 * 2048 * 4  # of the speech decoder

_LICENCE = "NVIDIA OneWay Noncommercial License (research and development only); XCodec1 has its own"

PARTS = ("lm", "decoder", "xcodec", "mask")

FAMILY = FamilySpec(
    name="audex",
    package=__package__,
    model_types=("nemotron_labs_audex",),
    # Nothing reads them; the second has an index without its files (AUDEX spec, 1.1).
    unused_folders=("enhancement_VAE", "checkpoint_folder_textonly", "license"),
    dtypes=("float32", "bfloat16", "float16", "int8"),
    releases=(
        Release(
            name="Nemotron-Labs-Audex-2B",
            hub_ids=("nvidia/Nemotron-Labs-Audex-2B",),
            lm_parameters=DENSE_PARAMETERS + DENSE_TOWER,
            request_bytes=_DENSE_LANE + _SPEECH_KEYS,
            licence=_LICENCE,
            codec_bytes=4 * CODEC_PARAMETERS,
            int8_parameters=DENSE_PARAMETERS - EMBEDDINGS,
        ),
        Release(
            name="Nemotron-Labs-Audex-30B-A3B",
            hub_ids=("nvidia/Nemotron-Labs-Audex-30B-A3B",),
            lm_parameters=HYBRID_PARAMETERS + HYBRID_TOWER,
            request_bytes=_HYBRID_LANE + _SPEECH_KEYS,
            licence=_LICENCE,
            codec_bytes=4 * CODEC_PARAMETERS,
        ),
    ),
    bench=BenchSpec(names=("audex-2b",), parts=PARTS, options=frozenset({"batches"})),
)
