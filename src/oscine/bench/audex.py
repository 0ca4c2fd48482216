"""The Audex workload: decode steps of the language model, both codecs, and the phase mask, at real dimensions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import nn

from oscine.bench.measure import memory_bandwidth, summary, synchronize
from oscine.families.audex import tokens, tta
from oscine.families.audex.codec_config import SpeechDecoderConfig, XCodecConfig
from oscine.families.audex.config import DenseConfig
from oscine.families.audex.decoders import SpeechStreamDecoder
from oscine.families.audex.dense import DenseLM
from oscine.families.audex.family import LATER_CHUNKS, SPEECH, exact_rule
from oscine.families.audex.jobs import LMJob
from oscine.families.audex.loading import AudexModel, load_model
from oscine.families.audex.speech_decoder import SpeechDecoder
from oscine.families.audex.step_model import AudexStepModel
from oscine.families.audex.xcodec import XCodecDecoder
from oscine.layers.exact import ExactRule
from oscine.types import Job

PROMPT_TOKENS = 120
"""Tokens of the measured prompt: a sentence with its frame."""
MASK_ROWS = (1, 32, 256)
EOS = (2, 11)

CONFIGS: dict[str, DenseConfig] = {
    "audex-2b": DenseConfig(
        vocab_size=205312,
        hidden_size=2048,
        intermediate_size=9216,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        norm_eps=1e-5,
        hidden_act="relu2",
        max_position_embeddings=131072,
        rope_theta=1e8,
    )
}
"""Dimensions of the dense release (AUDEX spec, 2.1)."""
SPEECH_DECODER = SpeechDecoderConfig(
    hidden_dim=2048,
    depth=12,
    heads=32,
    pos_meb_dim=64,
    hop_length=320,
    vq_dim=2048,
    lookahead_steps=4,
    sample_rate=16000,
    codebook_levels=(4,) * 8,
    codebook_size=65536,
    token_embed_dim=8,
)
XCODEC = XCodecConfig(
    sample_rate=16000,
    codebook_size=1024,
    codebook_dim=1024,
    hidden_size=256,
    decoder_hidden_size=1024,
    upsampling_ratios=(8, 5, 4, 2),
)


@dataclass(frozen=True, kw_only=True)
class AudexWorkload:
    """One model to measure; `frames` tokens a job, `batch` jobs at once, `repeats` of the codecs and the mask."""

    model: AudexModel
    rule: ExactRule
    batch: int
    frames: int
    repeats: int

    @torch.inference_mode()
    def run(self) -> dict[str, Any]:
        """Everything measured, by name; rates per second, times in seconds, memory in bytes."""
        bandwidth = memory_bandwidth(self._device)
        whole, restricted = (self._step_seconds(speech_only=flag) for flag in (False, True))
        read = self._bytes_per_step()
        rate = self.model.speech_decoder.config.sample_rate / self.model.speech_decoder.config.hop_length
        audio_s = self.frames / rate
        report: dict[str, Any] = {
            "batch": self.batch,
            "frames": self.frames,
            "lm_step_s": summary(whole),
            "tokens_per_s": self.batch / summary(whole)["p50"],
            "lm_bytes_per_step": read,
            "memory_bandwidth": bandwidth,
            "bandwidth_share": read / summary(whole)["p50"] / bandwidth,
            "lm_step_speech_only_s": summary(restricted),
            "speech_first_audio_frames": self.model.speech_decoder.config.lookahead_steps + 1,
            "speech_streamed_rtf": self._best(self._speak) / audio_s,
            "mask_apply_s": {str(rows): self._mask_seconds(rows) for rows in MASK_ROWS},
        }
        if self.model.xcodec is not None:
            report["xcodec_rtf"] = self._best(self._sound) / audio_s
        return report

    @property
    def _device(self) -> torch.device:
        return self.model.speech_decoder.module.fc_post_a.weight.device

    def _step_seconds(self, *, speech_only: bool) -> list[float]:
        """Wall times of decode steps of the whole batch, codec left out; ends are stepped over."""
        steps = AudexStepModel(self.model, self.rule, speech_only=speech_only)
        jobs = [self._job(number) for number in range(self.batch)]
        for job in jobs:
            steps.admit(job)
            steps.step([job])
        times = [self._seconds(lambda: steps.step(jobs)) for _ in range(self.frames)]
        for job in jobs:
            steps.release(job)
        return times[1:] or times

    def _job(self, number: int) -> Job:
        ids = [(7 * i + number) % 200 + 20 for i in range(PROMPT_TOKENS)]
        inputs = LMJob(output="speech", prompt_ids=ids, sampling=SPEECH, max_new_tokens=self.frames + 2)
        return Job(id=f"bench.{number}", inputs=inputs, seed=number, max_frames=self.frames, memory=0)

    def _bytes_per_step(self) -> int:
        """Weights a decode step must read: all but the embedding table, of which it takes a row a lane."""
        parameters = self.model.lm.named_parameters()
        return sum(value.numel() * value.element_size() for name, value in parameters if "embed" not in name)

    def _speak(self) -> None:
        """The engine's grid over random frames."""
        decoder, at, runs = SpeechStreamDecoder(self.model.speech_decoder), 0, 0
        sizes = (self.model.speech_decoder.config.lookahead_steps + 1, *LATER_CHUNKS)
        while at < self.frames:
            size = min(sizes[min(runs, len(sizes) - 1)], self.frames - at)
            decoder.push([(i * 31) % 64 for i in range(at, at + size)])
            at, runs = at + size, runs + 1
        decoder.flush()

    def _sound(self) -> None:
        assert self.model.xcodec is not None
        offsets = torch.arange(4) * self.model.xcodec.config.codebook_size
        ids = torch.randint(0, 1000, (self.frames, 4), generator=torch.Generator().manual_seed(0)) + offsets
        self.model.xcodec.decode_ids(ids, max_frames=self.frames)

    def _mask_seconds(self, rows: int) -> float:
        """One `apply` of the phase mask with every row a sound, the clone of its logits not counted."""
        space = self.model.tokens
        settings = {
            "phase_token_ids": space.phases,
            "start_tid": space.audiogen_end - 1,
            "end_tid": space.audiogen_end,
            "start_in_prompt": True,
        }
        params = SimpleNamespace(extra_args={"tta_rvq": settings})
        masker = tta.TTARVQPhaseMaskLogitsProcessor(None, self._device, False)
        added: list[Any] = [(row, params, [], [0] * row) for row in range(rows)]
        masker.update_state(SimpleNamespace(removed=[], added=added, moved=[]))
        logits = torch.zeros(rows, self.model.lm.config.vocab_size, device=self._device)
        masker.apply(logits)
        return self._best(lambda: masker.apply(logits))

    def _best(self, work: Callable[[], Any]) -> float:
        return min(self._seconds(work) for _ in range(max(2, self.repeats)))

    def _seconds(self, work: Callable[[], Any]) -> float:
        synchronize(self._device)
        start = time.perf_counter()
        work()
        synchronize(self._device)
        return time.perf_counter() - start


def from_random(name: str, *, device: torch.device, dtype: torch.dtype, **size: int) -> AudexWorkload:
    """A release's dimensions with random weights: right for speed, meaningless to hear."""
    with torch.device("meta"):
        empty = DenseLM(CONFIGS[name]), SpeechDecoder(SPEECH_DECODER), XCodecDecoder(XCODEC)
    lm, decoder, xcodec = empty
    for module, kind in ((lm, dtype), (decoder, torch.float32), (xcodec, torch.float32)):
        _fill(module, kind, device)
    model = AudexModel(
        lm=lm,
        tower=None,
        speech_decoder=decoder,
        xcodec=xcodec,
        tokenizer=Tokenizer(WordLevel({"<unk>": 0}, unk_token="<unk>")),
        tokens=_released_tokens(),
    )
    return AudexWorkload(model=model, rule=exact_rule(lm, device, dtype), **size)


def from_folder(folder: Path, *, device: torch.device, dtype: torch.dtype, **size: int) -> AudexWorkload:
    """A checkpoint's own weights."""
    model = load_model(folder, device=device, dtype=dtype)
    return AudexWorkload(model=model, rule=exact_rule(model.lm, device, dtype), **size)


def _released_tokens() -> tokens.TokenSpace:
    size, offset = tta.XCODEC1_CODEBOOK_SIZE, tta.AUDEX_AUDIOCODEC_TOKEN_OFFSET
    return tokens.TokenSpace(
        speech=tokens.TokenBlock(offset=tokens.SPEECHCODEC_TOKEN_OFFSET, size=tokens.SPEECHCODEC_VOCAB_SIZE),
        audio=tokens.TokenBlock(offset=offset, size=tta.AUDEX_AUDIOCODEC_VOCAB_SIZE),
        phases=[list(range(offset + p * size, offset + (p + 1) * size)) for p in range(tta.XCODEC1_NUM_CODEBOOKS)],
        audiogen_end=tta.AUDEX_AUDIOGEN_END_TOKEN_ID,
        speechgen_end=tokens.SPEECHGEN_END_TOKEN_ID,
        sound=29,
        sound_start=30,
        sound_end=31,
        unk=0,
        eos=EOS,
    )


def _fill(module: nn.Module, dtype: torch.dtype, device: torch.device) -> None:
    """Gives a module built on the meta device small normal weights, scaled so that nothing overflows."""
    generator = torch.Generator(device).manual_seed(0)
    for name, value in list(module.named_parameters()):
        spread = 0.1 if value.dim() == 1 else value[0].numel() ** -0.5
        filled = torch.empty(value.shape, device=device, dtype=dtype).normal_(0, spread, generator=generator)
        if value.dim() == 1 or name.endswith("alpha"):
            filled += 1
        owner = module.get_submodule(name.rpartition(".")[0])
        owner._parameters[name.rpartition(".")[2]] = nn.Parameter(filled, requires_grad=False)
    module.eval()
