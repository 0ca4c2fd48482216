"""The report as Markdown: one table with a row for each system, one with word errors by kind of sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

GROUPS = ("ordinary", "numbers", "short", "long")

STAGES = {
    "teacher": "teacher",
    "codec": "teacher's codes through our codec",
    "codes": "our language model's codes, decoded by themselves",
    "shipped": "as a user hears it",
}
"""Stages of a voice, in order; systems are named "<voice> <stage>", or by a key of OTHERS."""

OTHERS = {"piper": "Piper `en_US-joe-medium`"}

NOTES = (
    "WER: mean over sentences, each clipped at 1; numbers count as equal however they are written.",
    "In brackets: what 95 % of the means of sentences drawn anew lie between.",
    "Faultless: sentences without a word error. Empty: no audio, or no word heard in it.",
    "Naturalness: DistillMOS, noise: DNSMOS overall, both 1 (bad) to 5. Likeness: cosine to the teacher's voice.",
    "Level: of what is spoken, pauses left out.",
    "RTF: wall time over audio time; first audio: from the call to the first samples. One request at a time.",
)


def markdown(report: Mapping[str, Any]) -> str:
    """The whole report, from what `training.report` measured."""
    systems: Mapping[str, Mapping[str, Any]] = report["systems"]
    speed = ["RTF p50 / p90", "first audio p50 / p90"]
    scores = ["", "clips", "WER", "faultless", "naturalness", "noise", "likeness", "level", *speed]
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


def title(name: str) -> str:
    """The first cell of a system's row."""
    voice, _, stage = name.rpartition(" ")
    return OTHERS[name] if name in OTHERS else f"{voice}: {STAGES[stage]}"


def _row(name: str, row: Mapping[str, Any]) -> list[str]:
    return [
        title(name),
        str(row["clips"]),
        _percent(row["wer"]) + _between(row.get("wer_interval"), 100, 1),
        _percent(row["faultless"]),
        _number(row["naturalness"]) + _between(row.get("naturalness_interval"), 1, 2),
        _number(row["noise"]),
        _number(row["likeness"], 3),
        "-" if row.get("level") is None else f"{row['level']:.1f} dBFS",
        _pair(row["rtf"], ""),
        _pair(row["first_audio_s"], " s"),
    ]


def _groups(name: str, row: Mapping[str, Any]) -> list[str]:
    return [title(name), *(_percent(row["wer_by_group"][group]) for group in GROUPS)]


def _endings(name: str, row: Mapping[str, Any]) -> list[str]:
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(row["finish_reasons"].items()))
    return [title(name), reasons, str(row["empty"])]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _between(value: Sequence[float] | None, scale: float, digits: int) -> str:
    return "" if value is None else f" ({scale * value[0]:.{digits}f} to {scale * value[1]:.{digits}f})"


def _pair(value: Mapping[str, float] | None, unit: str) -> str:
    return "-" if value is None else f"{value['p50']:.2f} / {value['p90']:.2f}{unit}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
