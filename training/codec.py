"""Trains the codec's decoder on given codes: `python -m training.codec --data DIR ... --out DIR`.

The codes are those of `training.factors`; the decoder learns to speak them. Because they state the pitch exactly, its
pulses run in step with the teacher's voice, and it can be compared with the teacher by complex spectra at low
frequencies and by magnitudes above. Later discriminators join in. Run again with the same `--out` to resume.
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
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from oscine.families.audio8.codec.layers import StreamState
from oscine.families.audio8.codec.spectral import SpectralCodec
from oscine.families.audio8.codec.spectral_config import KIND, SpectralConfig
from oscine.families.audio8.codec.spectral_source import pitch_codes
from training.checkpoint import read_start
from training.codec_start import initialise, start_codebooks, start_gains
from training.coded import Place, Segment, Segments, Source
from training.common import Log, average_into, learning_rate, save
from training.discriminator import Discriminator, discriminator_loss, generator_losses
from training.factors import (
    ADVANCE_CODEBOOK,
    ADVANCES,
    BEND_CODEBOOK,
    BENDS,
    CODEBOOK_SIZE,
    CYCLE_UNITS,
    FRAME,
    NUM_CODEBOOKS,
    SAMPLE_RATE,
    read_codebook,
)
from training.losses import SpectralLoss, WaveLoss

CONFIG = SpectralConfig(
    sample_rate=SAMPLE_RATE,
    frame_length=FRAME,
    num_codebooks=NUM_CODEBOOKS,
    codebook_size=CODEBOOK_SIZE,
    advance_codebook=ADVANCE_CODEBOOK,
    advance_begin=ADVANCES.start,
    advance_count=len(ADVANCES),
    bend_codebook=BEND_CODEBOOK,
    bend_begin=BENDS.start,
    bend_count=len(BENDS),
    cycle_units=CYCLE_UNITS,
)
SEED = 1
BATCHES, SEGMENT_FRAMES = {"cpu": 4, "cuda": 32}, 40
SKIPPED_FRAMES = 6
"""The first frames of a segment lack their past and are not compared, the last CONFIG.lookahead ones their future."""
PLACES: tuple[tuple[Place, float], ...] = (("anywhere", 0.65), ("onset", 0.2), ("ending", 0.15))
PEAK_RATE, WEIGHT_DECAY, AVERAGE_DECAY = 1.0e-3, 1e-2, 0.998
DISCRIMINATOR_RATE, DISCRIMINATOR_ALONE = 1e-3, 100
JUDGED_SHARE, JUDGED_SAMPLES = 0.5, 24000  # of the segments and of each of these, for the discriminators
SPEECH_LEVEL = 0.08  # root mean square of the clips
MEL_WEIGHT, MAGNITUDE_WEIGHT, WAVE_WEIGHT = 5.0, 1.0, 0.5
SCORE_WEIGHT, MATCH_WEIGHT = 1.0, 2.0  # once the discriminators judge
JUDGED_RATE = 0.5  # of the rate: their gradients are noisier
HELD_OUT_EVERY, EVALUATED_CLIPS = 80, 24
LOG_EVERY, EVALUATE_EVERY, SAVE_S = 25, 500, 180.0
MODULES = ("codec", "averaged", "discriminator", "optimizer", "judge_optimizer")


def speak(codec: SpectralCodec, batch: Segment, *, half: bool) -> Tensor:
    """Audio [B, 1, F * FRAME] of a batch; with `half`, the blocks are computed in bfloat16."""
    lookahead = CONFIG.lookahead
    codes, state = F.pad(batch.codes, (0, lookahead), value=-1), StreamState()
    end = batch.starts[:, -1:] + pitch_codes(batch.codes, CONFIG)[0][:, -1:]
    starts = torch.cat([batch.starts, end.expand(-1, lookahead)], dim=1)
    with torch.autocast(codes.device.type, torch.bfloat16, enabled=half):
        features = codec.features(codes, state)
    return codec.render(features.float(), codes, state, starts)[..., lookahead * FRAME :]


class Trainer:
    """Everything a run holds; `state` and `restore` are its checkpoint."""

    def __init__(self, segments: Segments, codebook: Path, out: Path, device: torch.device, *, half: bool) -> None:
        torch.manual_seed(SEED)
        self.segments, self.out, self.device, self.half = segments, out, device, half
        self.generator = torch.Generator().manual_seed(SEED)
        codec = SpectralCodec(CONFIG)
        initialise(codec)
        start_codebooks(codec, read_codebook(codebook)[1])
        start_gains(codec, segments.draw(torch.Generator().manual_seed(SEED), 64, SEGMENT_FRAMES))
        self.codec = codec.to(device)
        self.averaged = copy.deepcopy(self.codec).requires_grad_(False).eval()
        self.spectral, self.wave = SpectralLoss(CONFIG.sample_rate).to(device), WaveLoss(CONFIG.sample_rate).to(device)
        self.discriminator = Discriminator(level=SPEECH_LEVEL).to(device)
        self.optimizer = torch.optim.AdamW(
            self.codec.parameters(), betas=(0.8, 0.98), weight_decay=WEIGHT_DECAY, fused=True
        )
        self.judge_optimizer = torch.optim.AdamW(self.discriminator.parameters(), betas=(0.8, 0.98), fused=True)
        self.batch = BATCHES[device.type]
        self.judged_segments = max(1, round(JUDGED_SHARE * self.batch))
        self.step, self.judged, self.seconds = 0, 0, 0.0

    def state(self) -> dict:
        """Checkpoint content."""
        return {name: getattr(self, name).state_dict() for name in MODULES} | {
            "step": self.step,
            "judged": self.judged,
            "seconds": self.seconds,
            "generator": self.generator.get_state(),
            "config": dataclasses.asdict(CONFIG),
        }

    def restore(self, path: Path) -> None:
        """Continues from a checkpoint."""
        content = torch.load(path, weights_only=True, map_location=self.device)
        for name in MODULES:
            getattr(self, name).load_state_dict(content[name])
        self.step, self.judged, self.seconds = content["step"], content["judged"], content["seconds"]
        self.generator.set_state(content["generator"].cpu())

    def start_from(self, path: Path) -> None:
        """Begins with the weights of a file of `training.checkpoint`. ValueError if they are not of this codec."""
        config, weights = read_start(path)
        if config != dataclasses.asdict(CONFIG):
            raise ValueError(f"{path} has a codec of other dimensions: {config}")
        self.codec.load_state_dict(weights)
        self.averaged.load_state_dict(weights)

    def train_step(self, progress: float, log: Log, *, judge: bool) -> None:
        """One optimiser step on one batch, with the discriminators if `judge`."""
        batch, compared = self._draw()
        output, audio = speak(self.codec, batch, half=self.half)[..., compared], batch.audio[..., compared]
        mel, magnitude = self.spectral(output, audio)
        wave, judged = self.wave(output, audio), self.judged >= DISCRIMINATOR_ALONE
        total = MEL_WEIGHT * mel + MAGNITUDE_WEIGHT * magnitude + WAVE_WEIGHT * wave
        if judge:
            spare = audio.shape[-1] - JUDGED_SAMPLES
            at = int(torch.randint(0, spare + 1, (1,), generator=self.generator))
            real, fake = (x[: self.judged_segments, :, at : at + JUDGED_SAMPLES] for x in (audio, output))
            self._teach_discriminator(real, fake.detach(), progress, log)
            if judged:
                total = total + self._judge(fake, real, log)
        norm = self._descend(total, progress, JUDGED_RATE if judged else 1.0)
        log.add(mel=mel, mag=magnitude, wave=wave, norm=norm)

    def _draw(self) -> tuple[Segment, slice]:
        """Random segments, and which of their samples are compared."""
        chance, place = float(torch.rand((), generator=self.generator)), PLACES[0][0]
        for name, share in PLACES:
            place, chance = (name, chance - share) if chance >= 0 else (place, chance)
        drawn = self.segments.draw(self.generator, self.batch, SEGMENT_FRAMES, place)
        moved = Segment(**{name: value.to(self.device) for name, value in vars(drawn).items()})
        first = 0 if place == "onset" else SKIPPED_FRAMES
        last = SEGMENT_FRAMES if place == "ending" else SEGMENT_FRAMES - CONFIG.lookahead
        return moved, slice(first * FRAME, last * FRAME)

    def _descend(self, loss: Tensor, progress: float, share: float = 1.0) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.codec.parameters(), 2.0)
        self._set_rate(self.optimizer, progress, share * PEAK_RATE)
        self.optimizer.step()
        average_into(self.averaged, self.codec, min(AVERAGE_DECAY, self.step / (self.step + 10)))
        self.step += 1
        return norm

    def _scores(self, audio: Tensor) -> list[tuple[Tensor, list[Tensor]]]:
        with torch.autocast(audio.device.type, torch.bfloat16, enabled=self.half):
            parts = self.discriminator(audio)
        return [(score.float(), features) for score, features in parts]

    def _teach_discriminator(self, real: Tensor, fake: Tensor, progress: float, log: Log) -> None:
        loss = discriminator_loss(self._scores(real), self._scores(fake))
        self.judge_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.discriminator.parameters(), 10.0)
        self._set_rate(self.judge_optimizer, progress, DISCRIMINATOR_RATE)
        self.judge_optimizer.step()
        self.judged += 1
        log.add_rare(judge=loss)

    def _judge(self, output: Tensor, audio: Tensor, log: Log) -> Tensor:
        self.discriminator.requires_grad_(False)
        with torch.no_grad():
            real = self._scores(audio)
        score, match = generator_losses(real, self._scores(output))
        self.discriminator.requires_grad_(True)
        log.add_rare(score=score, match=match)
        return SCORE_WEIGHT * score + MATCH_WEIGHT * match

    def _set_rate(self, optimizer: torch.optim.Optimizer, progress: float, peak: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(progress, self.step, peak)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Mean mel distance and wave loss of the averaged weights on clips that are never trained on."""
        mel, wave = [], []
        for source, index in self.segments.held_out[:: max(1, len(self.segments.held_out) // EVALUATED_CLIPS)]:
            whole = source.cut(index, 0, source.codes[index].shape[1])
            moved = Segment(**{name: value.to(self.device) for name, value in vars(whole).items()})
            output = speak(self.averaged, moved, half=False)
            mel.append(F.l1_loss(self.spectral.log_mel(output), self.spectral.log_mel(moved.audio)))
            wave.append(self.wave(output, moved.audio))
        return {
            "held_mel": round(float(torch.stack(mel).mean()), 4),
            "held_wave": round(float(torch.stack(wave).mean()), 4),
        }


def load_codec(folder: Path) -> SpectralCodec:
    """The codec exported to `folder`, in evaluation mode and float32."""
    codec = SpectralCodec(SpectralConfig.from_dict(json.loads((folder / "codec_config.json").read_text())))
    codec.load_state_dict({name: value.float() for name, value in load_file(folder / "codec.safetensors").items()})
    return codec.eval().requires_grad_(False)


def export(codec: SpectralCodec, folder: Path, dtype: torch.dtype = torch.float32) -> None:
    """Writes `codec.safetensors` and `codec_config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.to(dtype).contiguous().cpu() for k, v in codec.state_dict().items()}, folder / "codec.safetensors")
    config = {"kind": KIND, **dataclasses.asdict(codec.config)}
    (folder / "codec_config.json").write_text(json.dumps(config, indent=1))


def run(trainer: Trainer, minutes: float, judge_from: float, max_steps: int | None = None) -> None:
    """Trains until `minutes` of training time are spent in all runs together.

    From the share `judge_from` of the time on, the discriminators learn and, once they have, judge.
    """
    log, last = Log(trainer.out), time.perf_counter()
    saved = trainer.seconds
    while trainer.seconds < minutes * 60 and (max_steps is None or trainer.step < max_steps):
        progress = trainer.seconds / (minutes * 60)
        trainer.train_step(progress, log, judge=progress >= judge_from)
        now = time.perf_counter()
        trainer.seconds, last = trainer.seconds + now - last, now
        if trainer.step % LOG_EVERY == 0:
            log.line(trainer.step, trainer.seconds / 60)
        if trainer.step % EVALUATE_EVERY == 0:
            log.line(trainer.step, trainer.seconds / 60, **trainer.evaluate())
        if trainer.seconds - saved > SAVE_S:
            saved = trainer.seconds
            _keep(trainer)
    _keep(trainer)
    log.line(trainer.step, trainer.seconds / 60, **trainer.evaluate())


def _keep(trainer: Trainer) -> None:
    save(trainer.out / "last.pt", trainer.state())
    export(trainer.averaged, trainer.out)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, action="append", required=True, help="folder with audio/ and meta.jsonl")
    parser.add_argument("--cache", type=Path, action="append", required=True, help="its audio cache")
    parser.add_argument("--codes", type=Path, action="append", required=True, help="its codes (training.factors)")
    parser.add_argument("--prosody", type=Path, action="append", required=True, help="its curves (training.prosody)")
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and the log")
    parser.add_argument("--start", type=Path, help="file of training.checkpoint whose weights a new run begins with")
    parser.add_argument("--minutes", type=float, default=100.0, help="training time, all runs together")
    parser.add_argument("--judge-from", type=float, default=0.2, help="share of the time without discriminators")
    parser.add_argument("--max-steps", type=int, help="stop here, for trials")
    parser.add_argument("--float32", action="store_true", help="no bfloat16, for processors without such units")
    parser.add_argument("--device", choices=tuple(BATCHES), default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    folders = zip(options.data, options.cache, options.codes, options.prosody, strict=True)
    segments = Segments([Source.load(*folder) for folder in folders], HELD_OUT_EVERY)
    device = torch.device(options.device)
    trainer = Trainer(segments, options.codes[0], options.out, device, half=not options.float32)
    if (options.out / "last.pt").is_file():
        trainer.restore(options.out / "last.pt")
    elif options.start is not None:
        trainer.start_from(options.start)
    run(trainer, options.minutes, options.judge_from, options.max_steps)


if __name__ == "__main__":
    main()
