"""The Audio8 workload: real dimensions, random weights or a checkpoint's, through the real engine."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import nn

from oscine.bench.measure import memory_bandwidth, seconds, summary
from oscine.engine.engine import Engine
from oscine.families.audio8.backends.eager import EagerBackend
from oscine.families.audio8.backends.native import NativeBackend
from oscine.families.audio8.codec.codec import Codec
from oscine.families.audio8.codec.config import CodecConfig
from oscine.families.audio8.codec.kinds import AnyCodec
from oscine.families.audio8.config import Audio8Config, GenerationDefaults, HybridConfig, LMConfig
from oscine.families.audio8.family import Audio8Family
from oscine.families.audio8.model.dual_ar import DualAR
from oscine.families.audio8.prompt import PromptBuilder, PromptIds
from oscine.families.audio8.slots import Audio8Inputs
from oscine.families.audio8.steps import Audio8StepModel
from oscine.families.audio8.weights import load_codec, load_language_model
from oscine.kernels.fp16 import Fp16Linear
from oscine.types import AudioChunk, Done, Event, Failed, Job

PROMPT_TOKENS = 60
"""Text tokens of the measured prompt: a sentence of about 150 characters with its frame."""

CONFIGS: dict[str, LMConfig] = {
    "audio8-0.6b": LMConfig(),
    "audio8-0.1b": LMConfig(
        vocab_size=69633,
        dim=512,
        n_head=8,
        intermediate_size=768,
        rope_base=1e11,
        norm_eps=1e-5,
        semantic_begin_id=65537,
        semantic_end_id=69632,
        eos_token_id=228,
        fast_dim=512,
        fast_n_head=8,
        hybrid=HybridConfig(
            mamba_d_ssm=768, mamba_n_heads=24, mamba_d_head=32, mamba_d_state=64, embedding_multiplier=0.10888671875
        ),
    ),
}
"""Dimensions of the releases (AUDIO8 spec, section 2)."""


@dataclass(frozen=True, kw_only=True)
class Audio8Workload:
    """One model to measure; `frames` a request, `batch` requests at once, `repeats` measured rounds."""

    family: Audio8Family
    model: DualAR
    codec: AnyCodec
    batch: int
    frames: int
    repeats: int

    def run(self) -> dict[str, Any]:
        """Everything measured, by name; rates per second, times in seconds, memory in bytes."""
        device = self.model.device
        rounds = self._rounds()
        audio_s = self.frames / self.family.capabilities.frame_rate
        step_s, simple_step_s = self._step_seconds()
        bandwidth = memory_bandwidth(device)
        decode = self._decode_seconds()
        total = summary([r["total_s"] for r in rounds])
        return {
            "batch": self.batch,
            "frames": self.frames,
            "audio_s": audio_s,
            "rtf": {name: value / (audio_s * self.batch) for name, value in total.items()},
            "ttfa_s": summary([r["ttfa_s"] for r in rounds]),
            "frames_per_s": self.batch * self.frames / total["p50"],
            "lm_step_s": summary(step_s),
            "compiled_step_speedup": summary(simple_step_s)["p50"] / summary(step_s)["p50"] if simple_step_s else None,
            "lm_bytes_per_step": self._bytes_per_step(),
            "memory_bandwidth": bandwidth,
            "bandwidth_share": self._bytes_per_step() / summary(step_s)["p50"] / bandwidth,
            "codec_streamed_rtf": decode["streamed"] / audio_s,
            "codec_whole_rtf": decode["whole"] / audio_s,
            "codec_streamed_to_whole": decode["streamed"] / decode["whole"],
        }

    def _rounds(self) -> list[dict[str, float]]:
        """Requests through the engine; the first round warms up and is not counted."""
        engine = Engine()
        try:
            return [self._round(engine, number) for number in range(self.repeats + 1)][1:]
        finally:
            engine.close()

    def _round(self, engine: Engine, number: int) -> dict[str, float]:
        events: queue.SimpleQueue[tuple[int, Event]] = queue.SimpleQueue()
        jobs = [self._job(number * self.batch + row) for row in range(self.batch)]
        start = time.perf_counter()
        engine.submit(self.family, [(job, _tagged(events, row)) for row, job in enumerate(jobs)])
        first: dict[int, float] = {}
        ended = 0
        while ended < self.batch:
            row, event = events.get()
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, AudioChunk):
                first.setdefault(row, time.perf_counter() - start)
            ended += isinstance(event, Done)
        return {"total_s": time.perf_counter() - start, "ttfa_s": max(first.values())}

    def _job(self, number: int) -> Job:
        before = tuple(range(1, 9))
        after = tuple((7 * i + number) % 200 + 1 for i in range(PROMPT_TOKENS))
        inputs = Audio8Inputs(prompt=PromptIds(before=before, after=after), min_new_frames=self.frames + 1)
        return Job(id=f"bench.{number}", inputs=inputs, seed=number, max_frames=self.frames, memory=0)

    def _step_seconds(self) -> tuple[list[float], list[float]]:
        """Wall times of decode steps of the whole batch, codec left out; where compiled steps are used also those of
        the path they stand for, in turn with them."""
        models = [self.family.step_model()]
        if isinstance(self.family.step_model().backend, NativeBackend):
            models.append(Audio8StepModel(EagerBackend(self.model)))
        jobs = [self._job(number) for number in range(self.batch)]
        for steps in models:
            for job in jobs:
                steps.admit(job)
                steps.step([job])
        times: list[list[float]] = [[], []]
        for _ in range(self.frames):
            for steps, own in zip(models, times, strict=False):
                own.append(seconds(partial(steps.step, jobs), self.model.device))
        for steps in models:
            for job in jobs:
                steps.release(job)
        return times[0][1:], times[1][1:]

    def _bytes_per_step(self) -> int:
        """Weights a decode step must read: the slow model once, the fast model at each position of the frame."""
        model, config = self.model, self.model.config
        fast = sum(_bytes(module) for module in (model.fast_layers, model.fast_norm, model.fast_output))
        slow = _bytes(model.layers if config.hybrid is None else model.slow.layers)
        slow += 0 if config.fast_dim == config.dim else _bytes(model.fast_project_in)
        width = 2 if isinstance(model.fast_output, Fp16Linear) else model.dtype.itemsize
        head = (config.codebook_size + 1) * config.dim * width
        return slow + head + fast * (config.num_codebooks - 1)

    def _decode_seconds(self) -> dict[str, float]:
        """The best of `repeats` for decoding one request's frames, on the engine's grid and in one call."""
        codes = torch.randint(0, 1000, (1, self.codec.config.num_codebooks, self.frames), device=self.model.device)

        def streamed() -> None:
            state, at, run = self.codec.open_stream(), 0, 0
            sizes = self.family.chunk_sizes()
            while at < self.frames:
                size = sizes[min(run, len(sizes) - 1)]
                self.codec.decode_chunk(codes[..., at : at + size], state)
                at, run = at + size, run + 1
            self.codec.flush(state)

        def whole() -> None:
            self.codec.decode(codes)

        with torch.inference_mode():
            return {
                work.__name__: min(seconds(work, self.model.device) for _ in range(max(2, self.repeats // 2)))
                for work in (streamed, whole)
            }


def from_random(name: str, *, device: torch.device, dtype: torch.dtype, **size: int) -> Audio8Workload:
    """A release's dimensions with random weights, bfloat16 numbers as in the releases: right for speed alone."""
    lm = CONFIGS[name]
    codec_config = CodecConfig()
    with torch.device("meta"):
        empty_model, empty_codec = DualAR(lm), Codec(codec_config)
    model, codec = _random(empty_model, dtype, device), _random(empty_codec, torch.float32, device)
    config = Audio8Config(lm=lm, codec=codec_config, generation=GenerationDefaults())
    return _workload(config, model, codec, name, **size)


def from_folder(folder: Path, *, device: torch.device, dtype: torch.dtype, **size: int) -> Audio8Workload:
    """A checkpoint's own weights."""
    config = Audio8Config.from_folder(folder)
    model = load_language_model(folder, config.lm, device=device, dtype=dtype)
    return _workload(config, model, load_codec(folder, config.codec, device=device), folder.name, **size)


def _workload(config: Audio8Config, model: DualAR, codec: AnyCodec, name: str, **size: int) -> Audio8Workload:
    # Prompts are made of token ids here, so a tokenizer that knows the end token is enough.
    tokenizer = Tokenizer(WordLevel({"<|im_end|>": config.lm.eos_token_id}, unk_token="<|im_end|>"))
    prompts = PromptBuilder(tokenizer, config.lm)
    family = Audio8Family(config, prompts, model, codec, name=name, licence="not stated")
    return Audio8Workload(family=family, model=model, codec=codec, **size)


def _random(module: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """The module, built on the meta device, with small normal weights: scaled so that nothing overflows."""
    generator = torch.Generator().manual_seed(0)
    for name, value in list(module.named_parameters()):
        spread = 1.0 if value.dim() == 1 else value[0].numel() ** -0.5
        filled = torch.empty(value.shape).normal_(0, 0.5 * spread, generator=generator).bfloat16().float()
        if value.dim() == 1 and name.endswith("weight"):
            filled += 1
        owner = module.get_submodule(name.rpartition(".")[0])
        owner._parameters[name.rpartition(".")[2]] = nn.Parameter(filled.to(device, dtype), requires_grad=False)
    return module.eval()


def _tagged(events: queue.SimpleQueue[tuple[int, Event]], row: int) -> Callable[[Event], None]:
    return lambda event: events.put((row, event))


def _bytes(module: nn.Module) -> int:
    halves = sum(part.num_bytes for part in module.modules() if isinstance(part, Fp16Linear))
    return halves + sum(value.numel() * value.element_size() for value in module.parameters())
