"""`oscine inspect`: what a checkpoint folder holds, without loading it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from oscine.cli.arguments import print_json
from oscine.cli.units import human_bytes, human_count

if TYPE_CHECKING:
    from oscine.checkpoint.folder import FolderInfo


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Adds the command to the `oscine` parser."""
    parser = commands.add_parser(
        "inspect",
        parents=[common],
        help="show what a checkpoint holds",
        description="Show what a checkpoint holds; reads headers only, runs none of its code, downloads nothing.",
    )
    parser.add_argument(
        "folder", nargs="?", metavar="FOLDER", help="a folder or a hub id that is cached. Default: the bundled voice"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the description of the folder."""
    from oscine.checkpoint.folder import describe_folder
    from oscine.checkpoint.hub import resolve_source

    report = _report(describe_folder(resolve_source(args.folder, download=False)))
    if args.json:
        print_json(report)
    else:
        _print(report)
    return 0


def _report(info: FolderInfo) -> dict[str, Any]:
    from oscine.registry import families

    family = next((spec.name for spec in families() if info.model_type in spec.model_types), None)
    return {
        "path": str(info.path),
        "model_type": info.model_type,
        "supported": family is not None,
        "family": family,
        "licence": info.licence,
        "parameters": info.num_parameters,
        "weight_bytes": info.weight_bytes,
        "weights": [
            {"name": file.name, "bytes": file.size, "tensors": file.tensors, "parameters": file.parameters}
            for file in info.weights
        ],
        "other_files": info.other_files,
        "ignored_code": list(info.ignored_code),
        "config": info.config,
    }


def _print(report: dict[str, Any]) -> None:
    supported = f"family {report['family']}" if report["supported"] else "not supported by this version"
    print(f"folder      {report['path']}")
    print(f"model_type  {report['model_type']} ({supported})")
    print(f"licence     {report['licence']}")
    print(f"parameters  {human_count(report['parameters'])}, {human_bytes(report['weight_bytes'])} of weights")
    for file in report["weights"]:
        counts = file["parameters"]
        detail = "pickle, not counted"
        if counts is not None:
            detail = f"{file['tensors']} tensors, " + ", ".join(f"{human_count(n)} {t}" for t, n in counts.items())
        print(f"  {file['name']:<32} {human_bytes(file['bytes']):>9}  {detail}")
    for name, size in report["other_files"].items():
        print(f"  {name:<32} {human_bytes(size):>9}")
    for name in report["ignored_code"]:
        print(f"  {name:<32} ignored: code from a checkpoint is never run")
