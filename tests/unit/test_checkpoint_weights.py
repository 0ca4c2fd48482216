"""Weight rules and strict loading on a module of a few numbers."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from oscine.checkpoint.weights import Fold, WeightRules, apply_rules, load_strict, read_pickle, read_tensors
from oscine.errors import MissingFile, WeightMismatch


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.second = nn.BatchNorm1d(3)


def on_meta() -> Pair:
    with torch.device("meta"):
        return Pair()


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    return {key: torch.rand_like(v) if v.is_floating_point() else v + 7 for key, v in module.state_dict().items()}


def test_every_parameter_and_buffer_is_filled() -> None:
    tensors, module = tensors_of(Pair()), on_meta()
    load_strict(module, tensors.items(), dtype=torch.float32, device="cpu", source="f")
    assert all(torch.equal(value, tensors[key]) for key, value in module.state_dict().items())
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_floating_tensors_are_cast_by_the_policy_and_others_kept() -> None:
    tensors, module = tensors_of(Pair()), on_meta()
    stored = {key: value.half() if value.is_floating_point() else value for key, value in tensors.items()}

    def policy(name: str) -> torch.dtype:
        return torch.float64 if name.startswith("second") else torch.bfloat16

    load_strict(module, stored.items(), dtype=policy, device="cpu", source="f")
    assert module.first.weight.dtype == torch.bfloat16
    assert module.second.running_mean.dtype == torch.float64
    assert module.second.num_batches_tracked.dtype == torch.int64


def test_all_problems_are_told_at_once() -> None:
    tensors = tensors_of(Pair())
    del tensors["first.bias"]
    tensors |= {"first.weight": torch.zeros(3, 4), "third.weight": torch.zeros(1)}
    with pytest.raises(WeightMismatch) as caught:
        load_strict(on_meta(), tensors.items(), dtype=torch.float32, device="cpu", source="file.pt")
    message = caught.value.message
    assert "file.pt" in message
    assert "1 missing: first.bias" in message
    assert "1 unexpected: third.weight" in message
    assert "1 misshaped: first.weight [3, 4] in the file, [3, 2] in the model" in message


def test_only_the_first_ten_are_named() -> None:
    extra = {f"x{index:02}": torch.zeros(1) for index in range(30)}
    with pytest.raises(WeightMismatch) as caught:
        load_strict(on_meta(), {**tensors_of(Pair()), **extra}.items(), dtype=torch.float32, device="cpu", source="f")
    assert "30 unexpected: x00" in caught.value.message
    assert "x09" in caught.value.message
    assert "x10" not in caught.value.message


def test_a_key_that_comes_twice_is_refused() -> None:
    tensors = [*tensors_of(Pair()).items(), ("first.bias", torch.zeros(3))]
    with pytest.raises(WeightMismatch, match=r"1 unexpected: first\.bias"):
        load_strict(on_meta(), tensors, dtype=torch.float32, device="cpu", source="f")


def test_a_computed_buffer_left_on_meta_is_refused() -> None:
    with torch.device("meta"):
        module = Pair()
        module.register_buffer("table", torch.zeros(4), persistent=False)
    with pytest.raises(WeightMismatch, match="not stored in any file: table"):
        load_strict(module, tensors_of(Pair()).items(), dtype=torch.float32, device="cpu", source="f")


def test_rules_drop_rename_and_fold() -> None:
    fold = Fold(suffixes=(".g", ".v"), target=".weight", combine=lambda g, v: g * v)
    rules = WeightRules(
        drop_suffixes=("mask",), rename=((r"^model\.", ""), (r"\.h\.(\d+)", r".layers.\1")), folds=(fold,)
    )
    given = {
        "model.a.h.3.v": torch.tensor([2.0]),
        "model.mask": torch.zeros(1),
        "b.g": torch.ones(1),
        "model.a.h.3.g": torch.tensor([5.0]),
    }
    result = dict(apply_rules(given.items(), rules))
    assert set(result) == {"a.layers.3.weight", "b.g"}
    assert float(result["a.layers.3.weight"]) == 10


def test_reading_both_formats(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tensors = {"a": torch.arange(3), "b": torch.rand(2, 2)}
    save_file(tensors, tmp_path / "w.safetensors")
    torch.save(tensors, tmp_path / "w.pth")
    with caplog.at_level(logging.INFO):
        for name in ("w.safetensors", "w.pth"):
            read = dict(read_tensors(tmp_path / name))
            assert set(read) == set(tensors)
            assert all(torch.equal(read[key], tensors[key]) for key in tensors)
    assert ["weights_only=True" in record.getMessage() for record in caplog.records] == [True]


class Payload:
    """Would run code when unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("code ran",))


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("none.safetensors", "none.pth"):
        with pytest.raises(MissingFile, match=name):
            list(read_tensors(tmp_path / name))
    for name in ("bad.safetensors", "bad.pth"):
        (tmp_path / name).write_bytes(b"\x00\x01nothing")
        with pytest.raises(WeightMismatch, match=name):
            list(read_tensors(tmp_path / name))
    torch.save({"a": Payload()}, tmp_path / "code.pth")
    torch.save([torch.zeros(1)], tmp_path / "list.pth")
    torch.save({"a": 3}, tmp_path / "number.pth")
    for name in ("code.pth", "list.pth", "number.pth"):
        with pytest.raises(WeightMismatch, match=name):
            list(read_tensors(tmp_path / name))
    assert "code ran" not in capsys.readouterr().out
    torch.save({"state_dict": {"a": torch.zeros(1)}}, tmp_path / "nested.pth")
    assert set(read_pickle(tmp_path / "nested.pth")) == {"state_dict"}
