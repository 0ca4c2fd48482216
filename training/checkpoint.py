"""A model as one small file to go on from: `python -m training.checkpoint --run DIR --codes FILE --out FILE`.

It holds the averaged weights in float16, the model's configuration and the codebook that its codes belong to, but no
state of the optimiser: `training.lm --start FILE` and `training.codec --start FILE` begin a run with it on any machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from training.factors import read_codebook


def halved(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in float16, ready to be written. Raises ValueError if a value is beyond its range."""
    result = {name: value.detach().to(torch.float16).contiguous().cpu() for name, value in tensors.items()}
    broken = [name for name, value in result.items() if not value.isfinite().all()]
    if broken:
        raise ValueError(f"not finite in float16: {broken}")
    return result


def trained_weights(run: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Configuration and averaged weights of the last checkpoint in the folder `run`."""
    content = torch.load(run / "last.pt", weights_only=True, map_location="cpu")
    return content["config"], content["averaged"]


def write_start(
    path: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor], codebook: tuple[list[str], Tensor]
) -> None:
    """Writes the file; `codebook` is (sounds, loudness centres)."""
    names, centres = codebook
    metadata = {"config": config, "sounds": names, "loudness": centres.tolist()}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(halved(weights), path, {name: json.dumps(value) for name, value in metadata.items()})
    path.chmod(0o644)


def read_start(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(configuration, weights in float32) of the file; its codebook is what `factors.read_codebook` reads from it."""
    with safe_open(path, "pt") as file:
        config = json.loads(file.metadata()["config"])
    return config, {name: value.float() for name, value in load_file(path).items()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="folder with last.pt of a language model or a codec")
    parser.add_argument("--codes", type=Path, required=True, help="file of codes it was trained on")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    options = parser.parse_args()
    write_start(options.out, *trained_weights(options.run), read_codebook(options.codes))
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
