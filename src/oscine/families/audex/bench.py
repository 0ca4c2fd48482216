"""The Audex workload: decode steps of the language model, both codecs, and the phase mask, at real dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from oscine.bench.measure import memory_bandwidth, summary, times
from oscine.bench.weights import filled
from oscine.compat.audex_tta import TTARVQPhaseMaskLogitsProcessor
from oscine.families.audex import phases, tokens
from oscine.families.audex.codec.config import SpeechDecoderConfig, XCodecConfig
from oscine.families.audex.codec.speech_decoder import SpeechDecoder
from oscine.families.audex.codec.xcodec import XCodecDecoder
from oscine.families.audex.config import DenseConfig
from oscine.families.audex.decoder import SpeechStreamDecoder
from oscine.families.audex.family import LATER_CHUNKS, SPEECH, row_rule
from oscine.families.audex.jobs import LMJob
from oscine.families.audex.model.dense import DenseLM
from oscine.families.audex.spec import PARTS
from oscine.families.audex.steps import AudexStepModel
from oscine.families.audex.weights.loading import AudexModel, load_model, wide_dtype
from oscine.kernels.int8 import to_int8_weights
from oscine.runtime.exact import RowRule
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
    """One model to measure: `frames` tokens a job, each of `batches` jobs at once, `repeats` of codecs and mask."""

    model: AudexModel
    rule: RowRule
    batches: Sequence[int]
    frames: int
    repeats: int
    parts: Sequence[str] = PARTS

    @torch.inference_mode()
    def run(self) -> dict[str, Any]:
        """Everything measured, by name; rates per second, times in seconds, memory in bytes.

        What depends on the number of jobs stands under that number.
        """
        report: dict[str, Any] = {"frames": self.frames, "batches": list(self.batches)}
        measured = {"lm": self._lm, "decoder": self._decoder, "xcodec": self._xcodec, "mask": self._mask}
        for part in self.parts:
            report |= measured[part]()
        return report

    # Parts

    def _lm(self) -> dict[str, Any]:
        """Tokens a second with the whole head and with that of speech alone, against the memory's bandwidth."""
        bandwidth, body = memory_bandwidth(self._device), self._bytes_of_body()
        report: dict[str, Any] = {"memory_bandwidth": bandwidth}
        for head, speech_only in (("whole_head", False), ("speech_head", True)):
            steps = AudexStepModel(self.model, self.rule, speech_only=speech_only)
            read = body + steps.head_bytes("speech")
            report[head] = {"bytes_per_step": read}
            for batch in self.batches:
                taken = summary(self._step_seconds(steps, batch))
                report[head][str(batch)] = {
                    "step_s": taken,
                    "tokens_per_s": batch / taken["p50"],
                    "bandwidth_share": read / taken["p50"] / bandwidth,
                }
        return report

    def _decoder(self) -> dict[str, Any]:
        """Real-time factor of speech on the engine's grid, of all streams together: seconds of work by one of audio."""
        ahead = self.model.speech_decoder.config.lookahead_steps
        rtf = {str(n): self._best(partial(self._speak, n)) / (n * self._audio_s) for n in self.batches}
        return {"speech_first_audio_frames": ahead + 1, "speech_rtf": rtf}

    def _xcodec(self) -> dict[str, Any]:
        """Real-time factor of a sound, decoded whole."""
        return {} if self.model.xcodec is None else {"xcodec_rtf": self._best(self._sound) / self._audio_s}

    def _mask(self) -> dict[str, Any]:
        """Time of one `apply` of the phase mask, by rows."""
        return {"mask_apply_s": {str(rows): self._mask_seconds(rows) for rows in MASK_ROWS}}

    # Work

    @property
    def _device(self) -> torch.device:
        return self.model.speech_decoder.module.fc_post_a.weight.device

    @property
    def _audio_s(self) -> float:
        config = self.model.speech_decoder.config
        return self.frames * config.hop_length / config.sample_rate

    def _step_seconds(self, steps: AudexStepModel, batch: int) -> list[float]:
        """Wall times of decode steps of the whole batch, codec left out; ends are stepped over."""
        jobs = [self._job(number) for number in range(batch)]
        for job in jobs:
            steps.admit(job)
            steps.step([job])

        def step() -> None:
            for out in steps.step(jobs):
                if out.error is not None:
                    raise out.error

        taken = times(step, self._device, self.frames)
        for job in jobs:
            steps.release(job)
        return taken

    def _job(self, number: int) -> Job:
        ids = [(7 * i + number) % 200 + 20 for i in range(PROMPT_TOKENS)]
        inputs = LMJob(output="speech", prompt_ids=ids, sampling=SPEECH, max_new_tokens=self.frames + 2)
        return Job(id=f"bench.{number}", inputs=inputs, seed=number, max_frames=self.frames, memory=0)

    def _bytes_of_body(self) -> int:
        """Weights a decode step must read before the head: all but the embeddings, of which it takes a row a lane."""
        tensors = self.model.lm.state_dict()
        return sum(
            value.numel() * value.element_size()
            for name, value in tensors.items()
            if "embed" not in name and "lm_head" not in name
        )

    def _speak(self, streams: int) -> None:
        """The engine's grid over the frames of streams in step."""
        decoders = [SpeechStreamDecoder(self.model.speech_decoder) for _ in range(streams)]
        sizes = (self.model.speech_decoder.config.lookahead_steps + 1, *LATER_CHUNKS)
        at, runs = 0, 0
        while at < self.frames:
            size = min(sizes[min(runs, len(sizes) - 1)], self.frames - at)
            SpeechStreamDecoder.push_all([(d, [(i * 31) % 64 for i in range(at, at + size)]) for d in decoders])
            at, runs = at + size, runs + 1
        for decoder in decoders:
            decoder.flush()

    def _sound(self) -> None:
        assert self.model.xcodec is not None
        offsets = torch.arange(4) * self.model.xcodec.config.codebook_size
        ids = torch.randint(0, 1000, (self.frames, 4), generator=torch.Generator().manual_seed(0)) + offsets
        self.model.xcodec.decode_ids(ids, max_frames=self.frames)

    def _mask_seconds(self, rows: int) -> float:
        """One `apply` of the phase mask with every row a sound."""
        space = self.model.tokens
        settings = {
            "phase_token_ids": space.phases,
            "start_tid": space.audiogen_end - 1,
            "end_tid": space.audiogen_end,
            "start_in_prompt": True,
        }
        params = SimpleNamespace(extra_args={"tta_rvq": settings})
        masker = TTARVQPhaseMaskLogitsProcessor(None, self._device, False)
        added: list[Any] = [(row, params, [], [0] * row) for row in range(rows)]
        masker.update_state(SimpleNamespace(removed=[], added=added, moved=[]))
        logits = torch.zeros(rows, self.model.lm.config.vocab_size, device=self._device)
        return self._best(lambda: masker.apply(logits))

    def _best(self, work: Callable[[], Any]) -> float:
        return min(times(work, self._device, self.repeats))


def from_random(
    name: str, *, device: torch.device, dtype: torch.dtype, parts: Sequence[str] = PARTS, **size: Any
) -> AudexWorkload:
    """A release's dimensions with random weights; what no part needs is built next to empty."""
    config = CONFIGS[name] if "lm" in parts else replace(CONFIGS[name], hidden_size=64, num_hidden_layers=0)
    decoder_config = SPEECH_DECODER if "decoder" in parts else replace(SPEECH_DECODER, depth=0)

    def language_model() -> DenseLM:
        lm = DenseLM(config)
        if dtype == torch.int8:
            to_int8_weights(lm)
        return lm

    def norms(name: str) -> bool:
        return name.endswith(("norm.weight", "layernorm.weight", "alpha"))

    lm = filled(language_model, wide_dtype(dtype, device), device, ones=norms)
    decoder = filled(lambda: SpeechDecoder(decoder_config), torch.float32, device, ones=norms)
    decoder.measure_rules()
    xcodec = filled(lambda: XCodecDecoder(XCODEC), torch.float32, device, ones=norms) if "xcodec" in parts else None
    model = AudexModel(
        lm=lm,
        tower=None,
        speech_decoder=decoder,
        xcodec=xcodec,
        tokenizer=Tokenizer(WordLevel({"<unk>": 0}, unk_token="<unk>")),
        tokens=_released_tokens(),
    )
    return AudexWorkload(model=model, rule=row_rule(lm, device, dtype), parts=parts, **size)


def from_folder(folder: Path, *, device: torch.device, dtype: torch.dtype, **size: Any) -> AudexWorkload:
    """A checkpoint's own weights."""
    model = load_model(folder, device=device, dtype=dtype)
    return AudexWorkload(model=model, rule=row_rule(model.lm, device, dtype), **size)


def _released_tokens() -> tokens.TokenSpace:
    size, offset = phases.XCODEC1_CODEBOOK_SIZE, phases.AUDEX_AUDIOCODEC_TOKEN_OFFSET
    return tokens.TokenSpace(
        speech=tokens.TokenBlock(offset=tokens.SPEECHCODEC_TOKEN_OFFSET, size=tokens.SPEECHCODEC_VOCAB_SIZE),
        audio=tokens.TokenBlock(offset=offset, size=phases.AUDEX_AUDIOCODEC_VOCAB_SIZE),
        phases=[list(range(offset + p * size, offset + (p + 1) * size)) for p in range(phases.XCODEC1_NUM_CODEBOOKS)],
        audiogen_end=phases.AUDEX_AUDIOGEN_END_TOKEN_ID,
        speechgen_end=tokens.SPEECHGEN_END_TOKEN_ID,
        sound=29,
        sound_start=30,
        sound_end=31,
        unk=0,
        eos=EOS,
    )
