"""What must be refused by name, in one list; faults of checkpoint folders are in `test_audex_loading.py`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from oscine.compat import audex_tta as tta
from oscine.engine.engine import Engine
from oscine.errors import InputTooLong, InvalidRequest, NoAudio
from oscine.families.audex.family import AudexFamily
from oscine.families.audex.tokens import TokenBlock, audio_frames
from oscine.types import AudioInput, Failed, Request
from tests.unit.audex_models import dense_family
from tests.unit.test_audex_neighbours import Listener

VOCAB: dict[str, int] = {
    "<audiogen_start>": 1,
    "<audiogen_end>": 2,
    **{f"<audiocodec_{code}>": 100 + code for code in range(4096)},
}
BLOCK = TokenBlock(offset=100, size=4096)
FRAME = [100, 100 + 1024, 100 + 2048, 100 + 3072]


@pytest.fixture(scope="module")
def family(golden_root: Path) -> AudexFamily:
    return dense_family(golden_root)


def without(*tokens: str) -> SimpleNamespace:
    """A tokenizer that lacks some tokens."""
    return SimpleNamespace(get_vocab=lambda: {token: id_ for token, id_ in VOCAB.items() if token not in tokens})


@pytest.mark.parametrize("marker", ["<audiogen_start>", "<audiogen_end>"])
def test_a_missing_marker(marker: str) -> None:
    with pytest.raises(ValueError, match=f"{marker.strip('<>')}=None"):
        tta.build_tta_phase_token_ids(without(marker))


def test_an_incomplete_codec_vocabulary() -> None:
    lost = [f"<audiocodec_{code}>" for code in range(1030, 1040)]
    message = (
        r"Incomplete codec vocab for RVQ phase 1: missing 10 codec ids \(e\.g\. \[1030, 1031, 1032, 1033, 1034\]\)"
    )
    with pytest.raises(ValueError, match=message):
        tta.build_tta_phase_token_ids(without(*lost))
    assert tta.build_tta_phase_token_ids(without("<audiocodec_4096>"))[1:] == (1, 2)


def processor(width: int, **changes: Any) -> tuple[tta.TTARVQPhaseMaskLogitsProcessor, torch.Tensor]:
    """A processor with one request, and logits of that width."""
    phases, start, end = tta.build_tta_phase_token_ids(without())
    settings = {"phase_token_ids": phases, "start_tid": start, "end_tid": end, "start_in_prompt": True, **changes}
    masker = tta.TTARVQPhaseMaskLogitsProcessor(None, torch.device("cpu"), False)
    row: Any = (0, SimpleNamespace(extra_args={"tta_rvq": settings}), [], [])
    masker.update_state(SimpleNamespace(removed=[], added=[row], moved=[]))
    return masker, torch.zeros(1, width)


@pytest.mark.parametrize(
    ("width", "changes", "message"),
    [
        (4195, {}, "phase 3 token ids"),
        (4196, {"end_tid": 4196}, "end token id"),
        (4196, {"end_tid": -1}, "end token id"),
        (4196, {"phase_token_ids": [[100], [101], [102]]}, "4 phase id lists"),
        (4196, {"phase_token_ids": [[100], [101], [], [102]]}, "phase 2 is empty"),
    ],
)
def test_ids_outside_the_logits(width: int, changes: dict[str, Any], message: str) -> None:
    masker, logits = processor(width, **changes)
    for _ in range(2):  # a failed build leaves nothing behind
        with pytest.raises(RuntimeError, match=message):
            masker.apply(logits)
    assert not logits.isinf().any()


def test_a_cap_of_zero_leaves_the_end_alone() -> None:
    masker, logits = processor(4196, codec_cap=0)
    assert masker.apply(logits).isfinite().nonzero().tolist() == [[0, 2]]


@pytest.mark.parametrize("tokens", [[], FRAME[:3], [5, 6], [*FRAME, *reversed(FRAME)], [*FRAME[1:], FRAME[0]]])
def test_streams_without_a_frame_or_off_their_grid(tokens: list[int]) -> None:
    with pytest.raises(NoAudio):
        audio_frames(tokens, BLOCK)


def test_a_stream_cut_in_the_midst_of_a_frame_loses_it() -> None:
    whole = [0, 1024, 2048, 3072]
    for extra in range(4):
        assert audio_frames([*FRAME, *FRAME, *FRAME[:extra]], BLOCK) == [whole, whole]
    assert tta.validate_rvq_phase([*whole, 0, 1024])["phase_valid"]
    assert tta.validate_rvq_phase([*whole, 1024])["first_mismatch"] == [4, 1024, 1, 0]


def test_a_sound_without_one_whole_frame_fails(family: AudexFamily) -> None:
    (job,) = family.prepare(Request(task="sound", text="Rain.", max_new_tokens=3, seed=1), "r").jobs
    engine, listener = Engine(), Listener()
    try:
        engine.submit(family, [(job, listener)])
        assert listener.ended.wait(60)
    finally:
        engine.close()
    assert isinstance(listener.outcome, Failed)
    assert isinstance(listener.outcome.error, NoAudio)


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "empty caption": ({"task": "sound", "text": " \n"}, InvalidRequest, "text"),
    "empty text": ({"text": ""}, InvalidRequest, "text"),
    "empty question": (
        {"task": "ask", "text": " ", "audio": AudioInput(samples=np.zeros(9, np.float32), sample_rate=16000)},
        InvalidRequest,
        "text",
    ),
    "guidance below 1": ({"task": "sound", "text": "x", "cfg_scale": 0.99}, InvalidRequest, "cfg_scale"),
    "guidance above 10": ({"task": "sound", "text": "x", "cfg_scale": 10.01}, InvalidRequest, "cfg_scale"),
    "guidance of NaN": ({"text": "x", "cfg_scale": float("nan")}, InvalidRequest, "cfg_scale"),
    "31 clips": (
        {"task": "transcribe", "audio": AudioInput(samples=np.zeros(900 * 8000 + 1, np.float32), sample_rate=8000)},
        InputTooLong,
        "audio",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_requests(family: AudexFamily, case: str) -> None:
    fields, error, param = REFUSED[case]
    with pytest.raises(error) as raised:
        family.prepare(Request(**fields), "r")
    assert raised.value.param == param  # type: ignore[attr-defined]


def test_audio_beyond_the_context_is_refused_before_it_is_turned_into_frames(
    family: AudexFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: object) -> None:
        raise AssertionError("frames were made")

    monkeypatch.setattr("oscine.families.audex.family.log_mel", never)
    audio = AudioInput(samples=np.zeros(800 * 8000, np.float32), sample_rate=8000)
    with pytest.raises(InputTooLong, match="the limit is"):
        family.prepare(Request(task="transcribe", audio=audio), "r")
