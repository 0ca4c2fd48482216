"""Trains the codec's encoder to hear the codes: `python -m training.encoder --codec DIR --data DIR ... --minutes 8`.

The decoder (`training.codec`) needs no encoder: its codes come from the teacher. The encoder learns to find the same
codes in audio, one codebook after the other, while everything else stays as it is. Writes the finished codec in place.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audio8.codec import Codec
from oscine.families.audio8.codec_quantizer import VectorQuantizer
from training.codec import HELD_OUT_EVERY, export, load_codec
from training.coded import Segments, Source
from training.common import Log, learning_rate
from training.factors import CODEBOOK_SIZE, DELAY, FRAME, NUM_CODEBOOKS
from training.fast_conv import use_fast_kernels
from training.heads import PHASE_HOP

SEED = 1
BATCH, SEGMENT_FRAMES, SKIPPED_FRAMES = 4, 40, 4
PEAK_RATE = 1.5e-3
SHARPNESS = 16.0  # what cosines are multiplied by before the softmax
LOG_EVERY = 25


def layers_of(codec: Codec) -> list[VectorQuantizer]:
    """The quantisers in the order of their codes."""
    return [*codec.quantizer.semantic_quantizer.quantizers, *codec.quantizer.quantizer.quantizers]  # type: ignore[list-item]


@torch.no_grad()
def separate_directions(codec: Codec) -> None:
    """Moves each codebook away from the origin, without a change to what it decodes to.

    The nearest code is found by direction, but loudnesses and advances differ in length. Seen from afar every code has
    a direction of its own; the projection's bias takes the shift back.
    """
    generator = torch.Generator().manual_seed(SEED)
    for layer in layers_of(codec):
        book = layer.codebook.weight
        away = torch.randn(book.shape[1], generator=generator)
        away *= book.norm(dim=-1).mean() / away.norm()
        book += away
        layer.out_proj.bias -= layer.out_proj.weight[..., 0] @ away


def code_losses(codec: Codec, z: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """(mean cross-entropy, share of codes found [C]) of latents z [B, dim, frame] for true codes [B, C, frame].

    What each codebook leaves to the next is taken from the true codes.
    """
    residual, losses, found = z, [], []
    for number, layer in enumerate(layers_of(codec)):
        projected = F.normalize(layer.in_proj(residual).transpose(1, 2), dim=-1)
        logits = SHARPNESS * projected @ F.normalize(layer.codebook.weight, dim=-1).T
        true = codes[:, number]
        losses.append(F.cross_entropy(logits.flatten(0, 1), true.flatten()))
        found.append((logits.argmax(-1) == true).float().mean())
        residual = residual - layer.decode(true)
    return torch.stack(losses).mean(), torch.stack(found)


def train(codec: Codec, segments: Segments, out: Path, minutes: float) -> None:
    """Trains for `minutes`, printing the share of codes found in each codebook."""
    torch.manual_seed(SEED)
    quantizer = codec.quantizer
    separate_directions(codec)
    learning: list[nn.Parameter] = []
    for part in (codec.encoder, quantizer.downsample, quantizer.pre_module, *(q.in_proj for q in layers_of(codec))):
        learning += part.requires_grad_(True).parameters()
    use_fast_kernels(codec.encoder)
    optimizer = torch.optim.AdamW(learning, betas=(0.9, 0.98), weight_decay=1e-2, fused=True)
    generator, log = torch.Generator().manual_seed(SEED), Log(out / "encoder")
    begin, step = time.perf_counter(), 0
    while (spent := time.perf_counter() - begin) < minutes * 60:
        drawn = segments.draw(generator, BATCH, SEGMENT_FRAMES, PHASE_HOP)
        audio = drawn.audio[..., DELAY * FRAME :]  # what the codes say of this moment, not what the decoder says then
        codes = drawn.codes[..., : SEGMENT_FRAMES - DELAY]
        z = quantizer.pre_module(quantizer.downsample(codec.encoder(audio)))
        loss, found = code_losses(codec, z[..., SKIPPED_FRAMES:], codes[..., SKIPPED_FRAMES:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(learning, 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(spent / (minutes * 60), step, PEAK_RATE)
        optimizer.step()
        step += 1
        log.add(loss=loss, **{f"found{i}": found[i] for i in range(NUM_CODEBOOKS)})
        if step % LOG_EVERY == 0:
            log.line(step, spent / 60)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with audio/ and meta.jsonl")
    parser.add_argument("--cache", type=Path, default=Path("training/runs/clips"))
    parser.add_argument("--codes", type=Path, required=True, help="its codes (training.factors)")
    parser.add_argument("--prosody", type=Path, required=True, help="its curves (training.prosody)")
    parser.add_argument("--codec", type=Path, required=True, help="folder of training.codec")
    parser.add_argument("--out", type=Path, required=True, help="folder for the finished codec")
    parser.add_argument("--minutes", type=float, default=8.0)
    options = parser.parse_args()
    segments = Segments([Source.load(options.data, options.cache, options.codes, options.prosody)], HELD_OUT_EVERY)
    codec = load_codec(options.codec)
    train(codec, segments, options.out, options.minutes)
    export(codec, options.out)
    print(f"{options.out}: {CODEBOOK_SIZE} codes in {NUM_CODEBOOKS} codebooks")


if __name__ == "__main__":
    main()
