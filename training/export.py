"""Makes a checkpoint: `python -m training.export --lm training/runs/lm --codec training/runs/codec --out FOLDER`.

The folder has the layout of the released checkpoints, with weights in float16; `oscine.load` takes it as any other.
The codec is cut to the codebooks that the language model speaks.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from oscine.families.audio8.codec import Codec
from oscine.families.audio8.codec_config import CodecConfig
from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model import DualAR
from training.codec import load_codec
from training.lm import initialise, model_config
from training.tokenizer import FRONTEND, build_tokenizer

SAMPLING = {"do_sample": True, "temperature": 0.15, "top_k": 40, "top_p": 0.9, "max_new_tokens": 512}
SPEAKERS = {"michael": 0}
PIECE_WEIGHT = 80
"""Characters the model speaks in one go: it hears few longer texts in training, and skips words of them."""
RAS_WINDOW = 0
"""No redraw of repeated codes: a sound that lasts for several frames repeats its code, as it should."""


def cut_codec(codec: Codec, num_codebooks: int) -> tuple[CodecConfig, dict[str, Tensor]]:
    """The configuration and weights of `codec` with its first `num_codebooks` codebooks alone."""
    config = dataclasses.replace(codec.config, n_residual_codebooks=num_codebooks - 1)
    residual = "quantizer.quantizer.quantizers."

    def is_kept(name: str) -> bool:
        return not name.startswith(residual) or int(name.removeprefix(residual).split(".")[0]) < num_codebooks - 1

    return config, {name: value for name, value in codec.state_dict().items() if is_kept(name)}


def halved(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in float16, ready to be written. Raises ValueError if a value is beyond its range."""
    result = {name: value.detach().to(torch.float16).contiguous().cpu() for name, value in tensors.items()}
    broken = [name for name, value in result.items() if not value.isfinite().all()]
    if broken:
        raise ValueError(f"not finite in float16: {broken}")
    return result


def write_folder(
    folder: Path,
    values: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    codec: Codec,
    sampling: Mapping[str, Any] = SAMPLING,
) -> None:
    """Writes the checkpoint of a language model with the configuration `values` and of the `codec`."""
    folder.mkdir(parents=True, exist_ok=True)
    config, codec_weights = cut_codec(codec, values["num_codebooks"])
    front = {
        "num_codebooks": values["num_codebooks"],
        "semantic_begin_id": values["semantic_begin_id"],
        "audio_sampling_rate": config.sample_rate,
        "text_frontend": FRONTEND,
        "voice_cloning": False,
        "speakers": SPEAKERS,
        "piece_weight": PIECE_WEIGHT,
    }
    for name, content in {
        "config.json": {**values, "ras_window_size": RAS_WINDOW, "codec_config": dataclasses.asdict(config)},
        "generation_config.json": sampling,
        "preprocessor_config.json": front,
    }.items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    build_tokenizer().save(str(folder / "tokenizer.json"))
    for name, tensors in {"model.safetensors": weights, "codec.safetensors": codec_weights}.items():
        save_file(halved(tensors), folder / name)
        (folder / name).chmod(0o644)


def sharpened(weights: Mapping[str, Tensor], factor: float) -> dict[str, Tensor]:
    """The weights with the fast model's logits times `factor`: its codes are drawn at temperature / factor.

    The semantic code decides what is said and wants variety; the codes that refine it want to be likely ones.
    """
    return {name: value * factor if name == "fast_output.weight" else value for name, value in weights.items()}


def trained_weights(run: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Configuration and averaged weights of the last checkpoint in the folder `run`."""
    content = torch.load(run / "last.pt", weights_only=True, map_location="cpu")
    return content["config"], content["averaged"]


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
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    options = parser.parse_args()
    codec = load_codec(options.codec)
    values, weights = trained_weights(options.lm) if options.lm else random_weights()
    sampling = {"temperature": options.temperature, "top_k": options.top_k, "top_p": options.top_p}
    write_folder(options.out, values, sharpened(weights, options.fast_factor), codec, {**SAMPLING, **sampling})
    size = sum(file.stat().st_size for file in options.out.iterdir() if file.is_file())
    print(f"{options.out}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
