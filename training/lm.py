"""Trains the language model: `python -m training.lm --data DIR --codes FILE --out training/runs/lm --minutes 60`.

The model is the family's own `DualAR`; `training.export` turns a checkpoint into a folder the engine loads. Run again
with the same `--out` to resume; `--start` begins with the weights of a file of `training.checkpoint`. `--data` and
`--codes` may be given several times, in pairs.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model.dual_ar import DualAR
from oscine.families.audio8.prompt import PromptBuilder
from training.checkpoint import read_start
from training.common import Log, average_into, learning_rate, save
from training.factors import CODEBOOK_SIZE, FRAME, NUM_CODEBOOKS, SAMPLE_RATE, code_features, read_codebook
from training.lm_data import Utterance, batches, collate, corrupted, cropped, load_utterances, split
from training.lm_losses import STATE_DROPOUT, Losses, SymbolHead, code_targets, compute_losses
from training.tokenizer import END, SEMANTIC_BEGIN, build_tokenizer

SEED = 1
PEAK_RATE, WEIGHT_DECAY, AVERAGE_DECAY = 1.5e-3, 5e-2, 0.998
WARMUP_STEPS = 100
CORRUPTIONS = (0.05, 0.15, 0.4)  # shares of the input codes drawn anew, one of them in each batch
CROPPED = 0.4  # of the utterances are cut to some of their words
MAX_COLUMNS = {"cpu": 1600, "cuda": 12800}  # of a batch, padding included
FIRST_FRAMES, ALL_FROM = 60, 0.2  # curriculum: frames an utterance may have at first, when all take part
LOG_EVERY, SAVE_S, EVALUATE_S = 50, 180.0, 300.0


def model_config() -> dict[str, Any]:
    """The `config.json` values of our language model."""
    size = CODEBOOK_SIZE
    return {
        "model_type": "arktts",
        "vocab_size": SEMANTIC_BEGIN + size,
        "dim": 256,
        "n_layer": 6,
        "n_head": 4,
        "n_local_heads": 2,
        "head_dim": 64,
        "intermediate_size": 768,
        "max_seq_len": 1024,
        "rope_base": 10000.0,
        "norm_eps": 1e-6,
        "attention_qkv_bias": False,
        "attention_qk_norm": True,
        "tie_word_embeddings": True,
        "codebook_size": size,
        "num_codebooks": NUM_CODEBOOKS,
        "semantic_begin_id": SEMANTIC_BEGIN,
        "semantic_end_id": SEMANTIC_BEGIN + size - 1,
        "eos_token_id": build_tokenizer().token_to_id(END),
        "n_fast_layer": 1,
        "fast_dim": 256,
        "fast_n_head": 4,
        "fast_n_local_heads": 4,
        "fast_head_dim": 64,
        "fast_intermediate_size": 768,
        "codec_sample_rate": SAMPLE_RATE,
        "codec_frame_size": FRAME,
    }


@torch.no_grad()
def initialise(model: DualAR) -> None:
    """Small embeddings (they are the output head too) and projections that keep the variance."""
    depth = len(model.layers)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.weight.normal_(0.0, 0.02)
        elif isinstance(module, nn.Linear):
            module.weight.normal_(0.0, module.in_features**-0.5)
            if module.bias is not None:
                module.bias.zero_()
    for layer in (*model.layers, *model.fast_layers):
        for module in (layer.attention.wo, layer.feed_forward.w2):
            module.weight.mul_((2 * depth) ** -0.5)
    model.fast_output.weight.mul_(0.5)


@torch.no_grad()
def start_from_features(model: DualAR, features: Tensor, generator: torch.Generator) -> None:
    """Makes the code embeddings random views of what the codes mean, `features` [code, feature] (`code_features`).

    Codes that mean alike then look alike; every codebook has a view of its own.
    """
    config = model.config
    unit = features / features.square().mean().sqrt()
    views = (
        torch.randn(config.num_codebooks + 2, unit.shape[1], config.dim, generator=generator) * unit.shape[1] ** -0.5
    )
    for i in range(config.num_codebooks):
        rows = slice(i * config.codebook_size, (i + 1) * config.codebook_size)
        model.codebook_embeddings.weight[rows] = 0.04 * (unit @ views[i])
    begin, end = config.semantic_begin_id, config.semantic_end_id + 1
    model.embeddings.weight[begin:end] = 0.02 * (unit @ views[-2])
    for table in (model.fast_embeddings.weight, model.fast_output.weight):
        table.copy_(0.06 * (unit @ views[-1][:, : config.fast_dim]))


class Trainer:
    """Everything a run holds; `state` and `restore` are its checkpoint."""

    def __init__(
        self,
        values: dict[str, Any],
        utterances: Sequence[Utterance],
        out: Path,
        device: torch.device,
        centres: Tensor,
        *,
        half: bool = False,
        peak_rate: float = PEAK_RATE,
    ) -> None:
        torch.manual_seed(SEED)
        self.values, self.out, self.device, self.half = values, out, device, half
        self.peak_rate = peak_rate
        self.config = LMConfig.from_dict(values)
        self.trained, self.held_out = split(utterances)
        self.generator = torch.Generator().manual_seed(SEED)
        model = DualAR(self.config)
        initialise(model)
        start_from_features(model, code_features(centres), self.generator)
        self.model = model.to(device)
        self.targets = code_targets(centres).to(device)
        self.averaged = copy.deepcopy(self.model).requires_grad_(False).eval()
        self.head = SymbolHead(self.config.dim, SEMANTIC_BEGIN).to(device)
        self.optimizer = torch.optim.AdamW(self._groups(), betas=(0.9, 0.98), fused=True)
        self.step, self.seconds, self.frames = 0, 0.0, 0

    def _groups(self) -> list[dict[str, Any]]:
        parameters = [*self.model.parameters(), *self.head.parameters()]
        return [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": WEIGHT_DECAY},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]

    def state(self) -> dict[str, Any]:
        """Checkpoint content."""
        parts = {"model": self.model, "averaged": self.averaged, "head": self.head, "optimizer": self.optimizer}
        return {name: part.state_dict() for name, part in parts.items()} | {
            "step": self.step,
            "seconds": self.seconds,
            "frames": self.frames,
            "generator": self.generator.get_state(),
            "config": self.values,
        }

    def restore(self, path: Path) -> None:
        """Continues from a checkpoint of the same dimensions."""
        content = torch.load(path, weights_only=True, map_location=self.device)
        for name in ("model", "averaged", "head", "optimizer"):
            getattr(self, name).load_state_dict(content[name])
        self.step, self.seconds, self.frames = content["step"], content["seconds"], content["frames"]
        self.generator.set_state(content["generator"].cpu())

    def start_from(self, path: Path) -> None:
        """Takes over the weights of a file of `training.checkpoint`; ValueError if it is of another configuration."""
        config, weights = read_start(path)
        if config != self.values:
            differing = sorted(k for k in {*config, *self.values} if config.get(k) != self.values.get(k))
            raise ValueError(f"{path} is of another model: {differing} differ")
        self.model.load_state_dict(weights)
        self.averaged.load_state_dict(weights)

    def train_step(self, utterances: Sequence[Utterance], progress: float) -> Losses:
        """One optimiser step."""
        torch.manual_seed(SEED + self.step)  # for dropout, so that a resumed run is the same run
        batch = collate(utterances, self.config).to(self.device)
        share = CORRUPTIONS[int(torch.randint(len(CORRUPTIONS), (), generator=self.generator))]
        columns = corrupted(batch, self.config, share, self.generator)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            losses = compute_losses(self.model, self.head, batch, columns, self.targets, dropout=STATE_DROPOUT)
        self.optimizer.zero_grad(set_to_none=True)
        losses.total.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(progress, self.step, self.peak_rate, warmup=WARMUP_STEPS)
        self.optimizer.step()
        average_into(self.averaged, self.model, min(AVERAGE_DECAY, self.step / (self.step + 10)))
        self.step += 1
        self.frames += batch.num_frames
        return losses

    def passes(self, progress: float) -> Iterator[list[Utterance]]:
        """The batches of one pass over the utterances that are short enough by now."""
        longest = max(u.num_frames for u in self.trained)
        limit = FIRST_FRAMES + (longest - FIRST_FRAMES) * min(1.0, progress / ALL_FROM)
        fitting = [u for u in self.trained if u.num_frames <= limit]
        drawn = torch.rand(len(fitting), generator=self.generator) < CROPPED
        mixed = [cropped(u, self.generator) if crop else u for u, crop in zip(fitting, drawn.tolist(), strict=True)]
        return batches(mixed or self.trained, MAX_COLUMNS[self.device.type], self.generator)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Losses of the averaged weights on the held-out utterances."""
        parts: dict[str, list[Tensor]] = {}
        for start in range(0, len(self.held_out), 8):
            batch = collate(self.held_out[start : start + 8], self.config).to(self.device)
            for name, value in vars(compute_losses(self.averaged, self.head, batch, batch.columns)).items():
                parts.setdefault(f"held_{name}", []).append(value)
        return {name: round(float(torch.stack(values).mean()), 4) for name, values in parts.items()}


def run(trainer: Trainer, minutes: float, max_steps: int | None = None) -> None:
    """Trains until `minutes` of training time are spent in all runs together, or `max_steps` steps made."""
    log, last, budget = Log(trainer.out), time.perf_counter(), minutes * 60
    saved = evaluated = trainer.seconds
    frames_then, seconds_then = trainer.frames, trainer.seconds
    coming: Iterator[list[Utterance]] = iter(())
    while trainer.seconds < budget and (max_steps is None or trainer.step < max_steps):
        progress = trainer.seconds / budget
        group = next(coming, None)
        if group is None:
            coming = trainer.passes(progress)
            continue
        losses = trainer.train_step(group, progress)
        log.add(**{name: value.detach() for name, value in vars(losses).items()})
        now = time.perf_counter()
        trainer.seconds, last = trainer.seconds + now - last, now
        if trainer.step % LOG_EVERY == 0:
            rate = (trainer.frames - frames_then) / (trainer.seconds - seconds_then)
            frames_then, seconds_then = trainer.frames, trainer.seconds
            left = (budget - trainer.seconds) / 60
            log.line(trainer.step, trainer.seconds / 60, frames_s=round(rate), left_min=round(left, 1))
        if trainer.seconds - evaluated > EVALUATE_S:
            evaluated = trainer.seconds
            log.line(trainer.step, trainer.seconds / 60, **trainer.evaluate())
        if trainer.seconds - saved > SAVE_S:
            saved = trainer.seconds
            save(trainer.out / "last.pt", trainer.state())
    save(trainer.out / "last.pt", trainer.state())
    log.line(trainer.step, trainer.seconds / 60, **trainer.evaluate())


def load_all(folders: Sequence[Path], files: Sequence[Path], values: dict[str, Any]) -> list[Utterance]:
    """The utterances of all data folders."""
    config = LMConfig.from_dict(values)
    prompts = PromptBuilder(build_tokenizer(), config)
    utterances: list[Utterance] = []
    for data, codes in zip(folders, files, strict=True):
        usable, refused = load_utterances(data, codes, prompts)
        print(f"{data}: {len(usable)} utterances, {len(refused)} left out", *refused[:3], sep="\n  ", flush=True)
        utterances += usable
    return utterances


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, action="append", required=True, help="folder with meta.jsonl")
    parser.add_argument(
        "--codes", type=Path, action="append", required=True, help="its codes (training.factors, training.plans)"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and the log")
    parser.add_argument("--start", type=Path, help="weights to begin with, a file of training.checkpoint")
    parser.add_argument("--float32", action="store_true", help="no bfloat16: for processors without units for it")
    parser.add_argument("--rate", type=float, default=PEAK_RATE, help="highest learning rate (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=60.0, help="training time, all runs together")
    parser.add_argument("--max-steps", type=int, help="stop here, for trials")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    values = model_config()
    utterances = load_all(options.data, options.codes, values)
    centres, device = read_codebook(options.codes[0])[1], torch.device(options.device)
    trainer = Trainer(
        values, utterances, options.out, device, centres, half=not options.float32, peak_rate=options.rate
    )
    if (options.out / "last.pt").is_file():
        trainer.restore(options.out / "last.pt")
    elif options.start:
        trainer.start_from(options.start)
    frames = sum(u.num_frames for u in trainer.trained)
    size = sum(p.numel() for p in trainer.model.parameters())
    print(f"{len(trainer.trained)} utterances, {frames} frames, {size} parameters", flush=True)
    run(trainer, options.minutes, options.max_steps)


if __name__ == "__main__":
    main()
