"""Makes a checkpoint: `python -m training.export --lm training/runs/lm --codec training/runs/codec --out FOLDER`.

The folder has the layout of the released checkpoints, with weights in float16; `oscine.load` takes it as any other.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from oscine.families.audio8.codec.spectral import SpectralCodec
from oscine.families.audio8.codec.spectral_config import KIND
from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model.dual_ar import DualAR
from training.checkpoint import halved, trained_weights
from training.codec import load_codec
from training.lm import initialise, model_config
from training.tokenizer import FRONTEND, build_tokenizer

SAMPLING = {"do_sample": True, "temperature": 0.15, "top_k": 40, "top_p": 0.9, "max_new_tokens": 512}
SPEAKERS = {"heart": {"tag": 1, "gender": "female"}, "michael": {"tag": 0, "gender": "male"}}
"""Names of the voices, the first one the default; a tag is a voice's place in `factors.SPEAKERS`."""
PIECE_WEIGHT = 80
"""Characters the model speaks in one go: it hears few longer texts in training, and skips words of them."""
GAINS = 3
"""What the codec tells of a bin of a spectrum: the gain of the pulses, their turn, the gain of the noise."""
RAS_WINDOW = 0
"""No redraw of repeated codes: a sound that lasts for several frames repeats its code, as it should."""


def louder(codec: SpectralCodec, decibels: float) -> dict[str, Tensor]:
    """The weights of `codec`, whose audio they make `decibels` louder: both its gains are logarithms."""
    weights = codec.state_dict()
    bias = weights["spectra.bias"].reshape(-1, GAINS, codec.config.num_bins).clone()
    bias[:, [0, 2]] += decibels / 20 * math.log(10)
    return {**weights, "spectra.bias": bias.flatten()}


def write_folder(
    folder: Path,
    values: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    codec: SpectralCodec,
    sampling: Mapping[str, Any] = SAMPLING,
    *,
    gain_db: float = 0.0,
) -> None:
    """Writes the checkpoint of a language model with the configuration `values` and of the `codec`."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"kind": KIND, **dataclasses.asdict(codec.config)}
    front = {
        "num_codebooks": values["num_codebooks"],
        "semantic_begin_id": values["semantic_begin_id"],
        "audio_sampling_rate": codec.config.sample_rate,
        "text_frontend": FRONTEND,
        "voice_cloning": False,
        "speakers": SPEAKERS,
        "piece_weight": PIECE_WEIGHT,
    }
    for name, content in {
        "config.json": {**values, "ras_window_size": RAS_WINDOW, "codec_config": config},
        "generation_config.json": sampling,
        "preprocessor_config.json": front,
    }.items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    build_tokenizer().save(str(folder / "tokenizer.json"))
    for name, tensors in {"model.safetensors": weights, "codec.safetensors": louder(codec, gain_db)}.items():
        save_file(halved(tensors), folder / name)
        (folder / name).chmod(0o644)


def sharpened(weights: Mapping[str, Tensor], factor: float) -> dict[str, Tensor]:
    """The weights with the fast model's logits times `factor`: its codes are drawn at temperature / factor.

    The semantic code decides what is said and wants variety; the codes that refine it want to be likely ones.
    """
    return {name: value * factor if name == "fast_output.weight" else value for name, value in weights.items()}


def random_weights() -> tuple[dict[str, Any], dict[str, Tensor]]:
    """An untrained model of the dimensions that training uses, to measure its speed."""
    values = model_config()
    torch.manual_seed(1)
    model = DualAR(LMConfig.from_dict(values))
    initialise(model)
    return values, model.state_dict()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm", type=Path, help="folder with last.pt; without it the weights are random")
    parser.add_argument("--codec", type=Path, required=True, help="folder with codec.safetensors")
    parser.add_argument("--temperature", type=float, default=SAMPLING["temperature"])
    parser.add_argument("--top-k", type=int, default=SAMPLING["top_k"])
    parser.add_argument("--top-p", type=float, default=SAMPLING["top_p"])
    parser.add_argument("--fast-factor", type=float, default=2.0, help="what the fast model's logits are multiplied by")
    parser.add_argument("--gain-db", type=float, default=0.0, help="how much louder than trained the voices speak")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    options = parser.parse_args()
    codec = load_codec(options.codec)
    values, weights = trained_weights(options.lm) if options.lm else random_weights()
    sampling = {"temperature": options.temperature, "top_k": options.top_k, "top_p": options.top_p}
    sharp = sharpened(weights, options.fast_factor)
    write_folder(options.out, values, sharp, codec, {**SAMPLING, **sampling}, gain_db=options.gain_db)
    size = sum(file.stat().st_size for file in options.out.iterdir() if file.is_file())
    print(f"{options.out}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
