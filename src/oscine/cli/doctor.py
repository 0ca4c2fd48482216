"""`oscine doctor`: what this machine has, what each known model needs, and whether it fits."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
from pathlib import Path
from typing import Any

from oscine.cli.arguments import print_json
from oscine.cli.units import human_bytes, human_count
from oscine.errors import MissingFile
from oscine.registry import HEADROOM_BYTES, RUNTIME_BYTES, Release, families
from oscine.runtime.memory import available_bytes

_CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8", "asimd", "bf16", "i8mm")
_DTYPES = {"float32": 4, "bfloat16": 2}
RESIDENT, IN_TURN = "all parts stay in memory", "its two largest parts take turns"
_OPTIONAL = {"av": "aac, m4a, webm", "fastapi": "server"}


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Adds the command to the `oscine` parser."""
    parser = commands.add_parser(
        "doctor",
        parents=[common],
        help="show what this machine can run",
        description="Show what this machine has and which models fit it. Loads no model and uses no network.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the report."""
    machine = _machine()
    report = {
        "machine": machine,
        "exactness": _exactness(),
        "bundled": _bundled(machine["free_bytes"]),
        "families": {
            spec.name: {"model_types": list(spec.model_types), "backends": dict(spec.backends())} for spec in families()
        },
        "models": _models(machine["free_bytes"], machine["device_bytes"]),
        "optional_packages": {name: importlib.util.find_spec(name) is not None for name in _OPTIONAL},
    }
    if args.json:
        print_json(report)
    else:
        _print(report)
    return 0


def _machine() -> dict[str, Any]:
    from importlib.metadata import version

    import torch

    import oscine

    cuda = torch.cuda.is_available()
    return {
        "oscine": oscine.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": version("numpy"),
        "system": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "device_bytes": torch.cuda.mem_get_info()[0] if cuda else None,
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cpu_features": cpu_features(Path("/proc/cpuinfo")),
        "free_bytes": available_bytes(),
    }


def cpu_features(cpuinfo: Path) -> list[str]:
    """Which of the features that matter for speed the system lists; empty where it lists none."""
    if not cpuinfo.is_file():
        return []
    for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.lower().startswith(("flags", "features")):
            present = set(line.split(":", 1)[1].split())
            return [flag for flag in _CPU_FLAGS if flag in present]
    return []


def _exactness() -> dict[str, Any]:
    """The rule under which a request's audio does not depend on its neighbours, as this machine allows it."""
    import torch

    from oscine.runtime.exact import check_exact

    rule = check_exact("cuda" if torch.cuda.is_available() else "cpu", torch.float32)
    return {
        "holds": not rule.reason,
        "min_rows": rule.rows.least,
        "max_rows": rule.rows.most,
        "width_multiple": rule.width.multiple,
        "reason": rule.reason,
    }


def _bundled(free: int | None) -> dict[str, Any] | None:
    from oscine.checkpoint.folder import describe_folder
    from oscine.checkpoint.hub import bundled_folder

    try:
        info = describe_folder(bundled_folder())
    except MissingFile:
        return None
    uncounted = sum(file.size for file in info.weights if file.parameters is None)
    needed = 4 * info.num_parameters + uncounted + RUNTIME_BYTES
    return {
        "name": "bundled voice",
        "licence": info.licence,
        "parameters": info.num_parameters,
        "needed_bytes": {"float32": needed},
        "fits": {"float32": _fits(needed, free)},
        "cached": str(info.path),
    }


def _models(free: int | None, on_device: int | None) -> list[dict[str, Any]]:
    from oscine.checkpoint.hub import cached_folder

    models = []
    for family, release in ((spec.name, release) for spec in families() for release in spec.releases):
        needed = {"float32": release.memory(4), "bfloat16": release.memory(2)}
        if release.in_turn is not None:
            needed["float32, parts in turn"] = release.memory(4, in_turn=True)
            needed["bfloat16, parts in turn"] = release.memory(2, in_turn=True)
        if (int8 := release.int8_memory()) is not None:
            needed["int8"] = int8
        cached = next((folder for name in release.hub_ids if (folder := cached_folder(name))), None)
        models.append(
            {
                "name": release.name,
                "family": family,
                "hub_ids": list(release.hub_ids),
                "licence": release.licence,
                "lm_parameters": release.lm_parameters,
                "needed_bytes": needed,
                "fits": {dtype: _fits(size, free) for dtype, size in needed.items()},
                "plan": plan_of(release, on_device if on_device is not None else free),
                "cached": None if cached is None else str(cached),
            }
        )
    return models


def plan_of(release: Release, free: int | None) -> dict[str, str]:
    """What loading would do, by dtype, with `free` bytes where the model runs; empty where there is no choice."""
    if release.in_turn is None or free is None:
        return {}
    weights = {name: release.lm_parameters * size + release.codec_bytes for name, size in _DTYPES.items()}
    return {name: RESIDENT if size + HEADROOM_BYTES <= free else IN_TURN for name, size in weights.items()}


def _fits(needed: int, free: int | None) -> bool | None:
    return None if free is None else needed <= free


def _print(report: dict[str, Any]) -> None:
    machine, exact = report["machine"], report["exactness"]
    print(f"oscine {machine['oscine']}, python {machine['python']}, torch {machine['torch']}, {machine['system']}")
    print(f"device      {machine['device']}, {machine['cpus']} CPUs, {machine['threads']} threads")
    print(f"cpu         {machine['cpu_capability']} ({' '.join(machine['cpu_features']) or 'features not listed'})")
    free = machine["free_bytes"]
    print(f"memory      {'unknown' if free is None else human_bytes(free) + ' free'}")
    state = "holds" if exact["holds"] else f"slower rule ({exact['reason']})"
    print(f"exactness   {state}: calls of {exact['min_rows']} to {exact['max_rows'] or 'any number of'} rows")
    for name, family in report["families"].items():
        there = [backend for backend, is_there in family["backends"].items() if is_there]
        missing = [backend for backend in family["backends"] if backend not in there]
        without = f"; without {', '.join(missing)}, which would be faster: docs/{name}.md" if missing else ""
        print(f"family      {name}: {', '.join(there)}{without}")
    for name, purpose in _OPTIONAL.items():
        if not report["optional_packages"][name]:
            print(f"missing     {name} ({purpose}): pip install 'oscine[server]'")
    if report["bundled"] is None:
        print("\nbundled voice: not in this installation")
    for model in [*filter(None, [report["bundled"]]), *report["models"]]:
        print(f"\n{model['name']}: licence {model['licence']}")
        width = max(9, *map(len, model["needed_bytes"]))
        for dtype, needed in model["needed_bytes"].items():
            verdict = {True: "fits", False: "DOES NOT FIT", None: "unknown whether it fits"}[model["fits"][dtype]]
            print(f"  {dtype:<{width}} needs {human_bytes(needed)}: {verdict}")
        for dtype, plan in model.get("plan", {}).items():
            print(f"  {dtype:<{width}} plan: {plan}")
        if "parameters" in model:
            print(f"  {human_count(model['parameters'])} parameters")
        print(
            f"  {'in ' + model['cached'] if model['cached'] else 'not downloaded; load it as ' + model['hub_ids'][0]}"
        )
