"""The report as Markdown: one table with a row for each system, one with word errors by kind of sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

GROUPS = ("ordinary", "numbers", "short", "long")

TITLES = {"model": "this model", "codec": "codec alone, on the teacher's codes", "teacher": "teacher"}

NOTES = (
    "WER: mean over sentences, each clipped at 1; numbers count as equal however they are written.",
    "Faultless: sentences without a word error. Empty: no audio, or no word heard in it.",
    "Naturalness: DistillMOS, noise: DNSMOS overall, both 1 (bad) to 5. Likeness: cosine to the teacher's voice.",
    "RTF: wall time over audio time; first audio: from the call to the first samples. One request at a time.",
)


def markdown(report: Mapping[str, Any]) -> str:
    """The whole report, from what `training.report` measured."""
    systems: Mapping[str, Mapping[str, Any]] = report["systems"]
    speed = ["RTF p50 / p90", "first audio p50 / p90"]
    scores = ["", "clips", "WER", "faultless", "naturalness", "noise", "likeness", *speed]
    parts = [
        "# Report on the default voice",
        "\n".join(f"- {note}" for note in NOTES),
        _table(scores, [_row(name, row) for name, row in systems.items()]),
        "WER by kind of sentence:",
        _table(["", *GROUPS], [_groups(name, row) for name, row in systems.items()]),
        "How the generations ended:",
        _table(["", "finish reasons", "empty"], [_endings(name, row) for name, row in systems.items()]),
        "Measured with:",
        "\n".join(f"- {name}: {value}" for name, value in report["environment"].items()),
    ]
    return "\n\n".join(parts) + "\n"


def _row(name: str, row: Mapping[str, Any]) -> list[str]:
    return [
        TITLES[name],
        str(row["clips"]),
        _percent(row["wer"]),
        _percent(row["faultless"]),
        _number(row["naturalness"]),
        _number(row["noise"]),
        _number(row["likeness"], 3),
        _pair(row["rtf"], ""),
        _pair(row["first_audio_s"], " s"),
    ]


def _groups(name: str, row: Mapping[str, Any]) -> list[str]:
    return [TITLES[name], *(_percent(row["wer_by_group"][group]) for group in GROUPS)]


def _endings(name: str, row: Mapping[str, Any]) -> list[str]:
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(row["finish_reasons"].items()))
    return [TITLES[name], reasons, str(row["empty"])]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _pair(value: Mapping[str, float] | None, unit: str) -> str:
    return "-" if value is None else f"{value['p50']:.2f} / {value['p90']:.2f}{unit}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
