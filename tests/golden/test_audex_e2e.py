"""Whole-model runs on the miniature checkpoint in the released folder layout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from oscine.engine.engine import Engine
from oscine.errors import InvalidRequest
from oscine.families.audex.codec.speech_decoder import SpeechSession
from oscine.families.audex.family import AudexFamily
from oscine.families.audex.frontend import cut_clips, log_mel, normalize
from oscine.families.audex.jobs import CODEC_CAP, JobMaker, LMJob
from oscine.families.audex.phases import PhaseTable
from oscine.families.audex.prompt import Kind, PromptEncoder, audio_prompt, generation_prompt, null_prompt
from oscine.families.audex.sampling import Sampling, blend
from oscine.families.audex.steps import AudexStepModel
from oscine.families.audex.weights.loading import AudexModel, load_model
from oscine.runtime.exact import RowRule
from oscine.types import AudioChunk, Done, Event, Job, Request
from tests.golden.audex_fixtures import check, fixtures, read

IDS_TOL, WAV_TOL, LOGITS_TOL = 0.0, 5e-5, 5e-5
GREEDY = Sampling(temperature=0.0)
CHUNK_FRAMES = 5
USUAL_SCALE = {"tts": 1.5, "tta": 3.0}
LIMIT = 4096


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a run is asked for: `tts` or `tta`, then `_cfg` (of the task's usual scale) or `_cfg<scale>`, `_cap<n>`."""

    kind: Kind
    scale: float = 1.0
    limit: int = LIMIT
    cap: int = CODEC_CAP

    @classmethod
    def named(cls, name: str, setup: Setup) -> Run:
        kind, *parts = name.split("_")
        scale, cap = 1.0, CODEC_CAP
        for part in parts:
            word, number = part[:3], part[3:]
            assert kind in USUAL_SCALE, f"no test for run {name}"
            assert word in ("cfg", "cap"), f"no test for run {name}"
            if word == "cfg":
                scale = float(number) if number else USUAL_SCALE[kind]
            else:
                cap = int(number)
        stated, tokens = setup.data["runs"][name], setup.model.tokens
        ended = stated["last"] in (*tokens.eos, tokens.speechgen_end, tokens.audiogen_end)
        return cls(kind=cast(Kind, kind), scale=scale, limit=LIMIT if ended else stated["n_tokens"], cap=cap)


@dataclass(frozen=True, kw_only=True)
class Setup:
    data: dict[str, Any]
    t: dict[str, Tensor]
    model: AudexModel
    maker: JobMaker


@cache
def setup_of(path: Path) -> Setup:
    folders = sorted(path.parent.glob("tiny_audex*"))
    own = path.parent / f"tiny_audex{path.stem.removeprefix('e2e')}"
    folder = own if own in folders else folders[0]
    model = load_model(folder, device=torch.device("cpu"), dtype=torch.float32)
    if model.tower is None or model.xcodec is None:
        pytest.skip(f"{folder.name} has no {'audio tower' if model.tower is None else 'XCodec1'}")
    maker = JobMaker(
        PromptEncoder(model.tokenizer),
        model.tokens,
        max_positions=model.lm.config.max_position_embeddings,
        rows_per_clip=model.tower.audio_encoder.config.num_embeddings,
    )
    return Setup(
        data=json.loads(path.read_text()), t=read(path.with_suffix(".safetensors"))[0], model=model, maker=maker
    )


def setups(golden_root: Path) -> Iterator[Setup]:
    for path in fixtures(golden_root, "e2e*.json"):
        yield setup_of(path)


def token_ids(setup: Setup, text: str) -> list[int]:
    return list(setup.model.tokenizer.encode(text).ids)


def drive(model: AudexModel, job: LMJob) -> tuple[list[int], list[Any]]:
    """(tokens, frames) of one job stepped to its end."""
    steps = AudexStepModel(model, RowRule(least=2, most=15))
    job_ = Job(id="x", inputs=job, seed=0, max_frames=job.max_new_tokens, memory=0)
    steps.admit(job_)
    tokens, frames = steps._slots["x"].tokens, []
    while True:
        (out,) = steps.step([job_])
        assert out.error is None
        frames += out.frames
        if out.finish:
            return list(tokens), frames


def job_of(setup: Setup, run: Run) -> LMJob:
    text = setup.data["texts"][run.kind]
    job = setup.maker.generate(
        run.kind,
        generation_prompt(run.kind, text),
        sampling=GREEDY,
        cfg_scale=run.scale,
        max_new_tokens=run.limit,
    )
    return LMJob(**{**vars(job), "codec_cap": run.cap})


def test_layout(golden_root: Path) -> None:
    for setup in setups(golden_root):
        layout, tokens = setup.data["layout"], setup.model.tokens
        vocab = setup.model.tokenizer.get_vocab()
        assert setup.model.lm.config.vocab_size == layout["vocab_size"]
        assert len(vocab) == layout["tokens"]
        assert (tokens.speech.offset, tokens.speech.size) == (layout["speechcodec_offset"], layout["speechcodec_count"])
        assert (tokens.audio.offset, tokens.audio.size) == (layout["audiocodec_offset"], layout["audiocodec_count"])
        for marker in (key for key in layout if key.startswith("<")):
            assert vocab[marker] == layout[marker]
        assert tokens.audiogen_end == layout["<audiogen_end>"]
        assert tokens.speechgen_end == layout["<speechgen_end>"]


def test_prompts(golden_root: Path) -> None:
    for setup in setups(golden_root):
        encoder = setup.maker.encoder
        for case in setup.data["prompts"]:
            if "error" in case:
                assert case["error"] == "ValueError"
                with pytest.raises(InvalidRequest) as raised:
                    generation_prompt(case["kind"], case["text"])
                assert isinstance(raised.value, ValueError)
                continue
            prompt = generation_prompt(case["kind"], case["text"])
            assert prompt.text == case["cond"]
            ids = encoder.encode(prompt)
            assert ids == case["cond_ids"]
            assert encoder.guided(case["kind"], ids) == case["null_ids"]
            text = null_prompt(case["kind"], len(ids), partial(token_ids, setup))
            assert (text, text.count("<unk>")) == (case["null"], case["n_unk"])


def test_unreachable_null_prompts(golden_root: Path) -> None:
    def length(text: str) -> list[int]:
        return [0] * (len(text.replace("<unk>", "uu")))

    for setup in setups(golden_root):
        for case in setup.data["null_prompt_two_char_unk"]:
            assert case["error"] == "ValueError"
            target = len(length(generation_prompt("tts", case["text"]).text))
            with pytest.raises(ValueError, match="null prompt"):
                null_prompt("tts", target, length)


def test_prompt_ids(golden_root: Path) -> None:
    for setup in setups(golden_root):
        for letter, kind in (("T", "tts"), ("A", "tta")):
            job = job_of(setup, Run(kind=kind, scale=2.0))  # type: ignore[arg-type]
            assert list(job.prompt_ids) == setup.t[f"ids.c{letter}"].tolist()
            assert list(job.null_ids or ()) == setup.t[f"ids.n{letter}"].tolist()


@torch.inference_mode()
def test_runs(golden_root: Path) -> None:
    for setup in setups(golden_root):
        for name, stated in setup.data["runs"].items():
            run = Run.named(name, setup)
            tokens, frames = drive(setup.model, job_of(setup, run))
            assert tokens == setup.t[f"{name}.tokens"].tolist(), name
            assert (len(tokens), tokens[-1]) == (stated["n_tokens"], stated["last"])
            if run.kind == "tta":
                check(f"{name}.codec_ids", torch.tensor(frames), setup.t[f"{name}.codec_ids"], IDS_TOL)
                assert setup.model.xcodec is not None
                check(f"{name}.wav", setup.model.xcodec.decode_ids(frames), setup.t[f"{name}.wav"], WAV_TOL)
                continue
            assert frames == setup.t[f"{name}.frames"].tolist(), name
            session = SpeechSession(setup.model.speech_decoder, CHUNK_FRAMES)
            chunks = session.push(frames) + session.flush()
            assert [len(chunk) for chunk in chunks] == setup.t[f"{name}.chunk_samples"].tolist()
            check(f"{name}.wav", torch.cat(chunks), setup.t[f"{name}.wav"], WAV_TOL)


def test_runs_through_the_engine(golden_root: Path) -> None:
    """The family's own path: same audio, all runs at once, whatever the decoder's chunks."""
    for setup in setups(golden_root):
        family = AudexFamily(setup.model, RowRule(least=2, most=15), name="tiny")
        runs = {name: Run.named(name, setup) for name in setup.data["runs"]}
        runs = {name: run for name, run in runs.items() if run.cap == CODEC_CAP}
        jobs = []
        for name, run in runs.items():
            request = Request(
                task="sound" if run.kind == "tta" else "speech",
                text=setup.data["texts"][run.kind],
                temperature=0.0,
                cfg_scale=run.scale,
                max_new_tokens=run.limit,
            )
            jobs += family.prepare(request, name).jobs
        engine, events = Engine(), [SimpleQueue[Event]() for _ in jobs]
        engine.submit(family, [(job, queue.put) for job, queue in zip(jobs, events, strict=True)])
        for name, queue in zip(runs, events, strict=True):
            chunks = []
            while isinstance(event := queue.get(timeout=60), AudioChunk):
                chunks.append(torch.from_numpy(event.samples))
            assert isinstance(event, Done), f"{name}: {event}"
            check(name, torch.cat(chunks), setup.t[f"{name}.wav"], WAV_TOL)
        engine.close()


@torch.inference_mode()
def test_step_logits(golden_root: Path) -> None:
    """The two lanes' raw logits at a step, and what the draw sees: the blend, masked for text to audio."""
    for setup in setups(golden_root):
        keys = sorted(key.removesuffix(".raw") for key in setup.t if key.endswith(".raw"))
        assert keys
        for key in keys:
            name, number = key.split(".step")
            run, done = Run.named(name, setup), setup.t[f"{name}.tokens"][: int(number)]
            job, lm = job_of(setup, run), setup.model.lm
            rows = []
            for ids in (job.prompt_ids, job.null_ids):
                assert ids is not None
                lane = lm.new_lane(8)
                hidden = lm.prefill(lm.embed(torch.tensor(ids)), lane)[-1]
                for token in done:
                    hidden = lm.decode(token.expand(2), [lane])[0]
                rows.append(lm.logits(hidden))
            check(f"{key}.raw", torch.stack(rows), setup.t[f"{key}.raw"], LOGITS_TOL)
            blended = blend(rows[0], rows[1], run.scale).repeat(2, 1)
            if run.kind == "tta":
                tokens = setup.model.tokens
                table = PhaseTable(tokens.phases, tokens.audiogen_end, blended.shape[1], blended.device)
                table.mask(blended, [0], [PhaseTable.row(len(done), run.cap)])
            expected = setup.t[f"{key}.processed"]
            assert torch.equal(blended.isinf(), expected.isinf())
            check(f"{key}.processed", blended.nan_to_num(neginf=0), expected.nan_to_num(neginf=0), LOGITS_TOL)


@torch.inference_mode()
def test_audio_question(golden_root: Path) -> None:
    for setup in setups(golden_root):
        qa, t = setup.data["qa"], setup.t
        prompt = audio_prompt(qa["question"])
        assert prompt.text == qa["prompt"]
        mel = log_mel(cut_clips(normalize(t["qa.wave"].numpy())))
        assert setup.model.tower is not None
        check("qa.audio_embeds", setup.model.tower(mel).flatten(0, 1), t["qa.audio_embeds"], LOGITS_TOL)
        job = setup.maker.answer(prompt, sampling=GREEDY, max_new_tokens=len(t["qa.tokens"]), mel=mel)
        assert list(job.prompt_ids) == t["qa.prompt_ids"].tolist()
        assert len(job.prompt_ids) == qa["n_prompt"]
        tokens, frames = drive(setup.model, job)
        assert tokens == frames == t["qa.tokens"].tolist()
        lm, sound = setup.model.lm, setup.model.tokens.sound
        ids = t["qa.prompt_ids"]
        embeddings = lm.embed(ids)
        embeddings[ids == sound] = t["qa.audio_embeds"]
        logits = lm.logits(lm.prefill(embeddings, lm.new_lane(len(ids)))[-1])
        check("qa.first_logits", logits, t["qa.first_logits"], LOGITS_TOL)
