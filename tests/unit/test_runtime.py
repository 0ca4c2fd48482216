"""What the runtime gives every family: a backend by name, work that is undone, and one job's own fault."""

from __future__ import annotations

import pytest
import torch

from oscine.engine.isolation import isolated
from oscine.errors import UnsupportedFeature
from oscine.families.audio8.backends.choose import backend_for
from oscine.families.audio8.backends.eager import EagerBackend
from oscine.families.audio8.backends.native import NativeBackend
from oscine.kernels.fp16 import Fp16Linear, kernels_work
from oscine.runtime.backends import choose
from oscine.runtime.undo import own_outcome, undo_on_error
from oscine.types import StepOut
from tests.audio8_toys import TINY, lm_config, needs_native, random_lm


class Counter:
    """Counts, and can be brought back."""

    def __init__(self) -> None:
        self.count = 0

    def snapshot(self) -> int:
        return self.count

    def restore(self, snapshot: int) -> None:
        self.count = snapshot


def test_a_backend_is_the_first_there_is_or_the_one_asked_for() -> None:
    available = {"native": None, "compiled": "c", "eager": "e"}
    assert choose("auto", available) == choose("compiled", available) == "c"
    assert choose("eager", available) == "e"
    for wanted in ("native", "other"):
        with pytest.raises(UnsupportedFeature, match="auto, compiled, eager") as refused:
            choose(wanted, available)
        assert refused.value.param == "backend"


@pytest.mark.parametrize(
    "wanted", [pytest.param("auto", marks=needs_native), pytest.param("native", marks=needs_native), "eager"]
)
def test_audio8_runs_on_the_backend_asked_for(wanted: str) -> None:
    model = random_lm.__wrapped__(lm_config(TINY), half=True, packed=False)
    backend = backend_for(model, wanted)
    assert isinstance(backend, EagerBackend if wanted == "eager" else NativeBackend)
    assert backend.model is model
    held = [isinstance(layer, Fp16Linear) for layer in model.modules() if hasattr(layer, "in_features")]
    assert all(held) if kernels_work() else not any(held)  # float32 copies are not kept
    hidden = torch.zeros(2, model.config.dim)
    assert model.project_for_fast(hidden).shape == (2, model.config.fast_dim)


def test_a_hybrid_has_no_compiled_steps() -> None:
    model = random_lm(lm_config(TINY, hybrid=True))
    assert isinstance(backend_for(model), EagerBackend)
    with pytest.raises(UnsupportedFeature, match="native"):
        backend_for(model, "native")


def test_work_that_breaks_off_is_undone_for_all() -> None:
    counters = [Counter(), Counter()]
    with undo_on_error(counters):
        counters[0].count += 1

    def burn() -> None:
        with undo_on_error(counters):
            for counter in counters:
                counter.count += 5
            raise RuntimeError("on fire")

    with pytest.raises(RuntimeError, match="fire"):
        burn()
    assert [counter.count for counter in counters] == [1, 0]


def test_an_outcome_is_the_jobs_own() -> None:
    error = RuntimeError("on fire")

    def burn() -> StepOut:
        raise error

    assert own_outcome(burn).error is error
    assert own_outcome(lambda: StepOut(frames=(1,))) == StepOut(frames=(1,))


def test_work_on_several_is_done_one_by_one_when_it_fails() -> None:
    calls: list[list[int]] = []

    def work(items: list[int]) -> list[int]:
        calls.append(list(items))
        if 3 in items:
            raise ValueError("three")
        return [10 * item for item in items]

    assert isolated(work, [1, 2]) == [10, 20]
    made = isolated(work, [1, 3, 5])
    assert made[0::2] == [10, 50]
    assert isinstance(made[1], ValueError)
    assert calls == [[1, 2], [1, 3, 5], [1], [3], [5]]
