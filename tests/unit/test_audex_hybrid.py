"""The hybrid model's parts against plain loops: the scan, the router, experts, growth of a lane."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from oscine.families.audex.model.hybrid import HybridLM
from oscine.families.audex.model.lanes import Decode, Prefill
from oscine.families.audex.model.moe import MoE, Router
from oscine.layers.mamba2 import scan_chunks, update_state
from tests.unit.audex_models import random_hybrid


@pytest.fixture(scope="module")
def lm() -> HybridLM:
    return random_hybrid(50)


@pytest.mark.parametrize("time", [1, 2, 3, 15, 16, 17, 33])
def test_a_prompt_at_once_or_token_by_token(lm: HybridLM, time: int) -> None:
    """Prompts shorter than the convolution, at and around the chunk size."""
    ids = torch.randint(50, (time,), generator=torch.Generator().manual_seed(time))
    whole_lane, lane = lm.new_lane(2), lm.new_lane(2)
    whole = lm.logits(lm.prefill(lm.embed(ids), whole_lane)[-1])
    for token in ids:
        hidden = lm.decode(token.expand(2), [lane])[0]
    assert torch.allclose(lm.logits(hidden), whole, atol=1e-4)
    assert whole_lane.states.keys() == lane.states.keys()
    for name, state in whole_lane.states.items():
        assert torch.allclose(state, lane.states[name], atol=1e-5)
    assert whole_lane.length == lane.length == time


def test_scan_is_the_recurrence_and_survives_strong_decay() -> None:
    generator = torch.Generator().manual_seed(0)
    heads, time, dim, states = 2, 9, 3, 4
    rate = -torch.rand(heads, time, generator=generator) * 200  # exp underflows: no overflow may come back
    driven, b, c, state = (
        torch.randn(shape, generator=generator)
        for shape in ((heads, time, dim), (heads, time, states), (heads, time, states), (heads, dim, states))
    )
    last, stepped = state.clone()[None], state.clone()[None]
    decays, drivens, bs, cs = (part.transpose(0, 1)[None] for part in (rate, driven, b, c))
    y = scan_chunks(decays, drivens, bs, cs, last, 4)
    for t in range(time):
        state = rate[:, t].exp()[:, None, None] * state + driven[:, t, :, None] * b[:, t, None, :]
        update_state(stepped, decays[:, t], drivens[:, t], bs[:, t])
        assert torch.allclose(y[0, t], (state @ c[:, t, :, None])[..., 0], atol=1e-5)
        assert torch.allclose(stepped[0], state, atol=1e-5)
    assert torch.allclose(last[0], state, atol=1e-5)


@pytest.mark.parametrize(("groups", "kept", "normed"), [(1, 1, True), (4, 2, True), (4, 1, False), (2, 2, False)])
def test_router(lm: HybridLM, groups: int, kept: int, normed: bool) -> None:
    router = Router(replace(lm.config, n_group=groups, topk_group=kept, norm_topk_prob=normed))
    generator = torch.Generator().manual_seed(groups)
    for value in router.parameters():
        value.requires_grad_(False).normal_(generator=generator)
    x = torch.randn(6, lm.config.hidden_size, generator=generator)
    experts, weights = router(x)
    for row in range(len(x)):
        company = router(torch.cat([x[row:], x[:row]]))
        assert all(torch.equal(a[0], b[row]) for a, b in zip(company, (experts, weights), strict=True))
    for row in range(len(x)):
        score = (router.weight @ x[row]).sigmoid()
        choice = score + router.e_score_correction_bias
        blocks = choice.unflatten(0, (groups, -1))
        best = sorted(range(groups), key=lambda g, blocks=blocks: -float(blocks[g].topk(2).values.sum()))[:kept]
        size = len(choice) // groups
        eligible = [e for e in range(len(choice)) if e // size in best]
        expected = sorted(eligible, key=lambda e, choice=choice: -float(choice[e]))[: lm.config.num_experts_per_tok]
        assert sorted(experts[row].tolist()) == sorted(expected)
        total = float(score[expected].sum()) if normed else 1.0
        for expert, weight in zip(experts[row].tolist(), weights[row].tolist(), strict=True):
            assert weight == pytest.approx(2.5 * float(score[expert]) / total, rel=1e-4)


def test_experts(lm: HybridLM) -> None:
    """Each row is the weighted sum of its experts and the shared one; padding rows of a decode call wake no expert."""
    moe = next(module for module in lm.modules() if isinstance(module, MoE))
    x = torch.randn(5, lm.config.hidden_size, generator=torch.Generator().manual_seed(3))
    experts, weights = moe.gate(x)

    def expected(row: int) -> Tensor:
        parts = [w * moe.experts[e](x[row]) for e, w in zip(experts[row].tolist(), weights[row], strict=True)]
        return torch.stack(parts).sum(0) + moe.shared_experts(x[row])

    whole = moe(x, Prefill(lm.new_lane(1)))
    assert torch.allclose(whole, torch.stack([expected(row) for row in range(5)]), atol=1e-4)
    called: list[int] = []
    hooks = [e.register_forward_hook(lambda *_, i=i: called.append(i)) for i, e in enumerate(moe.experts)]
    part = moe(x, Decode([lm.new_lane(1)] * 3))
    for hook in hooks:
        hook.remove()
    assert torch.allclose(part[:3], whole[:3], atol=1e-4)
    assert sorted(called) == sorted(set(experts[:3].flatten().tolist()))
