"""The phase mask, the guidance processor and their companions, case by case."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from oscine.compat import audex_tta as tta
from oscine.compat.audex_guidance import CFGLogitsProcessor, expand_cfg_prompts
from oscine.errors import NoAudio
from oscine.families.audex.sampling import Sampling, probabilities
from oscine.families.audex.tokens import (
    SPEECHCODEC_TOKEN_OFFSET,
    SPEECHCODEC_VOCAB_SIZE,
    SPEECHGEN_END_TOKEN_ID,
    TokenBlock,
    audio_frames,
    speech_frames,
)
from tests.golden.audex_fixtures import check, fixtures, read

PROCESSORS: dict[str, Any] = {"tta": tta.TTARVQPhaseMaskLogitsProcessor, "cfg": CFGLogitsProcessor}
SCRIPT_KEYS = ("tta", "tta_quirks", "cfg")
OTHER_KEYS = ("cfg_validate_params", "helpers", "expand_cfg_prompts", "speech_stream_chunks", "tta_payload")
AUDIO_BLOCK = TokenBlock(offset=tta.AUDEX_AUDIOCODEC_TOKEN_OFFSET, size=tta.AUDEX_AUDIOCODEC_VOCAB_SIZE)
SPEECH_BLOCK = TokenBlock(offset=SPEECHCODEC_TOKEN_OFFSET, size=SPEECHCODEC_VOCAB_SIZE)


def cases(golden_root: Path) -> list[tuple[dict[str, Any], dict[str, Tensor]]]:
    return [
        (json.loads(path.read_text()), load_file(path.with_suffix(".safetensors")))
        for path in fixtures(golden_root, "logits_processors*.json")
    ]


def params_of(extra_args: Any) -> Any:
    return None if extra_args == "none" else SimpleNamespace(extra_args=extra_args)


class Script:
    """Plays one event script against a processor."""

    def __init__(self, script: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.name, self.vocab, self.tensors = script["name"], script["vocab"], tensors
        self.outputs = {name: list(tokens) for name, tokens in script["outputs"].items()}
        self.processor = PROCESSORS[script["processor"]](None, torch.device("cpu"), False)

    def play(self, steps: list[dict[str, Any]]) -> None:
        for number, step in enumerate(steps):
            self.label = f"{self.name} step {number}"
            getattr(self, f"do_{step['op']}")(step)

    def do_update(self, step: dict[str, Any]) -> None:
        added = [(a["idx"], params_of(a["extra_args"]), [], self.outputs[a["output"]]) for a in step["added"]]
        moved = [tuple(move) for move in step["moved"]]
        self.processor.update_state(
            SimpleNamespace(batch_size=step["batch_size"], removed=step["removed"], added=added, moved=moved)
        )

    def do_update_none(self, step: dict[str, Any]) -> None:
        self.processor.update_state(None)

    def do_append(self, step: dict[str, Any]) -> None:
        self.outputs[step["output"]].extend(step["tokens"])

    def do_apply(self, step: dict[str, Any]) -> None:
        width = step.get("vocab", self.vocab)
        logits = torch.zeros(step["rows"], width)
        assert self.processor.apply(logits) is logits
        for row, allowed in enumerate(step["allowed"]):
            expected = list(range(width)) if allowed == "all" else sorted(allowed)
            assert logits[row].isfinite().nonzero().flatten().tolist() == expected, f"{self.label} row {row}"

    def do_apply_values(self, step: dict[str, Any]) -> None:
        logits = self.tensors[step["in"]].clone()
        assert self.processor.apply(logits) is logits
        assert torch.equal(logits, self.tensors[step["out"]]), self.label

    def do_apply_raises(self, step: dict[str, Any]) -> None:
        assert step["error"] == "RuntimeError", f"{self.label}: unknown error {step['error']}"
        with pytest.raises(RuntimeError) as raised:
            self.processor.apply(torch.zeros(step["rows"], step.get("vocab", self.vocab)))
        assert step["message_contains"] in str(raised.value), self.label


def test_scripts(golden_root: Path) -> None:
    for data, tensors in cases(golden_root):
        unknown = set(data) - set(SCRIPT_KEYS) - set(OTHER_KEYS)
        assert not unknown, f"no test for {sorted(unknown)}"
        scripts = [script for key in SCRIPT_KEYS for script in data.get(key, [])]
        assert scripts
        for script in scripts:
            Script(script, tensors).play(script["steps"])


def test_guidance_parameters(golden_root: Path) -> None:
    for data, _ in cases(golden_root):
        for extra_args, verdict in data["cfg_validate_params"]:
            if verdict == "ok":
                CFGLogitsProcessor.validate_params(params_of(extra_args))
            else:
                with pytest.raises({"ValueError": ValueError}[verdict]):
                    CFGLogitsProcessor.validate_params(params_of(extra_args))


def test_companions(golden_root: Path) -> None:
    for data, _ in cases(golden_root):
        for case in data["expand_cfg_prompts"]:
            if case["result"] == "ValueError":
                with pytest.raises(ValueError, match="cfg_pair_id"):
                    expand_cfg_prompts(case["prompt"], params_of(case["extra_args"]))
            else:
                found = expand_cfg_prompts(case["prompt"], params_of(case["extra_args"]))
                assert [vars(companion) for companion in found] == case["result"], case


def test_constants(golden_root: Path) -> None:
    ours = vars(tta) | {
        "speechgen_end": SPEECHGEN_END_TOKEN_ID,
        "speechcodec_offset": SPEECHCODEC_TOKEN_OFFSET,
        "speechcodec_vocab_size": SPEECHCODEC_VOCAB_SIZE,
    }
    for data, _ in cases(golden_root):
        for name, value in data["helpers"]["constants"].items():
            assert ours[name] == (float(value) if isinstance(value, str) else value), name
        expected = data["helpers"]["is_argmax_invariant"]
        assert all(cls(None, "cpu", False).is_argmax_invariant() is expected for cls in PROCESSORS.values())


def vocabulary(spec: dict[str, Any]) -> dict[str, int]:
    dropped = set(spec.get("drop", []))
    vocab = {f"<audiocodec_{n}>": spec["off"] + n for n in range(spec["count"]) if n not in dropped}
    markers = {"<audiogen_start>": spec.get("stt", 7), "<audiogen_end>": spec.get("end", 8)}
    return vocab | {name: value for name, value in markers.items() if value is not None}


def test_phase_token_ids(golden_root: Path) -> None:
    for data, _ in cases(golden_root):
        for case in data["helpers"]["build_tta_phase_token_ids"]:
            vocab, result = vocabulary(case["vocab"]), case["result"]
            tokenizer = SimpleNamespace(get_vocab=lambda vocab=vocab: vocab)
            if "error" in result:
                with pytest.raises({"ValueError": ValueError}[result["error"]]) as raised:
                    tta.build_tta_phase_token_ids(tokenizer)
                assert str(raised.value) == result["message"]
                continue
            phases, start, end = tta.build_tta_phase_token_ids(tokenizer)
            assert [start, end] == [result["start"], result["end"]]
            assert [len(ids) for ids in phases] == result["n"]
            assert [ids[0] for ids in phases] == result["first"]
            assert [ids[-1] for ids in phases] == result["last"]


def test_phase_validation(golden_root: Path) -> None:
    for data, _ in cases(golden_root):
        for case in data["helpers"]["validate_rvq_phase"]:
            found = tta.validate_rvq_phase(*case["args"])
            first = found["first_mismatch"]
            assert found | {"first_mismatch": first and list(first)} == case["result"], case


def test_codec_payload(golden_root: Path) -> None:
    for data, _ in cases(golden_root):
        for case in data["tta_payload"]:
            if case["frames"]:
                assert audio_frames(case["tokens"], AUDIO_BLOCK) == case["frames"], case
            else:
                with pytest.raises(NoAudio):
                    audio_frames(case["tokens"], AUDIO_BLOCK)


def test_speech_frames_of_a_token_stream(golden_root: Path) -> None:
    """The reference ships frames in other portions; which frames there are is the contract."""
    for data, _ in cases(golden_root):
        for case in data["speech_stream_chunks"]["cases"]:
            chunks = [chunk[1] for chunk in case["chunks"]]
            if "ValueError" in chunks:
                with pytest.raises(NoAudio):
                    speech_frames(case["tokens"], SPEECH_BLOCK)
            else:
                assert speech_frames(case["tokens"], SPEECH_BLOCK) == [frame for chunk in chunks for frame in chunk]


def test_sampling(golden_root: Path) -> None:
    for path in fixtures(golden_root, "sampling*.safetensors"):
        tensors, meta = read(path)
        logits = tensors["logits"]
        for case in meta["cases"]:
            sampling = Sampling(temperature=case["temperature"], top_k=case["top_k"], top_p=case["top_p"])
            found, expected = probabilities(logits, sampling), tensors[case["key"]]
            for row in range(len(logits)):
                flat = bool((logits[row] == logits[row, 0]).all())
                if flat and case["top_p"] < 1.0:  # which of the equals are kept depends on the sort
                    assert (found[row] > 0).sum() == (expected[row] > 0).sum()
                else:
                    check(f"{case['key']} row {row}", found[row], expected[row], 1e-5)
