"""Rounded rotary tables, bit for bit, and what they do to vectors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from oscine.families.audio8.model.dense import RopeTable
from oscine.layers.rope import rope_table, rotate_interleaved
from tests.golden.audio8_files import assert_close, assert_equal, find


def test_tables_and_rotations(golden_root: Path, subtests: pytest.Subtests) -> None:
    for file in find(golden_root, "rope*.safetensors"):
        for name, spec in file.meta["specs"].items():
            with subtests.test(f"{file.name}:{name}"):
                rows, x = file[f"{name}_rows"], file[f"{name}_x"]
                whole = RopeTable(spec["length"], spec["head_dim"], spec["base"], torch.bfloat16)
                assert_equal(whole(rows), file[name], f"{name} by table")
                direct = rope_table(rows, spec["head_dim"], spec["base"], round_to=torch.bfloat16)
                assert_equal(direct, file[name], f"{name} by position")
                assert_close(rotate_interleaved(x, whole(rows)), file[f"{name}_y"], f"{name} rotation")
