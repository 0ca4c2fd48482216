"""The compiled steps give what the simple path gives, every library of them, and keep rows apart bit for bit."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from oscine.families.audio8.backends import native
from oscine.families.audio8.backends.native import native_backend, num_weights
from oscine.families.audio8.backends.protocol import Backend, SamplingRows, noise_size
from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model.cache import cache_shape
from oscine.families.audio8.rows import Sampling
from oscine.families.audio8.steps import Audio8StepModel
from oscine.kernels.compiled import LIBRARIES, open_library
from oscine.runtime.cache import SequenceCache
from oscine.runtime.sampling import Truncation, truncation
from tests.audio8_toys import MIDDLE, TINY, lm_config, needs_native, random_backend, random_job, random_lm

pytestmark = needs_native

PLAIN = {
    "attention_qk_norm": False,
    "attention_qkv_bias": True,
    "attention_o_bias": True,
    "fast_attention_o_bias": True,
}
CONFIGS = {
    "tiny": TINY,
    "middle": MIDDLE,
    "biases, no norms": TINY | PLAIN,
    "normed heads, one width": TINY | {"attention_qk_norm": True, "fast_attention_qk_norm": True, "fast_dim": 32},
    "normed input": TINY | {"norm_fastlayer_input": True},
    "a window of repetitions": TINY | {"ras_window_size": 5},
    "none": TINY | {"ras_window_size": 0},
}


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> LMConfig:
    return lm_config(CONFIGS[request.param])


def libraries() -> list[str]:
    """The suffixes of the compiled libraries this processor can run."""
    folder = Path(native.__file__).parent
    suffixes = LIBRARIES.get(torch.backends.cpu.get_cpu_capability(), ("",))
    return [suffix for suffix in suffixes if (folder / f"libnative{suffix}.so").is_file()]


def library_of(suffix: str) -> ctypes.CDLL | None:
    return open_library(native.STEM, suffix, native.INTERFACE)


def run(backend: Backend, rows: int = 5, prompt: int = 11) -> tuple[Tensor, Tensor]:
    """Hidden states of a prompt in one row, then of one column in each of several: [1 + rows, dim], twice."""
    config, advance = backend.model.config, backend.advance
    generator = torch.Generator().manual_seed(1)
    cache = SequenceCache(cache_shape(config, torch.float32), "cpu")
    cache.ensure(rows + 2, 64)
    text = torch.zeros(1, config.num_codebooks + 1, prompt, dtype=torch.long)
    text[:, 0] = torch.randint(4, config.semantic_begin_id, (prompt,), generator=generator)
    first = advance(text, torch.arange(prompt)[None], cache, slice(2, 3), 64)
    codes = torch.randint(0, config.codebook_size, (rows, config.num_codebooks), generator=generator)
    columns = torch.cat([codes[:, :1] + config.semantic_begin_id, codes], dim=1)[:, :, None]
    positions = torch.tensor([[0], [prompt], *[[0]] * (rows - 2)])
    second = advance(columns, positions, cache, slice(1, 1 + rows), 64)
    final, hidden = (torch.cat(pair) for pair in zip(first, second, strict=True))
    return final, hidden


def sampling_rows(config: LMConfig, rows: int, seed: int, *, greedy: bool = False) -> SamplingRows:
    """Every row drawn in another way: cold, without cuts, with either cut, with recent ids that must give way."""
    generator = torch.Generator().manual_seed(seed)
    size = config.codebook_size + 1
    kinds = [(0.0, 0, 1.0), (1.3, 0, 1.0), (0.9, 7, 1.0), (0.7, 0, 0.6), (0.15, 20, 0.9), (2.0, 1, 0.5)]
    heat, top_k, top_p = (torch.tensor([kinds[i % len(kinds)][part] for i in range(rows)]) for part in range(3))
    normal = truncation(size, torch.device("cpu"), top_k=top_k, top_p=top_p, temperature=heat)
    high = truncation(size, torch.device("cpu"), top_k=top_k, top_p=0.99, temperature=1.5)
    noise = torch.rand(rows, noise_size(config), generator=generator)
    noise[:, ::50] = 0
    window = torch.arange(config.ras_window_size) * 3 % size
    return SamplingRows(
        normal=None if greedy else normal,
        high=None if greedy else high,
        ras=torch.arange(rows) % 3 > 0,
        recent=window.expand(rows, -1).contiguous(),
        noise=noise,
        end_allowed=None if seed % 2 else torch.arange(rows) % 2 > 0,
    )


@pytest.mark.parametrize("half", [False, True])
@torch.inference_mode()
def test_states_and_frames_are_those_of_the_simple_path(config: LMConfig, half: bool) -> None:
    simple, compiled = (random_backend(config, kind, half=half) for kind in ("eager", "native"))
    expected = run(simple)
    for mine, theirs in zip(run(compiled), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=2e-5)
    final, hidden = (state.repeat(4, 1) for state in expected)
    for seed in range(6):
        rows = sampling_rows(config, final.shape[0], seed, greedy=seed == 5)
        drawn = compiled.draw(final, hidden, rows)
        assert torch.equal(drawn, simple.draw(final, hidden, rows))


@pytest.mark.parametrize("suffix", libraries())
@pytest.mark.parametrize("half", [False, True])
@torch.inference_mode()
def test_every_library_agrees(suffix: str, half: bool) -> None:
    config = lm_config(MIDDLE)
    simple, compiled = random_backend(config, half=half), random_backend.__wrapped__(config, "native", half=half)
    compiled._library = library_of(suffix)
    expected = run(simple)
    for mine, theirs in zip(run(compiled), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=2e-5)
    final, hidden = (state.repeat(2, 1) for state in expected)
    rows = sampling_rows(config, final.shape[0], 0)
    assert torch.equal(compiled.draw(final, hidden, rows), simple.draw(final, hidden, rows))


@pytest.mark.parametrize("half", [False, True])
@torch.inference_mode()
def test_a_row_is_the_same_bits_in_any_company(config: LMConfig, half: bool) -> None:
    steps = random_backend(config, "native", half=half)
    final, hidden = (state.repeat(3, 1) for state in run(random_backend(config)))
    rows = sampling_rows(config, 18, 0)
    together = steps.draw(final, hidden, rows)
    generator = torch.Generator().manual_seed(3)
    columns = torch.randint(0, config.codebook_size, (18, config.num_codebooks + 1, 1), generator=generator)
    columns[:, 0] += config.semantic_begin_id
    columns[::3, 0] = 7
    cache = SequenceCache(cache_shape(config, torch.float32), "cpu")
    cache.ensure(18, 2)
    states = steps.advance(columns, torch.zeros(18, 1, dtype=torch.long), cache, slice(0, 18), 64)
    for start, stop in ((0, 1), (1, 3), (3, 6), (6, 10), (10, 17), (17, 18)):
        part = slice(start, stop)
        own = steps.advance(columns[part], torch.zeros(stop - start, 1, dtype=torch.long), cache, part, 64)
        assert all(torch.equal(mine, theirs[part]) for mine, theirs in zip(own, states, strict=True))
        assert torch.equal(steps.draw(final[part], hidden[part], rows_of(rows, part)), together[part])


def rows_of(rows: SamplingRows, part: slice) -> SamplingRows:
    """Some of the rows, each as it was."""
    normal, high = (
        Truncation(limit=c.limit[part], temperature=c.temperature.expand(18, 1)[part].contiguous())
        for c in (rows.normal, rows.high)
        if c
    )
    allowed = rows.end_allowed
    return SamplingRows(
        normal=normal,
        high=high,
        ras=rows.ras[part],
        recent=rows.recent[part],
        noise=rows.noise[part],
        end_allowed=None if allowed is None else allowed[part],
    )


@torch.inference_mode()
def test_a_prompt_in_pieces_is_the_prompt_in_one() -> None:
    config = lm_config(MIDDLE)
    steps = random_backend(config, "native")
    generator = torch.Generator().manual_seed(5)
    text = torch.zeros(1, config.num_codebooks + 1, 300, dtype=torch.long)
    text[:, 0] = torch.randint(4, config.semantic_begin_id, (300,), generator=generator)
    caches = [SequenceCache(cache_shape(config, torch.float32), "cpu") for _ in range(2)]
    for cache, width in zip(caches, (300, 512), strict=True):
        cache.ensure(2, width)
    whole = steps.advance(text, torch.arange(300)[None], caches[0], slice(0, 1), 300)
    for start, stop in ((0, 1), (1, 64), (64, 299), (299, 300)):
        positions = torch.arange(start, stop)[None]
        own = steps.advance(text[:, :, start:stop], positions, caches[1], slice(1, 2), stop)
    assert all(map(torch.equal, own, whole))


def test_whole_jobs_get_the_frames_of_the_simple_path(config: LMConfig) -> None:
    kinds = [Sampling(do_sample=False), Sampling(temperature=1.2, top_k=0, top_p=1.0), Sampling(temperature=0.5)]
    jobs = [[random_job(config, i, sampling=kinds[i % 3], min_new_frames=9) for i in range(5)] for _ in range(2)]
    for own, kind in zip(jobs, ("eager", "native"), strict=True):
        steps = Audio8StepModel(random_backend(config, kind))
        for job in own:
            steps.admit(job)
            job.frames.extend(steps.step([job])[0].frames)
        for _ in range(7):
            for job, out in zip(own, steps.step(own), strict=True):
                job.frames.extend(out.frames)
        snapshot = steps.snapshot(own[1])
        first = steps.step(own[:2])[1].frames[0]
        steps.restore(own[1], snapshot, seed=9)
        own[1].frames.extend([first, *steps.step(own[1:3])[0].frames])
    for simple, compiled in zip(*jobs, strict=True):
        assert len(simple.frames) >= 8
        assert torch.equal(torch.stack(simple.frames), torch.stack(compiled.frames))


@torch.inference_mode()
def test_what_is_not_finite_is_told_for_its_row_alone() -> None:
    config = lm_config(TINY)
    steps = random_backend(config, "native")
    final, hidden = run(random_backend(config))
    for broken, value in ((final, float("nan")), (hidden, float("inf")), (hidden, float("nan"))):
        kept = broken[2].clone()
        broken[2] = value
        for seed in (0, 1, 5):
            drawn = steps.draw(final, hidden, sampling_rows(config, 6, seed, greedy=seed == 5))
            assert drawn[:, 0].tolist() == [1, 1, 0, 1, 1, 1]
            assert int(drawn[:, 2:].min()) >= 0
            assert int(drawn[:, 2:].max()) < config.codebook_size
        broken[2] = kept


@pytest.mark.parametrize(
    ("place", "value"), [((0, 0), 120), ((0, 0), -1), ((2, 3), 32), ((1, 1), -5), ("position", 64), ("position", -1)]
)
def test_ids_and_positions_out_of_range_are_refused(place: tuple[int, int] | str, value: int) -> None:
    config = lm_config(TINY)
    steps = random_backend(config, "native")
    cache = SequenceCache(cache_shape(config, torch.float32), "cpu")
    cache.ensure(3, 64)
    columns, positions = torch.zeros(3, config.num_codebooks + 1, 1, dtype=torch.long), torch.zeros(3, 1).long()
    if isinstance(place, str):
        positions[1] = value
    else:
        columns[place[0], place[1]] = value
    with pytest.raises(IndexError, match="outside"):
        steps.advance(columns, positions, cache, slice(0, 3), 64)


def test_only_small_dense_float32_models_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native_backend(random_lm(lm_config(TINY))) is not None
    assert native_backend(random_lm(lm_config(TINY, hybrid=True))) is None
    assert native_backend(random_lm(lm_config(TINY), dtype=torch.bfloat16)) is None
    products = sum(m.weight.numel() for m in random_lm(lm_config(TINY)).modules() if isinstance(m, torch.nn.Linear))
    projection = TINY["dim"] * TINY["fast_dim"]
    assert num_weights(lm_config(TINY)) == products - projection + TINY["codebook_size"] * TINY["dim"]
    monkeypatch.setattr(native, "SMALL_WEIGHTS", num_weights(lm_config(TINY)) - 1)
    assert native_backend(random_lm(lm_config(TINY))) is None


def test_a_library_of_another_version_stays_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "INTERFACE", replace(native.INTERFACE, number=native.INTERFACE.number + 1))
    assert not any(map(library_of, LIBRARIES["AVX512"]))
    assert library_of("_of_no_processor") is None


@pytest.mark.parametrize("struct", [name for name, _ in native.INTERFACE.structs])
def test_a_library_with_other_structs_stays_unused(struct: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two fields in the other order, of the same size where there are such, and one that is missing."""
    interface, mirrors = native.INTERFACE, dict(native.INTERFACE.structs)
    fields = list(mirrors[struct]._fields_)
    swapped = [*fields[:-2], fields[-1], fields[-2]]
    for changed in (swapped, fields[:-1], [*fields, ("extra", ctypes.c_int64)]):
        other = type(struct, (ctypes.Structure,), {"_fields_": changed})
        structs = tuple((mirrors | {struct: other}).items())
        monkeypatch.setattr(native, "INTERFACE", replace(interface, structs=structs))
        assert not any(map(library_of, LIBRARIES["AVX512"]))


def test_the_environment_can_leave_them_out() -> None:
    code = "from oscine.families.audio8.backends.native import load_library; print(load_library())"
    environment = {**os.environ, "OSCINE_NATIVE": "0"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True).stdout == b"None\n"
