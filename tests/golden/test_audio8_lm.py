"""The language model against the reference: `lm_dense_*` and `lm_hybrid_*`, both ways through the slow model."""

from __future__ import annotations

import json
from itertools import pairwise
from math import prod
from pathlib import Path

import pytest
import torch
from torch import Tensor

from oscine.families.audio8.backends.eager import EagerBackend
from oscine.families.audio8.backends.protocol import noise_size
from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model.cache import cache_shape
from oscine.families.audio8.model.dual_ar import DualAR
from oscine.families.audio8.prompt import frame_columns
from oscine.families.audio8.steps import Audio8StepModel
from oscine.families.audio8.weights import LM_RULES
from oscine.runtime.cache import SequenceCache
from tests.golden.audio8_files import GoldenFile, assert_close, assert_equal, find, lm_of
from tests.golden.audio8_runs import GREEDY, codes_of, inputs_from_columns, job_of, run, sampling_of

FILES = "lm_*.safetensors"


def compact(logits: Tensor, config: LMConfig) -> Tensor:
    """The file's logits in our compact order; a hybrid file is compact already."""
    if config.hybrid is not None:
        return logits
    semantic = logits[..., config.semantic_begin_id : config.semantic_end_id + 1]
    return torch.cat([semantic, logits[..., config.eos_token_id, None]], dim=-1)


def check_kinds(file: GoldenFile) -> None:
    unknown = {case for case in file.meta["cases"] if case not in ("batch", "cap") and not case.startswith("sampled")}
    assert not unknown, f"{file.name} holds case kinds this test does not know: {sorted(unknown)}"


@torch.inference_mode()
def test_simple_path(golden_root: Path) -> None:
    for file in find(golden_root, FILES):
        model = lm_of(file)
        assert_close(model.embed(file["in.prompt"]), file["out.embed"], f"{file.name} embed")
        logits, hidden = model(file["in.prompt"])
        assert_close(hidden, file["out.forward_hidden"], f"{file.name} hidden")
        assert_close(logits, file["out.forward_logits"], f"{file.name} logits")


@torch.inference_mode()
def test_simple_path_with_left_padding(golden_root: Path) -> None:
    for file in find(golden_root, FILES):
        if "in.batch_prompt" not in file:
            continue
        model, prompt, mask = lm_of(file), file["in.batch_prompt"], file["in.batch_mask"]
        logits, _ = model(prompt, mask)
        assert_close(logits[:, -1], file["out.batch_forward_logits_last"], f"{file.name} padded")
        for row in range(prompt.shape[0]):
            alone, _ = model(prompt[row : row + 1, :, mask[row].bool()])
            assert_close(alone[:, -1], file["out.batch_forward_logits_last"][row : row + 1], f"{file.name} row {row}")


@torch.inference_mode()
def test_simple_path_over_a_whole_generation(golden_root: Path) -> None:
    """The prompt and the file's greedy frames in one pass: each position's logits are those of its step."""
    for file in find(golden_root, FILES):
        model, prompt, codes = lm_of(file), file["in.prompt"], file["out.greedy_codes"]
        columns = torch.cat([prompt, frame_columns(codes, model.config)[None]], dim=2)
        logits, _ = model(columns)
        steps = file["out.greedy_slow_logits"]
        last = prompt.shape[2] - 1
        assert_close(logits[0, last : last + len(steps)], steps, f"{file.name} one pass")


@torch.inference_mode()
def test_cached_path_step_by_step(golden_root: Path) -> None:
    """Prompt in two calls, then the file's frames one by one: logits, what the fast model receives, its logits."""
    for file in find(golden_root, FILES):
        model, codes = lm_of(file), file["out.greedy_codes"]
        slow, hidden = cached_steps(EagerBackend(model), file["in.prompt"], codes)
        num_steps = len(file["out.greedy_slow_logits"])
        assert_close(slow[:num_steps], compact(file["out.greedy_slow_logits"], model.config), f"{file.name} slow")
        assert_close(hidden[:num_steps], file["out.greedy_slow_hidden"], f"{file.name} handed to fast")
        assert_equal(slow[:num_steps].argmax(-1), file["out.greedy_semantic_local"], f"{file.name} semantic ids")
        frames = codes.shape[1]
        fast = model.fast_teacher_forced(hidden[:frames], codes.T)
        assert_close(fast, file["out.greedy_fast_logits"][:frames], f"{file.name} fast")


def cached_steps(backend: EagerBackend, prompt: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Compact logits and fast hidden states after the prompt and after each frame, [frame + 1, ...]."""
    config, length = backend.model.config, prompt.shape[2]
    cache = SequenceCache(cache_shape(config, torch.float32), "cpu")
    width = -(-(length + codes.shape[1]) // 64) * 64
    cache.ensure(3, width)
    columns = torch.cat([prompt, frame_columns(codes, config)[None]], dim=2)
    cuts = [0, length // 2, *range(length, columns.shape[2] + 1)]
    results = []
    for start, end in pairwise(cuts):
        positions = torch.arange(start, end)[None]
        results.append(backend.advance(columns[:, :, start:end], positions, cache, slice(1, 2), width))
    final, hidden = (torch.cat(parts) for parts in zip(*results[1:], strict=True))
    return backend.compact_logits(final), hidden


@torch.inference_mode()
def test_greedy_generation(golden_root: Path) -> None:
    for file in find(golden_root, FILES):
        model, budget = lm_of(file), file.meta["greedy"]["max_new_tokens"]
        job = job_of(inputs_from_columns(file["in.prompt"][0], model.config, GREEDY), max_frames=budget)
        ended = run(Audio8StepModel(EagerBackend(model)), [job])
        assert_equal(codes_of(job, model.config), file["out.greedy_codes"], f"{file.name} greedy")
        assert ended[job] == ("stop" if file.meta["greedy"]["finished"] else "length")


@torch.inference_mode()
def test_sampled_generation(golden_root: Path, subtests: pytest.Subtests) -> None:
    """Each case alone, then all of the file together: same codes."""
    for file in find(golden_root, FILES):
        check_kinds(file)
        model = lm_of(file)
        steps = Audio8StepModel(EagerBackend(model))
        cases = {name: case for name, case in file.meta["cases"].items() if name.startswith("sampled")}

        for group in [*([name] for name in cases), list(cases)]:
            with subtests.test(f"{file.name}:{'+'.join(group)}"):
                jobs = {}
                for name in group:
                    case = cases[name]
                    inputs = inputs_from_columns(file["in.prompt"][0], model.config, sampling_of(case))
                    jobs[name] = job_of(inputs, seed=case["seed"], max_frames=case["max_new_tokens"])
                ended = run(steps, list(jobs.values()))
                for name, job in jobs.items():
                    expected, local = file[f"out.{name}_codes"], file[f"out.{name}_semantic_local"]
                    assert_equal(codes_of(job, model.config), expected, f"{file.name} {name}")
                    finished = int(local[-1]) == model.config.codebook_size
                    assert ended[job] == ("stop" if finished else "length")


def test_noise_is_drawn_in_the_canonical_order(golden_root: Path) -> None:
    """One fill of a frame's noise equals the separate draws stored in the file, and those of the definition."""
    for file in find(golden_root, FILES):
        config = LMConfig.from_dict(file.meta["config"], source=file.name)
        for name, case in file.meta["cases"].items():
            if f"out.{name}_uniform_semantic" not in file:
                continue
            generator = torch.Generator().manual_seed(case["seed"])
            semantic, fast = file[f"out.{name}_uniform_semantic"], file[f"out.{name}_uniform_fast"]
            for step in range(len(semantic)):
                noise = torch.empty(noise_size(config)).uniform_(generator=generator)
                stored = torch.cat([semantic[step].flatten(), fast[step].flatten()])
                assert_equal(noise, stored, f"{file.name} {name} noise of step {step}")


@torch.inference_mode()
def test_batched_generation(golden_root: Path) -> None:
    """The rows of the file's batch, unpadded, in one batch of ours."""
    for file in find(golden_root, FILES):
        if "batch" not in file.meta["cases"]:
            continue
        model, prompt, mask = lm_of(file), file["in.batch_prompt"], file["in.batch_mask"].bool()
        budget = file.meta["cases"]["batch"]["max_new_tokens"]
        jobs = [
            job_of(inputs_from_columns(row[:, keep], model.config, GREEDY), max_frames=budget)
            for row, keep in zip(prompt, mask, strict=True)
        ]
        ended = run(Audio8StepModel(EagerBackend(model)), jobs)
        for row, job in enumerate(jobs):
            length = int(file["out.batch_code_lengths"][row])
            expected = file["out.batch_greedy_codes"][row, :, :length]
            assert_equal(codes_of(job, model.config), expected, f"{file.name} batch row {row}")
            assert (ended[job] == "stop") == bool(file["out.batch_finished"][row])


@torch.inference_mode()
def test_sequence_limit(golden_root: Path) -> None:
    """Generation ends by itself when prompt and frames fill the model's length."""
    found = [file for file in find(golden_root, FILES) if "cap" in file.meta["cases"]]
    if not found:
        pytest.skip("no file holds a cap case")
    for file in found:
        model, case = lm_of(file), file.meta["cases"]["cap"]
        inputs = inputs_from_columns(file["in.cap_prompt"][0], model.config, GREEDY)
        job = job_of(inputs, max_frames=case["max_new_tokens"])
        ended = run(Audio8StepModel(EagerBackend(model)), [job])
        assert_equal(codes_of(job, model.config), file["out.cap_codes"], f"{file.name} cap")
        assert ended[job] == ("stop" if case["finished"] else "length")


def released_config(shapes: dict[str, list[int]]) -> LMConfig:
    """The released configuration with these tensors (AUDIO8 spec, section 2)."""
    if "slow.embed_tokens.weight" not in shapes:
        return LMConfig()
    small = {
        "dim": 512,
        "n_head": 8,
        "intermediate_size": 768,
        "vocab_size": 69633,
        "rope_base": 1e11,
        "norm_eps": 1e-5,
    }
    ids = {"semantic_begin_id": 65537, "semantic_end_id": 69632, "eos_token_id": 228}
    fast = {"fast_dim": 512, "fast_n_head": 8}
    mamba = {"mamba_d_ssm": 768, "mamba_n_heads": 24, "mamba_d_head": 32, "mamba_d_state": 64}
    return LMConfig.from_dict({**small, **ids, **fast, **mamba, "slow_backbone": "falcon_h1"})


def test_released_checkpoints_fit_at_full_size(golden_root: Path, subtests: pytest.Subtests) -> None:
    """Every name and shape of the released language models, and their parameter totals, on the meta device."""
    path = golden_root / "audio8" / "real_checkpoint_shapes.json"
    if not path.is_file():
        pytest.skip(f"no {path.name} in {golden_root}")
    for name, listed in json.loads(path.read_text()).items():
        if "model.safetensors" not in name:
            continue
        with subtests.test(name):
            shapes = listed["shapes"]
            with torch.device("meta"):
                model = DualAR(released_config(shapes))
            ours = {key: list(value.shape) for key, value in model.state_dict().items()}
            kept = {key: shape for key, shape in shapes.items() if not key.endswith(LM_RULES.drop_suffixes)}
            assert ours == kept
            assert sum(map(prod, ours.values())) == listed["parameters"]
