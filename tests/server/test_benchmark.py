"""The load test runs against a server and ends with one JSON object."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "serve.py"


def test_it_measures_a_running_server_and_prints_json(base_url: str) -> None:
    command = [sys.executable, str(SCRIPT), "--url", base_url, "--requests", "2", "--users", "1", "2", "--rates", "20"]
    command += ["--warmup", "0", "--extra", '{"max_new_tokens": 12}']
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    assert report.keys() >= {"model", "url", "commit", "cpus", "threads", "python"}
    loads = report["loads"]
    assert list(loads) == ["closed_1", "closed_2", "open_20"]
    for load in loads.values():
        assert (load["requests"], load["failed"], load["failures"]) == (2, 0, {})
        assert load["ttfa_s"]["p50"] > 0
        assert load["rtf"]["p99"] >= load["rtf"]["p50"] > 0
        assert load["underrun_s"]["p99"] >= load["underrun_s"]["p50"] >= 0
        assert load["requests_per_s"] * load["wall_s"] == pytest.approx(2, rel=0.01)
        assert load["audio_per_s"] > 0


def test_what_fails_is_counted_by_kind_and_nowhere_else(base_url: str) -> None:
    command = [sys.executable, str(SCRIPT), "--url", base_url, "--requests", "3", "--users", "1", "--rates"]
    command += ["--warmup", "0", "--extra", '{"colour": "red"}']
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    load = json.loads(done.stdout.splitlines()[-1])["loads"]["closed_1"]
    assert (load["failed"], load["failures"], load["ttfa_s"], load["requests_per_s"]) == (3, {"400": 3}, None, 0)


def test_a_load_ends_in_time_and_says_how_far_it_is(base_url: str) -> None:
    command = [sys.executable, str(SCRIPT), "--url", base_url, "--requests", "1000", "--users", "2", "--rates"]
    command += ["--warmup", "0", "--seconds", "1", "--extra", '{"max_new_tokens": 12}']
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    load = json.loads(done.stdout.splitlines()[-1])["loads"]["closed_2"]
    assert 1 <= load["wall_s"] < 20
    assert load["requests"] < 1000
    assert 0 < load["unfinished"] <= 2
    assert "closed_2: 1000 requests, 1 s at most" in done.stderr


def test_a_server_that_does_not_start_is_no_silent_wait() -> None:
    command = [sys.executable, str(SCRIPT), "--model", "no/such/folder", "--requests", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert "the server ended with 2" in done.stderr
    assert "no/such/folder" in done.stderr.splitlines()[-1]


def test_percentiles_are_values_that_so_many_do_not_exceed() -> None:
    spec = importlib.util.spec_from_file_location("serve_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    assert module.percentiles([float(value) for value in range(1, 101)]) == {"p50": 50.5, "p90": 90, "p99": 99}
    assert module.percentiles([3.0]) == {"p50": 3, "p90": 3, "p99": 3}
    assert module.percentiles([]) is None
