"""Trains the small codec: `python -m training.codec --data DIR --out training/runs/codec --minutes 45`.

Encoder, quantisers and decoder learn together on spectral losses, codebook losses and a phoneme head on the semantic
code. Run again with the same `--out` to resume from the last checkpoint. Afterwards the encoder and the codes are
final: `training.encode` exports the codes and `training.codec_gan` goes on with the decoder alone.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from oscine.families.audio8.codec import Codec
from oscine.families.audio8.codec_config import CodecConfig
from oscine.families.audio8.codec_layers import ResidualUnit
from training.common import Log, average_into, learning_rate, save
from training.dataset import Clips, load_clips
from training.fast_conv import use_fast_kernels
from training.losses import SpectralLoss
from training.quantize import (
    CodeMemory,
    PhonemeHead,
    codebooks,
    draw_depths,
    quantise,
    start_from_principal_axes,
)

CONFIG = CodecConfig(
    sample_rate=24000,
    encoder_dim=8,
    encoder_rates=(3, 4, 4, 5),
    encoder_transformer_layers=(0, 0, 0, 0),
    encoder_window=64,
    latent_dim=192,
    decoder_dim=256,
    decoder_rates=(3, 4, 4, 5),
    transformer_head_dim=64,
    semantic_codebook_size=1024,
    n_residual_codebooks=7,
    residual_codebook_size=1024,
    codebook_dim=8,
    downsample_factors=(2, 2),
    pre_n_layer=2,
    pre_n_head=3,
    pre_intermediate_size=576,
    post_n_layer=4,
    post_n_head=3,
    post_n_local_heads=3,
    post_intermediate_size=576,
    quantizer_window=24,
)
SEED = 1
BATCH, SEGMENT_FRAMES = 4, 32
UNQUANTISED_STEPS = 200  # the codec first learns to copy; then codebooks start from the vectors it makes
PEAK_RATE, WEIGHT_DECAY, AVERAGE_DECAY = 1.5e-3, 1e-2, 0.998
CODEBOOK_SPEED = 4.0
SPEECH_LEVEL = 0.08  # root mean square of the clips
PHONEME_WEIGHT, MAGNITUDE_WEIGHT = 0.5, 0.5
EARLY_STEPS, EARLY_REVIVE_EVERY = 600, 20  # codebooks chase a moving target at first
REVIVE_EVERY, REVIVE_UNTIL = 100, 0.8
LOG_EVERY, SAVE_EVERY, EVALUATE_EVERY = 25, 100, 300
LABEL_POINTS = (-240, 240)  # samples from a frame's start; before its centre, since the encoder sees no future


class Trainer:
    """Everything a run holds; `state` and `restore` are its checkpoint."""

    def __init__(self, clips: Clips, out: Path, device: torch.device) -> None:
        torch.manual_seed(SEED)
        self.clips, self.out, self.device = clips, out, device
        self.generator = torch.Generator().manual_seed(SEED)
        codec = Codec(CONFIG)
        initialise(codec)
        self.codec = codec.to(device)
        self.averaged = copy.deepcopy(self.codec).requires_grad_(False).eval()
        use_fast_kernels(self.codec)
        self.head = PhonemeHead(CONFIG.latent_dim, len(clips.symbols), len(LABEL_POINTS)).to(device)
        self.loss = SpectralLoss(CONFIG.sample_rate).to(device)
        self.memory = CodeMemory(self.codec.quantizer, self.generator)
        self.optimizer = torch.optim.AdamW(self._groups(), betas=(0.8, 0.98), fused=True)
        self.step, self.seconds = 0, 0.0
        self.latents: list[Tensor] = []
        frames = torch.arange(SEGMENT_FRAMES)[:, None] * CONFIG.frame_length
        self.label_offsets = frames + torch.tensor(LABEL_POINTS)

    def _groups(self) -> list[dict]:
        """Optimiser groups; codebooks move faster, so that they keep up with the vectors they stand for."""
        books = [q.codebook.weight for q in codebooks(self.codec.quantizer)]
        rest = [p for p in self.codec.parameters() if all(p is not book for book in books)]
        return [
            {"params": [*rest, *self.head.parameters()], "scale": 1.0, "weight_decay": WEIGHT_DECAY},
            {"params": books, "scale": CODEBOOK_SPEED, "weight_decay": 0.0},
        ]

    def state(self) -> dict:
        """Checkpoint content."""
        parts = {"codec": self.codec, "averaged": self.averaged, "head": self.head, "optimizer": self.optimizer}
        return {name: part.state_dict() for name, part in parts.items()} | {
            "step": self.step,
            "seconds": self.seconds,
            "generator": self.generator.get_state(),
            "config": dataclasses.asdict(CONFIG),
        }

    def restore(self, path: Path) -> None:
        """Continues from a checkpoint."""
        content = torch.load(path, weights_only=True, map_location=self.device)
        for name in ("codec", "averaged", "head", "optimizer"):
            getattr(self, name).load_state_dict(content[name])
        self.step, self.seconds = content["step"], content["seconds"]
        self.generator.set_state(content["generator"].cpu())

    def train_step(self, progress: float, log: Log) -> None:
        """One optimiser step on one batch."""
        length = SEGMENT_FRAMES * CONFIG.frame_length
        audio, labels = self.clips.segments(self.generator, BATCH, length, self.label_offsets)
        audio, labels = audio.to(self.device), labels.to(self.device)
        quantizer = self.codec.quantizer
        z = quantizer.pre_module(quantizer.downsample(self.codec.encoder(audio)))
        depths = draw_depths(BATCH, CONFIG.n_residual_codebooks, self.generator).to(self.device)
        q = quantise(quantizer, z, depths, self.memory)
        passed = self.step < UNQUANTISED_STEPS
        output = self.codec.decoder(quantizer.upsample(quantizer.post_module(z if passed else q.total)))
        mel, magnitude = self.loss(output, audio)
        phoneme, accuracy = self.head(z if passed else q.semantic, labels)
        total = mel + MAGNITUDE_WEIGHT * magnitude + PHONEME_WEIGHT * phoneme
        norm = self._descend(total if passed else total + q.loss, progress)
        log.add(mel=mel, mag=magnitude, vq=q.loss, ph=phoneme, acc=accuracy, norm=norm)
        self._look_after_codebooks(progress, z.detach())

    def _descend(self, loss: Tensor, progress: float) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.optimizer.param_groups[0]["params"], 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = group["scale"] * learning_rate(progress, self.step, PEAK_RATE)
        self.optimizer.step()
        average_into(self.averaged, self.codec, min(AVERAGE_DECAY, self.step / (self.step + 10)))
        self.step += 1
        return norm

    def _look_after_codebooks(self, progress: float, z: Tensor) -> None:
        if self.step <= UNQUANTISED_STEPS:
            self.latents = [*self.latents[-9:], z.transpose(1, 2).flatten(0, 1)]
        if self.step == UNQUANTISED_STEPS:
            self._start_codebooks(torch.cat(self.latents))
            return
        early = self.step < EARLY_STEPS
        due = self.step > UNQUANTISED_STEPS and progress < REVIVE_UNTIL
        if due and self.step % (EARLY_REVIVE_EVERY if early else REVIVE_EVERY) == 0:
            replaced = self.memory.revive(self.averaged.quantizer, 1.0 if early else 2.0)
            if self.step % REVIVE_EVERY == 0:
                print("revived", replaced, flush=True)

    @torch.no_grad()
    def _start_codebooks(self, z: Tensor) -> None:
        start_from_principal_axes(self.codec.quantizer, z)
        residual = z.T[None]
        for i, layer in enumerate(codebooks(self.codec.quantizer)):
            projected = layer.in_proj(residual)
            picks = torch.randint(0, len(z), (layer.codebook.num_embeddings,), generator=self.generator)
            layer.codebook.weight.copy_(projected[0].T[picks])
            residual = residual - layer(residual)[0]
            print(f"codebook {i} leaves {float(residual.square().sum() / (z - z.mean(0)).square().sum()):.3f}")
        self.averaged.load_state_dict(self.codec.state_dict())

    @torch.no_grad()
    def evaluate(self) -> dict:
        """Held-out figures of the averaged weights: mel distance with 8 and 4 codebooks, used codes, perplexity."""
        distances = {CONFIG.num_codebooks: 0.0, 4: 0.0}
        counts = [torch.zeros(q.codebook.num_embeddings) for q in codebooks(self.averaged.quantizer)]
        for index in self.clips.held_out:
            audio = self.clips.clip(index)[None, None].to(self.device)
            codes, _ = self.averaged.encode(audio)
            for i, count in enumerate(counts):
                count += torch.bincount(codes[0, i].cpu(), minlength=len(count))
            for depth in distances:
                output = decode_first(self.averaged, codes, depth)[..., : audio.shape[-1]]
                distance = F.l1_loss(self.loss.log_mel(output), self.loss.log_mel(audio))
                distances[depth] += float(distance) / len(self.clips.held_out)
        shares = [count / count.sum() for count in counts]
        perplexity = [round(float(torch.exp(-(p * (p + 1e-12).log()).sum())), 1) for p in shares]
        used = [int((count > 0).sum()) for count in counts]
        return {**{f"mel{k}": round(v, 4) for k, v in distances.items()}, "perplexity": perplexity, "used": used}


def decode_first(codec: Codec, codes: Tensor, depth: int) -> Tensor:
    """Audio from the first `depth` codebooks alone, codes [batch, codebook, frame]."""
    quantizer = codec.quantizer
    total = quantizer.semantic_quantizer.decode(codes[:, :1])
    for i, layer in enumerate(quantizer.quantizer.quantizers[: depth - 1]):
        total = total + layer.decode(codes[:, 1 + i])
    return codec.decoder(quantizer.upsample(quantizer.post_module(total)))


def export(codec: Codec, folder: Path) -> None:
    """Writes `codec.safetensors` (float32) and `codec_config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous().cpu() for k, v in codec.state_dict().items()}, folder / "codec.safetensors")
    (folder / "codec_config.json").write_text(json.dumps(dataclasses.asdict(codec.config), indent=1))


@torch.no_grad()
def initialise(codec: Codec) -> None:
    """Weights that keep the variance through every layer, and residual branches that already count a little.

    The library's defaults shrink the signal by half a layer, and the released gains start near zero: a short run
    would spend most of its steps on growing them.
    """
    for module in codec.modules():
        if isinstance(module, nn.ConvTranspose1d):
            fan_in = module.in_channels * module.kernel_size[0] / module.stride[0]
            module.weight.normal_(0.0, fan_in**-0.5)
        elif isinstance(module, (nn.Conv1d, nn.Linear)):
            module.weight.normal_(0.0, module.weight[0].numel() ** -0.5)
        if isinstance(module, (nn.ConvTranspose1d, nn.Conv1d, nn.Linear)) and module.bias is not None:
            module.bias.zero_()
    for module in codec.modules():
        if isinstance(module, ResidualUnit):
            module.block[3].conv.weight.mul_(0.3)
    for name, parameter in codec.named_parameters():
        if name.endswith("gamma"):
            parameter.fill_(0.1)
    codec.encoder.block[0].conv.weight.mul_(1.0 / SPEECH_LEVEL)
    codec.decoder.model[-1].conv.weight.mul_(0.5 * SPEECH_LEVEL)


def run(trainer: Trainer, minutes: float) -> None:
    """Trains until `minutes` of training time are spent in all runs together."""
    log, last = Log(trainer.out), time.perf_counter()
    while trainer.seconds < minutes * 60:
        trainer.train_step(trainer.seconds / (minutes * 60), log)
        now = time.perf_counter()
        trainer.seconds, last = trainer.seconds + now - last, now
        if trainer.step % LOG_EVERY == 0:
            log.line(trainer.step, trainer.seconds / 60)
        if trainer.step % EVALUATE_EVERY == 0:
            log.line(trainer.step, trainer.seconds / 60, **trainer.evaluate())
        if trainer.step % SAVE_EVERY == 0:
            save(trainer.out / "last.pt", trainer.state())
    save(trainer.out / "last.pt", trainer.state())
    export(trainer.averaged, trainer.out)
    log.line(trainer.step, trainer.seconds / 60, **trainer.evaluate())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with audio/ and meta.jsonl")
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and the log")
    parser.add_argument("--cache", type=Path, default=Path("training/runs/clips"))
    parser.add_argument("--minutes", type=float, default=45.0, help="training time, all runs together")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    trainer = Trainer(load_clips(options.data, options.cache), options.out, torch.device(options.device))
    if (options.out / "last.pt").is_file():
        trainer.restore(options.out / "last.pt")
    run(trainer, options.minutes)


if __name__ == "__main__":
    main()
