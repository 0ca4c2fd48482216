"""The published text-to-audio names beyond the golden scripts: vLLM's base class, batching, widths, bad streams."""

from __future__ import annotations

import enum
import importlib
import sys
import types
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from oscine.compat import audex_guidance as guidance
from oscine.compat import audex_tta as tta
from oscine.compat import vllm_rows as batch_rows
from oscine.errors import NoAudio
from oscine.families.audex.tokens import TokenBlock, audio_frames, speech_frames

PHASES = [[10, 11], [12, 13], [14, 15], [16, 17]]
SETTINGS = {"phase_token_ids": PHASES, "start_tid": 7, "end_tid": 8, "codec_cap": None, "start_in_prompt": True}


class Direction(enum.Enum):
    SWAP = 0
    UNIDIRECTIONAL = 1


def update(removed: Any = (), added: Any = (), moved: Any = ()) -> SimpleNamespace:
    return SimpleNamespace(removed=removed, added=added, moved=moved)


def added(index: int, output: list[int], **changes: Any) -> tuple[Any, ...]:
    return index, SimpleNamespace(extra_args={"tta_rvq": {**SETTINGS, **changes}}), [7], output


def processor() -> tta.TTARVQPhaseMaskLogitsProcessor:
    return tta.TTARVQPhaseMaskLogitsProcessor(None, torch.device("cpu"), False)


def test_published_names() -> None:
    assert set(tta.__all__) >= {
        "AUDEX_AUDIOCODEC_TOKEN_OFFSET",
        "AUDEX_AUDIOCODEC_VOCAB_SIZE",
        "AUDEX_AUDIOGEN_START_TOKEN_ID",
        "AUDEX_AUDIOGEN_END_TOKEN_ID",
        "NEG_INF",
        "XCODEC1_NUM_CODEBOOKS",
        "XCODEC1_CODEBOOK_SIZE",
        "logger",
        "build_tta_phase_token_ids",
        "validate_rvq_phase",
        "TTARVQPhaseMaskLogitsProcessor",
    }


def test_many_rows_are_one_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 rows at all places of a frame, some of them plain, take one masked fill."""
    masker, logits = processor(), torch.zeros(256, 32)
    masker.update_state(update(added=[added(i, [10] * (i % 9)) for i in range(0, 256, 2)]))
    fills = []
    fill = torch.Tensor.masked_fill_
    monkeypatch.setattr(torch.Tensor, "masked_fill_", lambda *args: fills.append(len(args[0])) or fill(*args))
    masker.apply(logits)
    assert fills == [128]
    for i in range(256):
        expected = list(range(32)) if i % 2 else [*PHASES[i % 9 % 4], *([8] if i % 9 and i % 9 % 4 == 0 else [])]
        assert logits[i].isfinite().nonzero().flatten().tolist() == sorted(expected)


def test_move_directions_may_be_enum_members_and_others_are_refused() -> None:
    masker = processor()
    masker.update_state(update(added=[added(0, [])]))
    masker.update_state(update(moved=[(0, 2, Direction.UNIDIRECTIONAL)]))
    masker.update_state(update(moved=[(2, 1, Direction.SWAP)]))
    logits = masker.apply(torch.zeros(3, 32))
    assert logits.isfinite().sum(1).tolist() == [32, 2, 32]
    with pytest.raises(ValueError, match="SIDEWAYS"):
        masker.update_state(update(moved=[(0, 1, "SIDEWAYS")]))


def test_a_row_whose_list_has_shrunk_is_left_alone_until_it_has_grown_again() -> None:
    """An engine that takes a request back cuts its list short of the start marker that was seen in it."""
    masker, output = processor(), [3, 7, 10]
    masker.update_state(update(added=[added(0, output, start_in_prompt=False)]))
    assert masker.apply(torch.zeros(1, 32)).isfinite().nonzero()[:, 1].tolist() == PHASES[1]
    del output[1:]
    assert masker.apply(torch.zeros(1, 32)).isfinite().all()
    output += [7, 10, 12]
    assert masker.apply(torch.zeros(1, 32)).isfinite().nonzero()[:, 1].tolist() == PHASES[2]


def test_masks_follow_a_change_of_width() -> None:
    masker = processor()
    masker.update_state(update(added=[added(0, [])]))
    for width in (32, 41, 32):
        assert masker.apply(torch.zeros(1, width)).isfinite().sum() == 2


def test_no_masks_without_rows() -> None:
    masker = processor()
    masker.update_state(update(added=[(0, None, [], [])]))
    masker.apply(torch.zeros(1, 32))
    assert masker._table is None


def with_vllm(monkeypatch: pytest.MonkeyPatch, base: type | None) -> None:
    """Stands in for an installed vLLM, or for one that lacks the module."""
    names = ("vllm", "vllm.v1", "vllm.v1.sample", "vllm.v1.sample.logits_processor")
    for name in names[: None if base else 3]:
        module = types.ModuleType(name)
        module.__path__ = []  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    if base:
        sys.modules[names[-1]].LogitsProcessor = base  # type: ignore[attr-defined]


def test_real_subclass_where_vllm_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    class Base:
        pass

    assert batch_rows.ProcessorBase is object
    assert tta.TTARVQPhaseMaskLogitsProcessor.__bases__ == (object,)
    try:
        with monkeypatch.context() as patch:
            with_vllm(patch, Base)
            for module in (batch_rows, tta, guidance):
                importlib.reload(module)
            assert issubclass(tta.TTARVQPhaseMaskLogitsProcessor, Base)
            assert issubclass(guidance.CFGLogitsProcessor, Base)
            assert tta.TTARVQPhaseMaskLogitsProcessor(None, "cpu", False).device == "cpu"
    finally:
        for module in (batch_rows, tta, guidance):
            importlib.reload(module)


def test_guidance_leaves_other_rows_alone_and_rounds_once() -> None:
    blender = guidance.CFGLogitsProcessor(None, "cpu", False)
    members = [("uncond", "a"), ("cond", "b"), ("cond", "a")]
    blender.update_state(
        update(
            added=[
                (i, SimpleNamespace(extra_args={"cfg_role": role, "cfg_pair_id": pair, "cfg_scale": 2.5}), [], [])
                for i, (role, pair) in enumerate(members)
            ]
        )
    )
    logits = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    blender.apply(logits)
    expected = before[0] + 2.5 * (before[2] - before[0])
    assert torch.equal(logits[0], expected)
    assert torch.equal(logits[2], expected)
    assert torch.equal(logits[[1, 3]], before[[1, 3]])


@pytest.mark.parametrize("scale", [True, float("nan"), 0.99, None, "1.5"])
def test_bad_scales(scale: Any) -> None:
    with pytest.raises(ValueError, match="cfg_scale"):
        guidance.CFGLogitsProcessor.validate_params(SimpleNamespace(extra_args={"cfg_scale": scale}))


def test_bad_streams() -> None:
    block = TokenBlock(offset=100, size=8192)
    frame = [100, 100 + 1024, 100 + 2048, 100 + 3072]
    assert audio_frames([*frame, *frame[:3]], block) == [[0, 1024, 2048, 3072]]  # the last frame is incomplete
    for tokens in ([], frame[:3], [5], [*frame, *reversed(frame)]):
        with pytest.raises(NoAudio):
            audio_frames(tokens, block)
    with pytest.raises(NoAudio):
        speech_frames([1, 2, 99], block)
