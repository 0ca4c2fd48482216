"""Goes on with the decoder alone: `python -m training.codec_gan --codec DIR --data DIR --out DIR --minutes 30`.

Encoder and codebooks stay as `training.codec` left them, so codes already exported stay valid. What comes after the
codes (post_module, upsampling, decoder) learns from the codes of `training.encode`: spectral losses on every step, on
every second one a spectrogram discriminator and feature matching too. Resumes from its last checkpoint.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from training.codec import SEED, SPEECH_LEVEL, decode_first, export
from training.common import Log, average_into, learning_rate, save
from training.dataset import Clips, load_clips
from training.discriminator import Discriminator, discriminator_loss, generator_losses
from training.encode import load_codec
from training.fast_conv import use_fast_kernels
from training.losses import SpectralLoss

BATCH, SEGMENT_FRAMES = 4, 28
HISTORY_FRAMES, DECODER_HISTORY = 20, 4  # frames before a segment that the transformer, and the decoder, still see
DISCRIMINATOR_START = 60  # steps of the discriminator alone, before the decoder listens to it
PEAK_RATE, DISCRIMINATOR_RATE, AVERAGE_DECAY = 4e-4, 4e-4, 0.998
MEL_WEIGHT, MAGNITUDE_WEIGHT, SCORE_WEIGHT, MATCH_WEIGHT = 4.0, 2.0, 0.5, 2.0
LOG_EVERY, SAVE_EVERY, EVALUATE_EVERY = 25, 100, 300


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coded:
    """Clips and their codes [codebook, frame] by clip index."""

    clips: Clips
    codes: list[Tensor]
    frame_length: int

    def batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Codes [batch, codebook, HISTORY + SEGMENT frames] and the segments' audio [batch, 1, sample].

        Every clip is as likely as it is long. History before a clip's start is cut from the clip's own silence.
        """
        total = HISTORY_FRAMES + SEGMENT_FRAMES
        usable = [i for i in self.clips.trained if self.codes[i].shape[1] >= total]
        edges = np.cumsum([self.codes[i].shape[1] - total + 1 for i in usable])
        picks = torch.randint(0, int(edges[-1]), (BATCH,), generator=generator).numpy()
        codes, audio = [], []
        for pick in picks:
            slot = int(np.searchsorted(edges, pick, side="right"))
            index, start = usable[slot], int(pick - (edges[slot - 1] if slot else 0))
            codes.append(self.codes[index][:, start : start + total])
            first = (start + HISTORY_FRAMES) * self.frame_length
            piece = self.clips.clip(index)[first : first + SEGMENT_FRAMES * self.frame_length]
            audio.append(nn.functional.pad(piece, (0, SEGMENT_FRAMES * self.frame_length - len(piece))))
        return torch.stack(codes).long(), torch.stack(audio)[:, None]


class Trainer:
    """Everything a run holds; `state` and `restore` are its checkpoint."""

    def __init__(self, data: Coded, codec_folder: Path, out: Path, depth_odds: float, device: torch.device) -> None:
        torch.manual_seed(SEED)
        self.data, self.out, self.device, self.depth_odds = data, out, device, depth_odds
        self.generator = torch.Generator().manual_seed(SEED)
        self.averaged = load_codec(codec_folder).to(device)
        self.codec = copy.deepcopy(self.averaged)
        self.config = self.codec.config
        use_fast_kernels(self.codec)
        quantizer = self.codec.quantizer
        self.moving = nn.ModuleList([quantizer.post_module, quantizer.upsample, self.codec.decoder])
        self.moving.requires_grad_(True)
        self.discriminator = Discriminator(level=SPEECH_LEVEL).to(device)
        self.loss = SpectralLoss(self.config.sample_rate).to(device)
        self.optimizer = torch.optim.AdamW(self.moving.parameters(), lr=PEAK_RATE, betas=(0.8, 0.98), fused=True)
        self.judge_optimizer = torch.optim.AdamW(
            self.discriminator.parameters(), lr=DISCRIMINATOR_RATE, betas=(0.5, 0.9), fused=True
        )
        self.step, self.seconds = 0, 0.0

    def state(self) -> dict:
        """Checkpoint content."""
        names = ("codec", "averaged", "discriminator", "optimizer", "judge_optimizer")
        parts = {name: getattr(self, name).state_dict() for name in names}
        return parts | {"step": self.step, "seconds": self.seconds, "generator": self.generator.get_state()}

    def restore(self, path: Path) -> None:
        """Continues from a checkpoint."""
        content = torch.load(path, weights_only=True, map_location=self.device)
        for name in ("codec", "averaged", "discriminator", "optimizer", "judge_optimizer"):
            getattr(self, name).load_state_dict(content[name])
        self.step, self.seconds = content["step"], content["seconds"]
        self.generator.set_state(content["generator"].cpu())

    def generate(self, codes: Tensor) -> Tensor:
        """Audio [batch, 1, sample] of the segment, from codes with history before it."""
        quantizer = self.codec.quantizer
        with torch.no_grad():
            total = quantizer.semantic_quantizer.decode(codes[:, :1])
            depth = self.config.num_codebooks
            if torch.rand((), generator=self.generator) < self.depth_odds:
                depth = 4
            for i, layer in enumerate(quantizer.quantizer.quantizers[: depth - 1]):
                total = total + layer.decode(codes[:, 1 + i])
        latent = quantizer.post_module(total)[..., HISTORY_FRAMES - DECODER_HISTORY :]
        return self.codec.decoder(quantizer.upsample(latent))[..., DECODER_HISTORY * self.config.frame_length :]

    def train_step(self, progress: float, log: Log) -> None:
        """Even steps: spectral losses on a batch. Odd steps: half a batch, discriminator and decoder."""
        codes, audio = (x.to(self.device) for x in self.data.batch(self.generator))
        judged = self.step % 2 == 1
        if judged:
            codes, audio = codes[: BATCH // 2], audio[: BATCH // 2]
        output = self.generate(codes)
        mel, magnitude = self.loss(output, audio)
        total = MEL_WEIGHT * mel + MAGNITUDE_WEIGHT * magnitude
        if judged:
            self._train_discriminator(output.detach(), audio, progress, log)
        if judged and self.step > 2 * DISCRIMINATOR_START:
            total = total + self._judge(output, audio, log)
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        nn.utils.clip_grad_norm_(self.moving.parameters(), 10.0)
        self._set_rate(self.optimizer, progress, PEAK_RATE)
        self.optimizer.step()
        average_into(self.averaged, self.codec, min(AVERAGE_DECAY, self.step / (self.step + 10)))
        self.step += 1
        log.add(mel=mel, mag=magnitude)

    def _train_discriminator(self, fake: Tensor, real: Tensor, progress: float, log: Log) -> None:
        loss = discriminator_loss(self.discriminator(real), self.discriminator(fake))
        self.judge_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.discriminator.parameters(), 10.0)
        self._set_rate(self.judge_optimizer, progress, DISCRIMINATOR_RATE)
        self.judge_optimizer.step()
        log.add_rare(judge=loss)

    def _judge(self, output: Tensor, audio: Tensor, log: Log) -> Tensor:
        self.discriminator.requires_grad_(False)
        with torch.no_grad():
            real = self.discriminator(audio)
        score, match = generator_losses(real, self.discriminator(output))
        self.discriminator.requires_grad_(True)
        log.add_rare(score=score, match=match)
        return SCORE_WEIGHT * score + MATCH_WEIGHT * match

    def _set_rate(self, optimizer: torch.optim.Optimizer, progress: float, peak: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(progress, self.step, peak)

    @torch.no_grad()
    def evaluate(self) -> dict:
        """Held-out mel distance of the averaged weights with all and with 4 codebooks."""
        distances = {self.config.num_codebooks: 0.0, 4: 0.0}
        held_out = self.data.clips.held_out
        for index in held_out:
            audio = self.data.clips.clip(index)[None, None].to(self.device)
            codes = self.data.codes[index][None].long().to(self.device)
            for depth in distances:
                output = decode_first(self.averaged, codes, depth)[..., : audio.shape[-1]]
                difference = self.loss.log_mel(output) - self.loss.log_mel(audio)
                distances[depth] += float(difference.abs().mean()) / len(held_out)
        return {f"mel{k}": round(v, 4) for k, v in distances.items()}


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
            export(trainer.averaged, trainer.out)
    save(trainer.out / "last.pt", trainer.state())
    export(trainer.averaged, trainer.out)
    log.line(trainer.step, trainer.seconds / 60, **trainer.evaluate())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with audio/ and meta.jsonl")
    parser.add_argument("--cache", type=Path, default=Path("training/runs/clips"))
    parser.add_argument("--codec", type=Path, required=True, help="folder `training.codec` exported to")
    parser.add_argument("--codes", type=Path, required=True, help="file of `training.encode`")
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and the log")
    parser.add_argument("--four", type=float, default=0.4, help="share of batches decoded from 4 codebooks alone")
    parser.add_argument("--minutes", type=float, default=30.0, help="training time, all runs together")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    clips, stored = load_clips(options.data, options.cache), load_file(options.codes)
    frame_length = load_codec(options.codec).config.frame_length
    data = Coded(clips=clips, codes=[stored[name] for name in clips.ids], frame_length=frame_length)
    trainer = Trainer(data, options.codec, options.out, options.four, torch.device(options.device))
    if (options.out / "last.pt").is_file():
        trainer.restore(options.out / "last.pt")
    run(trainer, options.minutes)


if __name__ == "__main__":
    main()
