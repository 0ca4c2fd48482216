"""The load test runs against a server and ends with one JSON object."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "serve.py"


def test_it_measures_a_running_server_and_prints_json(base_url: str) -> None:
    command = [sys.executable, str(SCRIPT), "--url", base_url, "--requests", "2", "--users", "1", "2", "--rates", "20"]
    command += ["--warmup", "0", "--extra", '{"max_new_tokens": 12}']
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    loads = json.loads(done.stdout.splitlines()[-1])["loads"]
    assert list(loads) == ["closed_1", "closed_2", "open_20"]
    for load in loads.values():
        assert (load["requests"], load["failed"]) == (2, 0)
        assert load["ttfa_s"]["p50"] > 0
        assert load["rtf"]["p99"] >= load["rtf"]["p50"] > 0
        assert load["audio_per_s"] > 0
