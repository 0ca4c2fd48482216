"""How much memory there is: the kernel's word, and what control groups of either version leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from oscine.engine import memory
from oscine.runtime.memory import available_bytes


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The root of a file system whose kernel says that 5,120,000 bytes are free."""
    write(tmp_path / "proc" / "meminfo", "MemTotal: 9000 kB\nMemAvailable:    5000 kB\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_this_machine_has_some() -> None:
    free = available_bytes()
    assert free is not None
    assert 2**26 < free < 2**50


def test_it_may_not_be_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_bytes(tmp_path) is None
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    assert memory.bytes_for_jobs() == int(memory.ASSUMED_BYTES * memory.MEMORY_SHARE)


def test_what_is_taken_already_is_not_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    assert memory.bytes_for_jobs() == 600
    assert memory.bytes_for_jobs(500) == 300
    assert memory.bytes_for_jobs(2000) == 0


@pytest.mark.parametrize(("limit", "free"), [("max", 5_120_000), ("3000", 2000), ("500", 0)])
def test_a_group_of_version_2(machine: Path, limit: str, free: int) -> None:
    assert available_bytes(machine) == 5_120_000
    group = machine / "sys" / "fs" / "cgroup"
    write(group / "memory.current", "1000\n")
    write(group / "memory.max", f"{limit}\n")
    assert available_bytes(machine) == free


def test_the_tightest_of_nested_groups(machine: Path) -> None:
    """A service has its limit far below the root, where nothing is limited."""
    write(machine / "proc" / "self" / "cgroup", "0::/system.slice/oscine.service\n")
    slice_ = machine / "sys" / "fs" / "cgroup" / "system.slice"
    write(slice_ / "memory.max", "9000\n")
    write(slice_ / "memory.current", "4000\n")
    assert available_bytes(machine) == 5000
    write(slice_ / "oscine.service" / "memory.max", "4000\n")
    write(slice_ / "oscine.service" / "memory.current", "3000\n")
    assert available_bytes(machine) == 1000
    write(slice_ / "oscine.service" / "memory.stat", "anon 1\ninactive_file 700\nactive_file 5\n")
    assert available_bytes(machine) == 1700  # cached files give way


@pytest.mark.parametrize("mounted", ["docker/abc", ""])
def test_a_group_of_version_1(machine: Path, mounted: str) -> None:
    """In a container the path is often the host's, and the group itself stands at the mount."""
    write(machine / "proc" / "self" / "cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n")
    group = machine / "sys" / "fs" / "cgroup" / "memory" / mounted
    write(group / "memory.limit_in_bytes", f"{2**63 - 4096}\n")
    write(group / "memory.usage_in_bytes", "1000\n")
    assert available_bytes(machine) == 5_120_000
    write(group / "memory.limit_in_bytes", "3000\n")
    write(group / "memory.stat", "inactive_file 1\ntotal_inactive_file 400\n")
    assert available_bytes(machine) == 2400
