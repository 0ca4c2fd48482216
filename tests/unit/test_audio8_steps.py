"""The step model's promises: restart points, kept prefixes, continuation, limits, and errors of one job alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from oscine.errors import BadAudio, GenerationError, InputTooLong, InvalidRequest, UnsupportedFeature
from oscine.families.audio8.backends.eager import EagerBackend
from oscine.families.audio8.codec.codec import Codec
from oscine.families.audio8.codec.config import CodecConfig
from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.prompt import PromptIds
from oscine.families.audio8.rows import Sampling
from oscine.families.audio8.slots import Audio8Inputs
from oscine.families.audio8.steps import Audio8StepModel, job_bytes
from oscine.types import AudioInput, Job, StepOut
from tests.audio8_toys import TINY, lm_config, random_backend, random_job, random_lm

GREEDY = Sampling(do_sample=False)


@pytest.fixture(params=["dense", "hybrid"])
def config(request: pytest.FixtureRequest) -> LMConfig:
    return lm_config(TINY, hybrid=request.param == "hybrid")


@pytest.fixture
def steps(config: LMConfig) -> Audio8StepModel:
    return Audio8StepModel(random_backend(config))


def take(steps: Audio8StepModel, job: Job, count: int) -> list[StepOut]:
    return [steps.step([job])[0] for _ in range(count)]


def frames(outs: Sequence[StepOut]) -> torch.Tensor:
    assert all(out.error is None for out in outs)
    return torch.stack([frame for out in outs for frame in out.frames])


def run(steps: Audio8StepModel, job: Job, count: int) -> torch.Tensor:
    steps.admit(job)
    result = frames(take(steps, job, count))
    steps.release(job)
    return result


def test_a_frame_a_step_from_the_prompt_on(steps: Audio8StepModel, config: LMConfig) -> None:
    job = random_job(config, 1, min_new_frames=5)
    steps.admit(job)
    assert steps.batch_key(job) == ("prefill",)
    assert steps.max_batch(("prefill",)) == 1
    outs = take(steps, job, 5)
    assert [len(out.frames) for out in outs] == [1] * 5
    assert steps.batch_key(job) == ("decode",)
    codes = frames(outs)
    assert codes.dtype == torch.int64
    assert codes.shape == (5, config.num_codebooks)
    assert 0 <= int(codes.min()) <= int(codes.max()) < config.codebook_size


def test_the_seed_alone_decides(steps: Audio8StepModel, config: LMConfig) -> None:
    def with_seed(seed: int, sampling: Sampling) -> torch.Tensor:
        job = random_job(config, 3, sampling=sampling, min_new_frames=6)
        job.seed = seed
        return run(steps, job, 6)

    warm = Sampling(temperature=1.0, top_k=0, top_p=1.0)
    assert torch.equal(with_seed(1, warm), with_seed(1, warm))
    assert not torch.equal(with_seed(1, warm), with_seed(2, warm))
    assert torch.equal(with_seed(1, GREEDY), with_seed(2, GREEDY))
    cold = Sampling(temperature=0.0, top_k=0, top_p=1.0)
    retry = random_job(config, 3, sampling=warm, min_new_frames=6)
    retry.seed, retry.attempt = 1, 1
    assert not torch.equal(run(steps, retry, 6), with_seed(1, warm))
    assert with_seed(1, cold).shape == (6, config.num_codebooks)


def test_restoring_brings_back_the_same_frames(steps: Audio8StepModel, config: LMConfig) -> None:
    """After a restart with the generator's state of that moment, everything repeats, with rows moved in between."""
    other, job = random_job(config, 8, min_new_frames=30), random_job(config, 9, min_new_frames=30)
    for each in (other, job):
        steps.admit(each)
        take(steps, each, 1)
    take(steps, job, 3)
    point = steps.snapshot(job)
    state = steps._slots[job].generator.get_state()
    first = frames(take(steps, job, 5))
    steps.release(other)
    steps.restore(job, point, seed=5)
    other_seed = frames(take(steps, job, 5))
    steps.restore(job, point, seed=0)
    steps._slots[job].generator.set_state(state)
    assert torch.equal(frames(take(steps, job, 5)), first)
    steps.restore(job, point, seed=5)
    assert torch.equal(frames(take(steps, job, 5)), other_seed)
    assert not torch.equal(first, other_seed)


def test_restoring_the_start_runs_the_prompt_again(steps: Audio8StepModel, config: LMConfig) -> None:
    job = random_job(config, 11, min_new_frames=9)
    steps.admit(job)
    start = steps.snapshot(job)
    first = frames(take(steps, job, 4))
    steps.restore(job, start, seed=job.seed)
    assert steps.batch_key(job) == ("prefill",)
    assert torch.equal(frames(take(steps, job, 4)), first)


def test_a_kept_prefix_gives_the_same_bits(config: LMConfig) -> None:
    steps, without = (Audio8StepModel(random_backend(config), prefix_store_bytes=n) for n in (2**20, 0))
    jobs = [random_job(config, 20, num_reference=9, num_text=n, min_new_frames=9) for n in (4, 11)]
    voice = jobs[0].inputs
    jobs[1].inputs = replace(jobs[1].inputs, prompt=replace(jobs[1].inputs.prompt, before=voice.prompt.before))
    jobs[1].inputs = replace(jobs[1].inputs, reference=voice.reference)
    assert torch.equal(run(steps, jobs[0], 4), run(without, jobs[0], 4))
    assert len(steps._prefixes) == 1
    assert torch.equal(run(steps, jobs[1], 4), run(without, jobs[1], 4))
    assert len(steps._prefixes) == 1
    assert len(without._prefixes) == 0


def test_a_job_that_continues_another_takes_its_frames(steps: Audio8StepModel, config: LMConfig) -> None:
    before, job = random_job(config, 30, num_reference=0), random_job(config, 31, num_reference=0, min_new_frames=9)
    before.frames = list(run(steps, before, 4))
    given = random_job(config, 31, num_reference=0, min_new_frames=9)
    given.inputs = replace(given.inputs, reference=torch.stack(before.frames, dim=1).numpy())
    job.after = before
    assert torch.equal(run(steps, job, 4), run(steps, given, 4))
    before.frames = []
    steps.admit(job)
    out = steps.step([job])[0]
    assert isinstance(out.error, GenerationError)


def test_end_of_speech_waits_for_the_least_number_of_frames(config: LMConfig) -> None:
    """A model that always ends: at once, or after as many frames as asked for."""
    backend = EagerBackend(random_lm(config, seed=77))
    logits_of = backend.compact_logits
    steps = Audio8StepModel(backend)
    backend.compact_logits = lambda final: ends(logits_of(final))  # type: ignore[method-assign]

    def ends(logits: torch.Tensor) -> torch.Tensor:
        logits[:, -1] = 1000
        return logits

    for least in (0, 1, 3):
        for sampling in (GREEDY, Sampling()):
            job = random_job(config, 40, min_new_frames=least, sampling=sampling)
            steps.admit(job)
            outs = take(steps, job, least + 1)
            assert [len(out.frames) for out in outs] == [1] * least + [0]
            assert [out.finish for out in outs] == [None] * least + ["stop"]
            steps.release(job)


def test_the_models_length_ends_a_job(steps: Audio8StepModel, config: LMConfig) -> None:
    job = random_job(config, 50, num_text=config.max_seq_len - 5 - 3, num_reference=0, min_new_frames=99)
    steps.admit(job)
    outs = take(steps, job, 3)
    assert [out.finish for out in outs] == [None, None, "length"]
    assert all(len(out.frames) == 1 for out in outs)


def test_what_cannot_fit_is_refused_before_any_work(steps: Audio8StepModel, config: LMConfig) -> None:
    with pytest.raises(InputTooLong, match=f"at most {config.max_seq_len - 1}"):
        steps.admit(random_job(config, 51, num_text=config.max_seq_len - 5, num_reference=0))
    steps.admit(random_job(config, 51, num_text=config.max_seq_len - 6, num_reference=0))


@pytest.mark.parametrize("codes", [np.zeros((2, 3), int), np.zeros((4, 0), int), np.full((4, 2), 32), np.zeros((4, 2))])
def test_bad_reference_codes(config: LMConfig, codes: np.ndarray) -> None:
    steps = Audio8StepModel(random_backend(config))
    job = random_job(config, 52)
    job.inputs = replace(job.inputs, reference=codes)
    with pytest.raises(InvalidRequest, match="reference codes must be integers"):
        steps.admit(job)
    steps.release(job)


def test_inputs_of_another_family_are_refused(steps: Audio8StepModel) -> None:
    with pytest.raises(GenerationError, match="another family"):
        steps.admit(Job(id="x", inputs="text", seed=0, max_frames=1, memory=0))


TINY_CODEC = CodecConfig(
    encoder_dim=4, encoder_rates=(2, 4), encoder_transformer_layers=(0, 0), latent_dim=16, decoder_dim=16,
    decoder_rates=(4, 2), transformer_head_dim=8, semantic_codebook_size=32, n_residual_codebooks=3,
    residual_codebook_size=16, codebook_dim=4, pre_n_layer=1, pre_n_head=2, pre_intermediate_size=16, post_n_layer=1,
    post_n_head=2, post_n_local_heads=1, post_intermediate_size=16, quantizer_window=5,
)  # fmt: skip


def reference_job(config: LMConfig, audio: AudioInput, seed: int = 60) -> Job:
    inputs = Audio8Inputs(prompt=PromptIds(before=(5, 6), after=(7, 8)), reference=audio, min_new_frames=9)
    return Job(id=f"ref {seed}", inputs=inputs, seed=seed, max_frames=9, memory=0)


def test_reference_audio_is_encoded_once(config: LMConfig) -> None:
    torch.manual_seed(0)
    codec = Codec(TINY_CODEC).eval()
    steps = Audio8StepModel(random_backend(config), codec)
    samples = np.sin(np.arange(300, dtype=np.float32) / 5)
    audio = AudioInput(samples=samples, sample_rate=44100)
    job = reference_job(config, audio)
    steps.admit(job)
    assert steps.batch_key(job) == ("encode",)
    assert steps.step([job])[0] == StepOut()
    assert steps.batch_key(job) == ("prefill",)
    spoken = frames(take(steps, job, 3))
    steps.release(job)
    again = reference_job(config, AudioInput(samples=samples.copy(), sample_rate=44100))
    steps.admit(again)
    assert steps.batch_key(again) == ("prefill",)
    assert torch.equal(frames(take(steps, again, 3)), spoken)
    codes = steps.encode_reference(audio)
    assert codes.shape == (4, -(-300 // TINY_CODEC.frame_length))
    by_codes = reference_job(config, audio)
    by_codes.inputs = replace(by_codes.inputs, reference=codes.numpy())
    assert torch.equal(run(steps, by_codes, 3), spoken)


@pytest.mark.parametrize(
    "audio",
    [
        AudioInput(samples=np.zeros(0, np.float32), sample_rate=44100),
        AudioInput(samples=np.full(9, np.nan, np.float32), sample_rate=44100),
        AudioInput(samples=np.zeros(9, np.float32), sample_rate=24000),
    ],
)
def test_audio_that_cannot_be_encoded_fails_its_job_alone(config: LMConfig, audio: AudioInput) -> None:
    steps = Audio8StepModel(random_backend(config), Codec(TINY_CODEC).eval())
    job, good = reference_job(config, audio), random_job(config, 61)
    for each in (job, good):
        steps.admit(each)
    assert isinstance(steps.step([job])[0].error, BadAudio)
    steps.release(job)
    assert len(frames(take(steps, good, 2))) == 2


def test_audio_without_a_codec_is_refused(steps: Audio8StepModel, config: LMConfig) -> None:
    audio = AudioInput(samples=np.zeros(9, np.float32), sample_rate=44100)
    with pytest.raises(UnsupportedFeature, match="takes no reference audio"):
        steps.admit(reference_job(config, audio))


def test_memory_covers_what_the_cache_allocates(config: LMConfig) -> None:
    steps = Audio8StepModel(random_backend(config))
    jobs = [random_job(config, 70 + i, max_frames=10_000, min_new_frames=99) for i in range(5)]
    promised = len(jobs) * job_bytes(config, torch.float32, steps.rule, 10)
    for job in jobs:
        steps.admit(job)
        take(steps, job, 1)
    cache = steps._table.cache
    allocated = sum(layer.numel() * layer.element_size() for layer in cache.layers)
    allocated += sum(part.numel() * part.element_size() for part in cache.states.tensors.values())
    padding = cache.rows - len(jobs)
    assert padding < max(2, steps.rule.rows.least)
    assert allocated * len(jobs) / cache.rows <= promised


def test_half_precision_runs_and_stays_close(config: LMConfig) -> None:
    """bfloat16 has no bit promise; its logits after a prompt are near the float32 ones, and generation works."""
    logits = []
    for dtype in (torch.float32, torch.bfloat16):
        steps = Audio8StepModel(random_backend(config, dtype=dtype))
        job = random_job(config, 80, min_new_frames=9)
        assert run(steps, job, 4).shape == (4, config.num_codebooks)
        columns = torch.zeros(1, config.num_codebooks + 1, 12, dtype=torch.long)
        columns[0, 0] = torch.arange(20, 32)
        with torch.inference_mode():
            steps._table.ensure(1, 64)
            steps._table.cache.begin(0)
            final, _ = steps.backend.advance(columns, torch.arange(12)[None], steps._table.cache, slice(0, 1), 64)
            logits.append(steps.backend.compact_logits(final))
    assert logits[1].dtype == torch.float32
    assert float((logits[1] - logits[0]).norm() / logits[0].norm()) < 0.05
