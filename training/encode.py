"""Encodes every clip: `python -m training.encode --codec training/runs/codec --out training/runs/codes.safetensors`.

Writes one int16 tensor [codebook, frame] a clip, named by its id; the file's metadata hold the codec's configuration.
Run it once the encoder is final (after `training.codec`); the language model trains on these codes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from oscine.families.audio8.codec import Codec
from oscine.families.audio8.codec_config import CodecConfig
from training.dataset import load_clips


def load_codec(folder: Path) -> Codec:
    """The codec exported to `folder`, in evaluation mode."""
    codec = Codec(CodecConfig.from_dict(json.loads((folder / "codec_config.json").read_text())))
    codec.load_state_dict(load_file(folder / "codec.safetensors"))
    return codec.eval().requires_grad_(False)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with audio/ and meta.jsonl")
    parser.add_argument("--cache", type=Path, default=Path("training/runs/clips"))
    parser.add_argument("--codec", type=Path, required=True, help="folder with codec.safetensors")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    options = parser.parse_args()
    clips, codec = load_clips(options.data, options.cache), load_codec(options.codec)
    codes = {}
    for index, name in enumerate(clips.ids):
        codes[name] = codec.encode(clips.clip(index)[None, None])[0][0].to(torch.int16)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    save_file(codes, options.out, {"codec_config": (options.codec / "codec_config.json").read_text()})
    frames = sum(c.shape[1] for c in codes.values())
    print(f"{len(codes)} clips, {frames} frames, {codec.config.num_codebooks} codebooks")


if __name__ == "__main__":
    main()
