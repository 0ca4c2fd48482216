"""`oscine bench`: speed and memory of one model, its last line one JSON object."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from oscine.registry import families

OPTIONS = {
    "batches": "--batch with several numbers",
    "steps": "--steps",
    "guided": "--no-guidance",
    "duration_s": "--duration",
}
"""What not every family has (`BenchSpec.options`), and its argument."""


def known_names() -> str:
    """The names of what has its dimensions here."""
    return ", ".join(name for spec in families() if spec.bench for name in spec.bench.names)


def _parts() -> str:
    return "; ".join(
        f"{spec.name}: {','.join(spec.bench.parts)}" for spec in families() if spec.bench and spec.bench.parts
    )


def families_with(option: str) -> str:
    """The names of the families that an option means something for."""
    return ", ".join(spec.name for spec in families() if spec.bench and option in spec.bench.options)


def build_parser() -> argparse.ArgumentParser:
    """The arguments of `oscine bench`."""
    parser = argparse.ArgumentParser(
        prog="oscine bench",
        description="Measures a model: a release's dimensions with random weights, or a checkpoint. "
        "The last line of standard output is one JSON object.",
    )
    parser.add_argument(
        "model",
        nargs="?",
        default=None,
        help=f"{known_names()}, or a checkpoint folder; default: bundled voice",
    )
    parser.add_argument(
        "--random-weights", action="store_true", help="real dimensions, random weights (says nothing of quality)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16, float16 or int8 (default auto)")
    parser.add_argument(
        "--threads",
        type=int,
        default=None,
        help="CPU threads for one operation (default: one for small models such as the bundled voice, else all cores)",
    )
    parser.add_argument(
        "--batch",
        type=counts,
        default=(1,),
        metavar="N",
        help=f"requests at once (default 1); several for {families_with('batches')}: 1,4,16",
    )
    parser.add_argument(
        "--parts",
        type=names,
        default=None,
        metavar="P",
        help=f"what to build and measure (default all); {_parts()}",
    )
    parser.add_argument("--steps", type=int, help=f"{families_with('steps')}: solver steps (default: the recipe's)")
    parser.add_argument(
        "--no-guidance", action="store_true", help=f"{families_with('guided')}: evaluate the conditioned branch alone"
    )
    parser.add_argument(
        "--duration",
        type=float,
        metavar="S",
        help=f"{families_with('duration_s')}: seconds of the result, instead of --frames",
    )
    parser.add_argument("--frames", type=int, default=64, help="frames a request makes (default 64)")
    parser.add_argument("--repeats", type=int, default=5, help="measured rounds (default 5)")
    return parser


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers between commas; ValueError for anything else, which argparse reports."""
    return tuple(int(count) for count in text.split(","))


def names(text: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(name.strip() for name in text.split(","))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark and prints its report. Raises `InvalidRequest` for a model or size that is not there."""
    args = build_parser().parse_args(argv)
    from oscine.bench.run import run

    report: dict[str, Any] = run(args)
    for name, value in report.items():
        print(f"{name:>24}: {value}", file=sys.stderr)
    print(json.dumps(report))
    return 0
