"""The files for containers and systemd: they start a command that exists and leave it time to end."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from oscine.cli.main import build_parser

ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "examples" / "oscine.service").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]["oscine"]


def seconds_to_stop(arguments: list[str]) -> int:
    assert Path(arguments[0]).name == "oscine"
    parsed = build_parser().parse_args(arguments[1:])
    assert parsed.run.__module__ == "oscine.cli.serve"
    return int(parsed.shutdown_s)


def value(name: str) -> str:
    (found,) = re.findall(rf"^{name}=(.*)$", UNIT, re.M)
    return str(found)


def test_the_unit_starts_a_server_and_leaves_it_time_to_end() -> None:
    assert seconds_to_stop(shlex.split(value("ExecStart"))) < int(value("TimeoutStopSec"))
    assert value("User") == "oscine"


def test_the_container_does_too_and_is_not_root() -> None:
    (entrypoint,) = re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.M)
    assert seconds_to_stop(json.loads(entrypoint)) < int(COMPOSE["stop_grace_period"].removesuffix("s"))
    (uid,) = re.findall(r"^RUN useradd .*--uid (\d+)", DOCKERFILE, re.M)
    assert re.search(rf"^USER {uid}$", DOCKERFILE, re.M)
    (port,) = re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.M)
    assert all(mapping.endswith(f":{port}") for mapping in COMPOSE["ports"])
    assert all(mapping.startswith("127.0.0.1:") for mapping in COMPOSE["ports"])  # the key is up to the user


def test_everything_the_container_copies_is_there_and_in_its_context() -> None:
    context = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = [name for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.M) for name in line.split()[:-1]]
    assert copied
    for name in copied:
        assert (ROOT / name.removeprefix("./")).exists(), name
        assert f"!{name.removeprefix('./')}" in context, name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "oscine.service"
    unit.write_text(UNIT.replace(shlex.split(value("ExecStart"))[0], sys.executable), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
