"""Trains the codec's decoder on given codes: `python -m training.codec --data DIR ... --out DIR`.

The codes are those of `training.factors`; the decoder learns to speak them. Because the codes hold the phase of the
voice, it can be compared with the teacher wave against wave at low frequencies, and by its spectra above. Later a
discriminator joins in. Run again with the same `--out` to resume. `training.encoder` adds the other direction.
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

from oscine.families.audio8.codec import Codec
from oscine.families.audio8.codec_config import CodecConfig
from oscine.families.audio8.codec_layers import ResidualUnit
from training.coded import Segment, Segments, Source
from training.common import Log, average_into, learning_rate, save
from training.discriminator import Discriminator, discriminator_loss, generator_losses
from training.factors import CODEBOOK_SIZE, DELAY, FRAME, NUM_CODEBOOKS, code_features, read_codebook
from training.fast_conv import use_fast_kernels
from training.heads import ENVELOPE_HOP, PHASE_BLOCK, PHASE_HOP, EnvelopeHead, PhaseHead
from training.losses import SpectralLoss, WaveLoss

CONFIG = CodecConfig(
    sample_rate=24000,
    encoder_dim=8,
    encoder_rates=(10, 5, 3, 2),
    encoder_transformer_layers=(0, 0, 0, 0),
    encoder_window=64,
    latent_dim=256,
    decoder_dim=256,
    decoder_rates=(2, 3, 5, 10),
    transformer_head_dim=64,
    semantic_codebook_size=CODEBOOK_SIZE,
    n_residual_codebooks=NUM_CODEBOOKS - 1,
    residual_codebook_size=CODEBOOK_SIZE,
    codebook_dim=32,
    downsample_factors=(4,),
    pre_n_layer=1,
    pre_n_head=4,
    pre_intermediate_size=512,
    post_n_layer=4,
    post_n_head=4,
    post_n_local_heads=4,
    post_intermediate_size=768,
    quantizer_window=24,
    warm_up_frames=DELAY,
)
SEED = 1
BATCH, SEGMENT_FRAMES, SKIPPED_FRAMES = 4, 40, 4  # the first frames lack their past and are not compared
ONSET_SHARE = 0.25
"""Of the batches: they start as an utterance of the language model does, which has no past, and are compared whole."""
PEAK_RATE, WEIGHT_DECAY, AVERAGE_DECAY = 1.5e-3, 1e-2, 0.998
DISCRIMINATOR_RATE, DISCRIMINATOR_ALONE = 2e-3, 150
JUDGED_SAMPLES = 24000  # of each segment, for the discriminator
SPEECH_LEVEL = 0.08  # root mean square of the clips
MEL_WEIGHT, MAGNITUDE_WEIGHT, WAVE_WEIGHT = 5.0, 1.0, 1.0
PHASE_WEIGHT, ENVELOPE_WEIGHT = 1.5, 3.0
FIRST_STEPS, FIRST_BATCH = 900, 8
"""At first the features alone learn what they should hold: beside spectra it takes long."""
JUDGED_MEL_WEIGHT, SCORE_WEIGHT, MATCH_WEIGHT = 3.0, 1.0, 3.0  # once the discriminator judges
JUDGED_RATE = 0.35  # of the rate: its gradients are noisier
HELD_OUT_EVERY = 80
LOG_EVERY, SAVE_EVERY, EVALUATE_EVERY = 25, 100, 500


def middle_features(codec: Codec, codes: Tensor) -> tuple[Tensor, Tensor]:
    """(latents, features after PHASE_BLOCK decoder blocks), both [B, channel, time], of codes [B, C, frame]."""
    latents: Tensor = codec.quantizer.decode(codes)
    x = latents
    for block in codec.decoder.model[: PHASE_BLOCK + 1]:
        x = block(x)
    return latents, x


def audio_from(codec: Codec, features: Tensor) -> Tensor:
    """Audio [B, 1, sample] from the features of `middle_features`."""
    x = features
    for block in codec.decoder.model[PHASE_BLOCK + 1 :]:
        x = block(x)
    return torch.tanh(x)


class Trainer:
    """Everything a run holds; `state` and `restore` are its checkpoint."""

    def __init__(self, segments: Segments, codebook: Path, out: Path, device: torch.device) -> None:
        torch.manual_seed(SEED)
        self.segments, self.out, self.device = segments, out, device
        self.generator = torch.Generator().manual_seed(SEED)
        codec = Codec(CONFIG)
        initialise(codec)
        start_codebooks(codec, read_codebook(codebook)[1])
        self.codec = codec.to(device)
        self.codec.encoder.requires_grad_(False)
        self.codec.quantizer.pre_module.requires_grad_(False)
        self.codec.quantizer.downsample.requires_grad_(False)
        self.averaged = copy.deepcopy(self.codec).requires_grad_(False).eval()
        use_fast_kernels(self.codec)
        channels = CONFIG.decoder_dim >> PHASE_BLOCK
        self.head = PhaseHead(channels, 6).to(device)
        sizes = ((CONFIG.latent_dim, 1), (channels, ENVELOPE_HOP // PHASE_HOP))
        self.envelopes = nn.ModuleList(EnvelopeHead(*size, CONFIG.sample_rate) for size in sizes).to(device)
        self.spectral, self.wave = SpectralLoss(CONFIG.sample_rate).to(device), WaveLoss(CONFIG.sample_rate).to(device)
        self.discriminator = Discriminator(level=SPEECH_LEVEL).to(device)
        learning = [p for p in self.codec.parameters() if p.requires_grad]
        self.learning = [*learning, *self.head.parameters(), *self.envelopes.parameters()]
        self.optimizer = torch.optim.AdamW(self.learning, betas=(0.8, 0.98), weight_decay=WEIGHT_DECAY, fused=True)
        self.judge_optimizer = torch.optim.AdamW(self.discriminator.parameters(), betas=(0.8, 0.98), fused=True)
        self.step, self.judged, self.seconds = 0, 0, 0.0

    def state(self) -> dict:
        """Checkpoint content."""
        names = ("codec", "averaged", "head", "envelopes", "discriminator", "optimizer", "judge_optimizer")
        return {name: getattr(self, name).state_dict() for name in names} | {
            "step": self.step,
            "judged": self.judged,
            "seconds": self.seconds,
            "generator": self.generator.get_state(),
            "config": dataclasses.asdict(CONFIG),
        }

    def restore(self, path: Path) -> None:
        """Continues from a checkpoint."""
        content = torch.load(path, weights_only=True, map_location=self.device)
        for name in ("codec", "averaged", "head", "envelopes", "discriminator", "optimizer", "judge_optimizer"):
            getattr(self, name).load_state_dict(content[name])
        self.step, self.judged, self.seconds = content["step"], content["judged"], content["seconds"]
        self.generator.set_state(content["generator"].cpu())

    def train_step(self, progress: float, log: Log, *, judge: bool) -> None:
        """One optimiser step on one batch, with the discriminator if `judge`."""
        batch, skipped = self._draw(BATCH)
        features, phase, envelope = self._middle(batch, skipped)
        output, audio = (x[..., skipped * FRAME :] for x in (audio_from(self.codec, features), batch.audio))
        mel, magnitude = self.spectral(output, audio)
        wave, judged = self.wave(output, audio), self.judged >= DISCRIMINATOR_ALONE
        total = (JUDGED_MEL_WEIGHT if judged else MEL_WEIGHT) * mel
        total = total + MAGNITUDE_WEIGHT * magnitude + WAVE_WEIGHT * wave
        total = total + PHASE_WEIGHT * phase + ENVELOPE_WEIGHT * envelope
        if judge:
            spare = audio.shape[-1] - JUDGED_SAMPLES
            at = int(torch.randint(0, spare + 1, (1,), generator=self.generator))
            real, fake = (x[..., at : at + JUDGED_SAMPLES] for x in (audio, output))
            self._teach_discriminator(real, fake.detach(), progress, log)
            if judged:
                total = total + self._judge(fake, real, log)
        norm = self._descend(total, progress, JUDGED_RATE if judged else 1.0)
        log.add(mel=mel, mag=magnitude, wave=wave, phase=phase, envelope=envelope, norm=norm)

    def first_step(self, progress: float, log: Log) -> None:
        """One optimiser step of the first half alone, on what its features should hold."""
        _, phase, envelope = self._middle(*self._draw(FIRST_BATCH))
        log.add(phase=phase, envelope=envelope, norm=self._descend(phase + envelope, progress))

    def _draw(self, batch: int) -> tuple[Segment, int]:
        """Random segments, and how many frames of them are not compared."""
        onset = float(torch.rand((), generator=self.generator)) < ONSET_SHARE
        drawn = self.segments.draw(self.generator, batch, SEGMENT_FRAMES, PHASE_HOP, onset=onset)
        moved = Segment(**{name: value.to(self.device) for name, value in vars(drawn).items()})
        return moved, 0 if onset else SKIPPED_FRAMES

    def _middle(self, batch: Segment, skipped: int) -> tuple[Tensor, Tensor, Tensor]:
        """(features, error of the phase, error of the envelope)."""
        latents, features = middle_features(self.codec, batch.codes)
        at = skipped * FRAME // PHASE_HOP
        phase = self.head(features[..., at:], batch.phase[:, at:], batch.voiced[:, at:])
        early, late = self.envelopes
        target = early.target(batch.audio)
        at = skipped * FRAME // ENVELOPE_HOP
        return features, phase, 0.5 * (early(latents, target, at) + late(features, target, at))

    def _descend(self, loss: Tensor, progress: float, share: float = 1.0) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.learning, 2.0)
        self._set_rate(self.optimizer, progress, share * PEAK_RATE)
        self.optimizer.step()
        average_into(self.averaged, self.codec, min(AVERAGE_DECAY, self.step / (self.step + 10)))
        self.step += 1
        return norm

    def _teach_discriminator(self, real: Tensor, fake: Tensor, progress: float, log: Log) -> None:
        loss = discriminator_loss(self.discriminator(real), self.discriminator(fake))
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
            real = self.discriminator(audio)
        score, match = generator_losses(real, self.discriminator(output))
        self.discriminator.requires_grad_(True)
        log.add_rare(score=score, match=match)
        return SCORE_WEIGHT * score + MATCH_WEIGHT * match

    def _set_rate(self, optimizer: torch.optim.Optimizer, progress: float, peak: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(progress, self.step, peak)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Mean mel distance and wave loss of the averaged weights on the clips that are never trained on."""
        mel, wave = [], []
        for source, index in self.segments.held_out:
            whole = source.cut(index, 0, source.codes[index].shape[1], PHASE_HOP)
            output = self.averaged.synthesize(whole.codes.to(self.device))
            audio = whole.audio.to(self.device)
            mel.append(F.l1_loss(self.spectral.log_mel(output), self.spectral.log_mel(audio)))
            wave.append(self.wave(output, audio))
        return {
            "held_mel": round(float(torch.stack(mel).mean()), 4),
            "held_wave": round(float(torch.stack(wave).mean()), 4),
        }


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
            parameter.fill_(0.3)
    codec.encoder.block[0].conv.weight.mul_(1.0 / SPEECH_LEVEL)
    codec.decoder.model[-1].conv.weight.mul_(0.5 * SPEECH_LEVEL)


@torch.no_grad()
def start_codebooks(codec: Codec, centres: Tensor) -> None:
    """Fills every codebook with what its codes mean, `factors.code_features`."""
    features = code_features(centres)
    layers = [*codec.quantizer.semantic_quantizer.quantizers, *codec.quantizer.quantizer.quantizers]
    for layer in layers:
        layer.codebook.weight.copy_(features)


def load_codec(folder: Path) -> Codec:
    """The codec exported to `folder`, in evaluation mode."""
    codec = Codec(CodecConfig.from_dict(json.loads((folder / "codec_config.json").read_text())))
    codec.load_state_dict(load_file(folder / "codec.safetensors"))
    return codec.eval().requires_grad_(False)


def export(codec: Codec, folder: Path) -> None:
    """Writes `codec.safetensors` (float32) and `codec_config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous().cpu() for k, v in codec.state_dict().items()}, folder / "codec.safetensors")
    (folder / "codec_config.json").write_text(json.dumps(dataclasses.asdict(codec.config), indent=1))


def run(trainer: Trainer, minutes: float, judge_from: float, max_steps: int | None = None) -> None:
    """Trains until `minutes` of training time are spent in all runs together.

    From the share `judge_from` of the time on, the discriminator learns and, once it has, judges.
    """
    log, last = Log(trainer.out), time.perf_counter()
    while trainer.seconds < minutes * 60 and (max_steps is None or trainer.step < max_steps):
        progress = trainer.seconds / (minutes * 60)
        if trainer.step < FIRST_STEPS:
            trainer.first_step(progress, log)
        else:
            trainer.train_step(progress, log, judge=progress >= judge_from)
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
    parser.add_argument("--data", type=Path, action="append", required=True, help="folder with audio/ and meta.jsonl")
    parser.add_argument("--cache", type=Path, action="append", required=True, help="its audio cache")
    parser.add_argument("--codes", type=Path, action="append", required=True, help="its codes (training.factors)")
    parser.add_argument("--prosody", type=Path, action="append", required=True, help="its curves (training.prosody)")
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and the log")
    parser.add_argument("--minutes", type=float, default=100.0, help="training time, all runs together")
    parser.add_argument("--judge-from", type=float, default=0.6, help="share of the time without a discriminator")
    parser.add_argument("--max-steps", type=int, help="stop here, for trials")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    folders = zip(options.data, options.cache, options.codes, options.prosody, strict=True)
    segments = Segments([Source.load(*folder) for folder in folders], HELD_OUT_EVERY)
    trainer = Trainer(segments, options.codes[0], options.out, torch.device(options.device))
    if (options.out / "last.pt").is_file():
        trainer.restore(options.out / "last.pt")
    run(trainer, options.minutes, options.judge_from, options.max_steps)


if __name__ == "__main__":
    main()
