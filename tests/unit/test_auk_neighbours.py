"""What a request gets never depends on its neighbours, and streamed samples are the whole ones, on the CPU."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from oscine.engine.engine import Engine, EngineOptions
from oscine.errors import NonFiniteOutput
from oscine.families import load_family
from oscine.families.auk import AuKTransformer
from oscine.families.auk.family import AuKFamily, load_parts
from oscine.families.auk.weights.folder import open_folder
from oscine.runtime.exact import many_rows
from oscine.types import AudioChunk, AudioInput, Done, Edit, Event, Failed, Job, Request, Samples
from tests.unit.auk_factory import RELEASED_ARCH, write_released

RATE = 24000


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> AuKFamily:
    return load(write_released(tmp_path_factory.mktemp("auk")))


def load(folder: Path) -> AuKFamily:
    family = load_family(folder, name="tiny", device=torch.device("cpu"), dtype=torch.float32)
    assert isinstance(family, AuKFamily)
    return family


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(EngineOptions(memory_bytes=1 << 40))
    yield engine
    engine.close()


def clip(seconds: float, seed: int, rate: int = RATE) -> AudioInput:
    noise = np.random.default_rng(seed).standard_normal(int(seconds * rate)).astype(np.float32)
    return AudioInput(samples=noise * np.float32(0.1), sample_rate=rate)


REQUESTS = (
    Request(text="Hello there, how are you?", seed=1, duration_s=0.5, num_steps=3),
    Request(text="Welcome home.", ref_audio=clip(0.7, 1), ref_text="Some words.", seed=2, duration_s=0.32, num_steps=5),
    Request(task="edit", audio=clip(0.4, 2, 16000), edit=Edit(name="denoise"), seed=3, num_steps=4, cfg_scale=0.0),
    Request(text="Hi", instructions="an old man", seed=4, duration_s=0.02, num_steps=2, cfg_scale=0.0),
    Request(task="edit", audio=clip(0.3, 3), instructions="Do what you like.", seed=5, duration_s=0.9, num_steps=3),
)


def jobs(family: AuKFamily, requests: Sequence[Request]) -> list[Job]:
    return [family.prepare(request, f"r{index}").jobs[0] for index, request in enumerate(requests)]


def run(engine: Engine, family: AuKFamily, batch: Sequence[Job]) -> list[list[Samples]]:
    """Chunks of every job, all submitted at once."""
    sinks: list[queue.SimpleQueue[Event]] = [queue.SimpleQueue() for _ in batch]
    engine.submit(family, [(job, sink.put) for job, sink in zip(batch, sinks, strict=True)])
    return [collect(sink) for sink in sinks]


def collect(sink: queue.SimpleQueue[Event]) -> list[Samples]:
    chunks: list[Samples] = []
    while isinstance(event := sink.get(timeout=60), AudioChunk):
        chunks.append(event.samples)
    assert isinstance(event, Done), event
    assert event.finish_reason == "stop"
    return chunks


def whole(chunks: list[Samples]) -> Samples:
    return np.concatenate(chunks)


@pytest.fixture(scope="module")
def alone(family: AuKFamily) -> list[Samples]:
    engine = Engine(EngineOptions(memory_bytes=1 << 40))
    try:
        return [whole(run(engine, family, [job])[0]) for job in jobs(family, REQUESTS)]
    finally:
        engine.close()


def test_neighbours_of_every_kind_change_nothing(family: AuKFamily, engine: Engine, alone: list[Samples]) -> None:
    """Other lengths, texts, clips, grids and guidance in one batch: the same bits."""
    for got, expected in zip(run(engine, family, jobs(family, REQUESTS)), alone, strict=True):
        np.testing.assert_array_equal(whole(got), expected)


def test_neighbours_that_come_and_go_change_nothing(family: AuKFamily, alone: list[Samples]) -> None:
    """Jobs join one by one in the midst of others' grids, in another order, and one is dropped."""
    steps = family.step_model()
    waiting, dropped = list(reversed(jobs(family, REQUESTS))), jobs(family, REQUESTS[:1])[0]
    dropped.id = "dropped"
    steps.admit(dropped)
    steps.step([dropped])
    running, sizes, latents = [dropped], set(), {}
    while waiting or running:
        if waiting:
            steps.admit(waiting[-1])
            steps.step([waiting[-1]])
            running.append(waiting.pop())
        if dropped in running and not waiting:
            running.remove(dropped)
            steps.release(dropped)
        sizes.add(len(running))
        for job, out in zip(list(running), steps.step(running), strict=True):
            assert out.error is None
            if out.finish:
                latents[job.id] = out.frames
                running.remove(job)
                steps.release(job)
            elif job is dropped:
                assert not out.frames
    assert max(sizes) > 2
    for index, expected in enumerate(alone):
        job = next(job for job in jobs(family, REQUESTS) if job.id == f"r{index}.0")
        decoder, frames, parts = family.open_decoder(job), list(latents[job.id]), []
        for size in (*family.chunk_sizes(), *[family.chunk_sizes()[-1]] * 99):
            if frames:
                parts.append(decoder.push(frames[:size]))
                frames = frames[size:]
        np.testing.assert_array_equal(whole([*parts, decoder.flush()]), expected)


def test_streamed_audio_leaves_early_and_equals_the_whole_decode(family: AuKFamily, engine: Engine) -> None:
    request = Request(text="Hello there.", seed=1, duration_s=3.0, num_steps=1)
    [job] = jobs(family, [request])
    [chunks] = run(engine, family, [job])
    assert len(chunks) > 2
    assert 0 < len(chunks[0]) <= family.chunk_sizes()[0] * 480
    decoded = family._vae.decode(torch.stack(job.frames)[None])[0].numpy()
    assert sum(map(len, chunks)) == len(decoded) == job.max_frames * 480
    np.testing.assert_allclose(whole(chunks), decoded, rtol=0, atol=1e-5 * float(np.abs(decoded).max()))


def test_a_seed_repeats_and_another_differs(family: AuKFamily, engine: Engine) -> None:
    request = Request(text="Hello.", seed=7, duration_s=0.3, num_steps=2)
    other = Request(text="Hello.", seed=8, duration_s=0.3, num_steps=2)
    first, again, different = (whole(run(engine, family, jobs(family, [r]))[0]) for r in (request, request, other))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, different)


def test_snapshot_and_restore_start_again_with_other_noise(family: AuKFamily) -> None:
    steps = family.step_model()
    [job] = jobs(family, [Request(text="Hello.", seed=7, duration_s=0.3, num_steps=2)])
    steps.admit(job)
    assert steps.snapshot(job) is None
    steps.step([job])
    steps.step([job])
    steps.restore(job, steps.snapshot(job), 99)
    outs = [steps.step([job])[0] for _ in range(2)]
    assert [out.finish for out in outs] == [None, "stop"]
    steps.release(job)
    steps.admit(job)  # released, so it can come again
    steps.release(job)


def test_parts_loaded_in_turn_give_the_same(tmp_path: Path, alone: list[Samples], engine: Engine) -> None:
    """The transformer leaves for the encoder and comes back; requests in flight do not notice."""
    parts = open_folder(write_released(tmp_path))
    family = load_parts(parts, name="tiny", device=torch.device("cpu"), dtype=torch.float32, resident=False)
    holder = family.step_model()._holder
    for got, expected in zip(run(engine, family, jobs(family, REQUESTS)), alone, strict=True):
        np.testing.assert_array_equal(whole(got), expected)
    assert holder.in_memory
    [job] = jobs(family, [Request(text="Words not heard before.", duration_s=0.1, num_steps=1)])
    family.step_model().admit(job)
    family.step_model().step([job])
    assert not holder.in_memory
    assert family._conditioner._thinker is None


def test_infinite_latents_fail_the_job_by_name(tmp_path: Path) -> None:
    family = load(write_released(tmp_path))
    family.step_model()._holder.get().proj_out.bias.fill_(float("inf"))
    [job] = jobs(family, REQUESTS[:1])
    steps = family.step_model()
    steps.admit(job)
    outs = [steps.step([job])[0] for _ in range(1 + REQUESTS[0].num_steps)]  # type: ignore[operator]
    assert isinstance(outs[-1].error, NonFiniteOutput)
    assert not outs[-1].frames


@pytest.mark.parametrize("part", ["condition", "reference"])
def test_a_broken_encoder_output_fails_its_job_alone(
    family: AuKFamily, engine: Engine, alone: list[Samples], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """NaN of one request's encoder used to break the evaluation that all requests share."""
    batch, steps = jobs(family, REQUESTS), family.step_model()
    bad = 4
    condition, reference = steps._conditioner.condition, steps._reference

    def spoilt_condition(instruction: str, heard: Samples | None) -> torch.Tensor:
        value = condition(instruction, heard)
        return value * torch.nan if instruction == batch[bad].inputs.instruction else value

    def spoilt_reference(wanted: Samples | None) -> torch.Tensor | None:
        value = reference(wanted)
        return value * torch.nan if value is not None and wanted is batch[bad].inputs.clip else value

    if part == "condition":
        monkeypatch.setattr(steps._conditioner, "condition", spoilt_condition)
    else:
        monkeypatch.setattr(steps, "_reference", spoilt_reference)
    sinks: list[queue.SimpleQueue[Event]] = [queue.SimpleQueue() for _ in batch]
    engine.submit(family, [(job, sink.put) for job, sink in zip(batch, sinks, strict=True)])
    event = sinks[bad].get(timeout=60)
    assert isinstance(event, Failed)
    assert isinstance(event.error, NonFiniteOutput)
    for number, sink in enumerate(sinks):
        if number != bad:
            np.testing.assert_array_equal(whole(collect(sink)), alone[number])


def test_bfloat16_stays_close_alone_and_batched(tmp_path: Path) -> None:
    """No equal bits are promised there; on these miniatures latents stay within 5 % of the float32 ones."""
    folder = write_released(tmp_path)
    wide, narrow = (
        load_family(folder, name="tiny", device=torch.device("cpu"), dtype=dtype)
        for dtype in (torch.float32, torch.bfloat16)
    )
    results = []
    for family in (wide, narrow):
        assert isinstance(family, AuKFamily)
        results.append(run_steps(family, jobs(family, REQUESTS[:3])))
        results.append([run_steps(family, [job])[0] for job in jobs(family, REQUESTS[:3])])
    for row in zip(*results, strict=True):
        expected = row[0]
        for got in row[1:]:
            assert float((got - expected).norm() / expected.norm()) < 0.05


def run_steps(family: AuKFamily, batch: Sequence[Job]) -> list[torch.Tensor]:
    """Latents [frame, latent] of every job, stepped together."""
    steps, running, done = family.step_model(), list(batch), {}
    for job in batch:
        steps.admit(job)
        steps.step([job])
    while running:
        for job, out in zip(list(running), steps.step(running), strict=True):
            if out.finish:
                done[job.id] = torch.stack(list(out.frames))
                running.remove(job)
                steps.release(job)
    return [done[job.id] for job in batch]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("threads", [1, 2])
def test_neighbours_change_nothing_at_the_released_width(threads: int) -> None:
    """Two blocks of the released width: with several threads, products of many rows differ unless they are cut."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    try:
        with torch.device("cpu"):
            dit = AuKTransformer(**{**RELEASED_ARCH, "num_layers": 1, "num_single_layers": 1}, latent_dim=64)
        dit.row_rule = many_rows(dit.packed_linears())
        rows, xs, contexts = dit.modulation_table(torch.tensor([0.1, 0.5, 0.9])), [], []
        for frames, ref, tokens, guided in ((250, 0, 60, True), (33, 120, 41, False), (7, 0, 29, True)):
            xs.append(torch.randn(frames, 64, generator=generator))
            text = torch.randn(1, tokens, RELEASED_ARCH["text_hidden_dim"], generator=generator)
            clip_latents = torch.randn(1, ref, 64, generator=generator)
            contexts.append(dit.prepare(text, target_len=frames, ref=clip_latents, cfg_infer=guided))
        alone = [dit.step_packed([xs[i]], [contexts[i]], rows[i : i + 1])[0] for i in range(3)]
        order = [2, 0, 1]
        batch = dit.step_packed([xs[i] for i in order], [contexts[i] for i in order], rows[order])
        assert all(torch.equal(alone[i], out) for i, out in zip(order, batch, strict=True))
    finally:
        torch.set_num_threads(before)
