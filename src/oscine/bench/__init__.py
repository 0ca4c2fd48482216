"""`oscine bench`: speed and memory of one model, its last line one JSON object."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any


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
        help="audio8-0.6b, audio8-0.1b, audex-2b, auk, auk-flash, or a checkpoint folder; default: bundled voice",
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
        help="CPU threads for one operation (default: one for the bundled voice, else all cores)",
    )
    parser.add_argument(
        "--batch",
        type=counts,
        default=(1,),
        metavar="N",
        help="requests at once (default 1); several for audex: 1,4,16",
    )
    parser.add_argument(
        "--parts",
        type=names,
        default=None,
        metavar="P",
        help="what to build and measure (default all); audex: lm,decoder,xcodec,mask; auk: conditioner,dit,vae",
    )
    parser.add_argument("--steps", type=int, default=None, help="auk: solver steps (default: the recipe's)")
    parser.add_argument("--no-guidance", action="store_true", help="auk: evaluate the conditioned branch alone")
    parser.add_argument(
        "--duration", type=float, default=None, metavar="S", help="auk: seconds of the result, instead of --frames"
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
