"""A script that forgets to close its model ends as it should."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import oscine
model = oscine.load(threads=1, offline=True)
stream = model.stream("A sentence of some length, so that there is something left to do.", seed=1)
chunk = next(stream)
if sys.argv[1] == "whole":
    for _ in stream:
        pass
print(len(chunk.samples) > 0)
"""


@pytest.mark.parametrize("end", ["whole", "midway"])
def test_a_model_left_open_does_not_break_the_end_of_the_process(end: str) -> None:
    """The engine's thread used to be cut off inside torch, which aborted about every second process."""
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, end], capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
