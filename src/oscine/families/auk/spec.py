"""What AuK declares about itself (AUK spec, 1)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oscine.registry import BenchSpec, FamilySpec, Release

TRANSFORMER_PARAMETERS, VAE_PARAMETERS, ENCODER_PARAMETERS = 1_530_538_629, 159_299_797, 3_723_615_232


def recognise(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The variant of a folder that has config.yaml, by the name of its model, and "auk" for a flat folder.

    A flat folder has the configuration of the encoder, with the parts of AuK added.
    """
    if {"dit", "vae"} <= config.keys():
        return "auk"
    file = folder / "config.yaml"
    if config or not file.is_file():
        return None
    name = re.search(
        r"^model:[ \t]*\n(?:[ \t]+.*\n|\n)*?[ \t]+name:[ \t]*(\S+)", file.read_text(encoding="utf-8"), re.M
    )
    return name.group(1).strip("\"'").lower() if name else "unknown"


PARTS = ("conditioner", "dit", "vae")

FAMILY = FamilySpec(
    name="auk",
    package=__package__,
    # The last is AuK's encoder alone: the family says what is missing.
    model_types=("auk", "auk-flash", "qwen2_5_omni"),
    recognise=recognise,
    config_files=("config.yaml",),
    hub_files=("*.yaml",),
    backends=lambda: {"eager": True, "compiled": True},
    releases=tuple(
        Release(
            name=name,
            hub_ids=(hub_id,),
            lm_parameters=TRANSFORMER_PARAMETERS + ENCODER_PARAMETERS,
            request_bytes=2 * (100 + 1500) * 1536 * 24 * 4,  # lanes, tokens, width, vectors alive, bytes
            licence="MIT; its encoder Qwen/Qwen2.5-Omni-3B: Qwen research licence, non-commercial",
            codec_bytes=4 * VAE_PARAMETERS,
            in_turn=ENCODER_PARAMETERS,
        )
        for name, hub_id in (("AuK", "tencent/AuK"), ("AuK-Flash", "tencent/AuK-Flash"))
    ),
    bench=BenchSpec(
        names=("auk", "auk-flash"),
        parts=PARTS,
        options=frozenset({"steps", "guided", "duration_s"}),
    ),
)
