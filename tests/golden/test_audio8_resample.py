"""The resampler against the reference's outputs at every rate the fixture holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from oscine.audio.resample import resample

TO_HZ = 44100
ATOL = 2e-5


def test_equals_the_reference(golden_root: Path) -> None:
    path = golden_root / "audio8" / "resample.safetensors"
    if not path.exists():
        pytest.skip(f"absent: {path.name}")
    tensors = load_file(path)
    assert {name.split(".")[0] for name in tensors} == {"in", "out"}
    rates = sorted(int(name.split(".")[1]) for name in tensors if name.startswith("in."))
    assert rates
    for rate in rates:
        got, want = resample(tensors[f"in.{rate}"], rate, TO_HZ), tensors[f"out.{rate}"]
        assert got.shape == want.shape, f"{rate} Hz: {got.shape} for {want.shape}"
        error = np.abs(got - want)
        assert error.max() <= ATOL, f"{rate} Hz: max error {error.max():.3g} at sample {error.argmax()}"
