"""The sampling primitives against the reference's outcomes, one case of the file at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from oscine.compat import audio8_sampling as sampling
from oscine.runtime.sampling import gumbel_argmax, pick, rank, truncation

FILES = "audio8/sampling*.safetensors"
PARAMETERS = ("temperature", "top_k", "top_p", "do_sample", "ras_temperature", "ras_top_p", "num_semantic_ids")
ELSEWHERE = {"name", "fn", "logits", "seed", "uniform", "same_as", "recent", "seeds", "num_reqs"}
NOTES = {"expect", "note", "margin_ok"}

Case = dict[str, Any]
Data = Mapping[str, Tensor]


def load(path: Path) -> tuple[list[Case], Data]:
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["cases"]), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def resolve(case: Case, cases: list[Case]) -> Case:
    """The case with what it takes over from the one it names."""
    if "same_as" in case:
        base = next(other for other in cases if other["name"] == case["same_as"])
        return {**resolve(base, cases), **{k: v for k, v in case.items() if k != "same_as"}}
    unknown = set(case) - ELSEWHERE - NOTES - set(PARAMETERS)
    assert not unknown, f"case {case['name']} has arguments this test does not know: {unknown}"
    return case


def arguments(case: Case, data: Data) -> dict[str, Any]:
    return {k: data[v] if isinstance(v, str) else v for k, v in case.items() if k in PARAMETERS}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(int(seed))


def recent_of(case: Case, data: Data, rows: int) -> Tensor | None:
    recent = case.get("recent")
    if recent is None:
        return None
    return data[recent].long() if recent in data else torch.zeros(rows, 0, dtype=torch.long)


def run_filter(case: Case, data: Data, _: list[Case]) -> None:
    logits = data[case.get("logits", "logits")]
    result = sampling.filter_top_k_top_p(logits, **arguments(case, data))
    removed = result.isneginf() & ~logits.isneginf()
    expected = data[case["name"]].bool()
    assert torch.equal(removed, expected & ~logits.isneginf())
    assert torch.equal(result[~removed], logits[~removed])


def run_gumbel(case: Case, data: Data, _: list[Case]) -> None:
    scores = data[case["logits"]]
    assert torch.equal(gumbel_argmax(scores, data[case["uniform"]]), data[case["name"]].long())
    if "seed" in case:
        assert torch.equal(sampling.gumbel_argmax_sample(scores, seeded(case["seed"])), data[case["name"]].long())


def run_sample(case: Case, data: Data, _: list[Case]) -> None:
    logits = data[case["logits"]]
    generator = seeded(case["seed"]) if "seed" in case else None
    before = torch.get_rng_state()
    result = sampling.sample_scores(logits, **arguments(case, data), generator=generator)
    assert torch.equal(result, data[case["name"]].long())
    if generator is None:
        assert torch.equal(before, torch.get_rng_state()), "a case without a seed must take no noise"


def run_ras(case: Case, data: Data, _: list[Case]) -> None:
    logits = data[case["logits"]]
    recent = recent_of(case, data, logits.shape[0])
    result = sampling.ras_sample_semantic(logits, recent, **arguments(case, data), generator=seeded(case["seed"]))
    assert torch.equal(result, data[case["name"]].long())


def run_batch(case: Case, data: Data, cases: list[Case]) -> None:
    full = case if "seeds" in case else next(c for c in cases if c["fn"] == "ras_sample_batch" and "seeds" in c)
    base = resolve(full, cases)
    logits, recent, seeds = data[base["logits"]], data[base["recent"]].long(), data[base["seeds"]]
    count = case.get("num_reqs", base["num_reqs"])
    partial = "partial_even" in case["name"]
    result = sampling.ras_sample_batch(
        logits[:count],
        recent[:count],
        **arguments(base, {**data, **{k: data[base[k]][:count] for k in PARAMETERS if isinstance(base.get(k), str)}}),
        generators={i: seeded(seeds[i]) for i in range(count) if not partial or i % 2 == 0},
        num_reqs=count,
    )
    assert torch.equal(result[::2] if partial else result, data[case["name"]].long())


RUNNERS: dict[str, Callable[[Case, Data, list[Case]], None]] = {
    "filter_top_k_top_p": run_filter,
    "gumbel_argmax_sample": run_gumbel,
    "gumbel_argmax_sample (inject uniform)": run_gumbel,
    "sample_scores": run_sample,
    "ras_sample_semantic": run_ras,
    "ras_sample_batch": run_batch,
}


def test_every_case_of_the_sampling_file(golden_root: Path, subtests: pytest.Subtests) -> None:
    paths = sorted(golden_root.glob(FILES))
    if not paths:
        pytest.skip(f"no {FILES} in {golden_root}")
    for path in paths:
        cases, data = load(path)
        for case in cases:
            with subtests.test(f"{path.stem}:{case['name']}"):
                RUNNERS[case["fn"]](resolve(case, cases), data, cases)


def test_the_threshold_is_the_stated_one(golden_root: Path) -> None:
    for path in sorted(golden_root.glob(FILES)):
        with safe_open(path, "pt") as file:
            assert float(file.metadata()["sampling_eps"]) == sampling.SAMPLING_EPS


def test_named_parts_of_the_repetition_case(golden_root: Path) -> None:
    """The file also stores the two draws behind `ras_out`, and their noise."""
    for path in sorted(golden_root.glob(FILES)):
        cases, data = load(path)
        named = [case for case in cases if case["name"] == "ras_out"]
        if not named or "ras_normal" not in data:
            pytest.skip(f"{path.name} stores no parts of ras_out")
        case = resolve(named[0], cases)
        logits = data[case["logits"]]
        for name, prefix in (("normal", ""), ("high", "ras_")):
            kept = truncation(
                logits.shape[-1],
                logits.device,
                top_k=case["top_k"],
                top_p=case[f"{prefix}top_p"],
                temperature=case[f"{prefix}temperature"],
            )
            drawn = pick(rank(logits), data[f"ras_uniform_{name}"], kept)
            assert torch.equal(drawn, data[f"ras_{name}"].long())
