"""How good a trained model is: speaks the held-out sentences through the public API and lets the judges listen.

`python -m training.report --model FOLDER --teacher heart=FOLDER --codes heart=FILE --piper` writes REPORT.md and
REPORT.json. For each of the model's voices the report shows every stage at which something may be lost: the teacher
(`training.data --texts training/heldout.txt`), the teacher's codes through our codec (`training.factors`), the codes of
our language model decoded by themselves, and what a user hears. Piper's `joe-medium` stands beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from training import report_text
from training.judges import Panel, Scores
from training.packages import CACHE
from training.systems import OurVoice, Rendering, piper, teacher_clips
from training.texts import HELD_OUT, read_held_out, read_meta

NUM_REFERENCES = 12
"""Longest clips of the reference folder that make up the voice to compare with."""
RESAMPLES, CONFIDENCE = 2000, 95.0
"""Bootstrap over sentences: how often they are drawn anew, and the per cent of the means that an interval holds."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One rendering with what the judges said; `audio_s` is its length, `level` that of its speech in dBFS."""

    text: str
    group: str
    audio_s: float
    finish_reason: str
    first_audio_s: float | None
    rtf: float | None
    seed: int | None
    level: float | None
    scores: Scores

    @property
    def empty(self) -> bool:
        """Whether nothing could be heard: no samples, or the recogniser found no word."""
        words = self.scores.words
        return self.audio_s == 0 or (words is not None and not words.transcript.strip())


def group_of(text: str) -> str:
    """The kind of a held-out sentence: numbers, short (1 to 3 words), long (over 30) or ordinary."""
    words = len(text.split())
    if any(char.isdigit() for char in text):
        return "numbers"
    return "short" if words <= 3 else "long" if words > 30 else "ordinary"


def judge_all(panel: Panel, renderings: Iterable[Rendering], name: str, keep: Path | None) -> list[Judged]:
    """Judges every rendering, saying how far it is; with `keep` also writes each as a WAV file there."""
    judged: list[Judged] = []
    for number, item in enumerate(renderings):
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            soundfile.write(str(keep / f"{name}-{number:03d}.wav"), item.samples, item.sample_rate)
        scores = panel.judge(item.samples, item.sample_rate, item.text)
        judged.append(
            Judged(
                text=item.text,
                group=group_of(item.text),
                audio_s=len(item.samples) / item.sample_rate,
                finish_reason=item.finish_reason,
                first_audio_s=item.first_audio_s,
                rtf=item.rtf,
                seed=item.seed,
                level=active_level(item.samples, item.sample_rate),
                scores=scores,
            )
        )
        words = scores.words
        heard = f"{words.errors}/{words.words} {words.transcript!r}" if words else ""
        print(f"{name} {number}: {item.finish_reason} {judged[-1].audio_s:.1f} s {heard}", file=sys.stderr, flush=True)
    return judged


def summary(judged: Sequence[Judged]) -> dict[str, Any]:
    """Means and percentiles of one system's row; keys are those of the table."""
    words = [item.scores.words for item in judged if item.scores.words]
    return {
        "clips": len(judged),
        "audio_s": sum(item.audio_s for item in judged),
        "wer": _mean([result.rate for result in words]),
        "wer_interval": interval([result.rate for result in words]),
        "faultless": _mean([float(result.errors == 0) for result in words]),
        "wer_by_group": {
            group: _mean([item.scores.words.rate for item in judged if item.group == group and item.scores.words])
            for group in report_text.GROUPS
        },
        "naturalness": _mean([item.scores.naturalness for item in judged]),
        "naturalness_interval": interval([item.scores.naturalness for item in judged]),
        "level": _mean([item.level for item in judged]),
        "noise": _mean([item.scores.noise for item in judged]),
        "likeness": _mean([item.scores.likeness for item in judged]),
        "rtf": _percentiles([item.rtf for item in judged]),
        "first_audio_s": _percentiles([item.first_audio_s for item in judged]),
        "finish_reasons": dict(Counter(item.finish_reason for item in judged)),
        "empty": sum(item.empty for item in judged),
    }


def interval(values: Sequence[float | None]) -> tuple[float, float] | None:
    """The interval that holds CONFIDENCE per cent of the means of sentences drawn anew; None for fewer than two."""
    present = np.array([value for value in values if value is not None])
    if len(present) < 2:
        return None
    drawn = np.random.default_rng(1).integers(0, len(present), (RESAMPLES, len(present)))
    low, high = np.percentile(present[drawn].mean(axis=1), [50 - CONFIDENCE / 2, 50 + CONFIDENCE / 2])
    return float(low), float(high)


def active_level(samples: np.ndarray, rate: int) -> float | None:
    """Level in dBFS of what is spoken: of the 20 ms that are within 30 dB of the loudest; None for silence."""
    size = rate // 50
    powers = np.square(samples[: len(samples) // size * size].reshape(-1, size), dtype=np.float64).mean(axis=1)
    if not len(powers) or powers.max() <= 0:
        return None
    return float(10 * np.log10(powers[powers > powers.max() * 1e-3].mean()))


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else None


def _percentiles(values: Sequence[float | None]) -> dict[str, float] | None:
    present = [value for value in values if value is not None]
    if not present:
        return None
    return {f"p{share}": float(np.percentile(present, share)) for share in (50, 90, 99)}


def environment(options: argparse.Namespace, panel: Panel) -> dict[str, str]:
    """What the numbers depend on besides the model, as name → value."""
    import torch

    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    cpu = next((line.split(":", 1)[1].strip() for line in _cpu_lines() if line.startswith("model name")), "unknown")
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "commit": commit,
        "model": options.model.name if options.model else "none",
        "machine": f"{cpu}, {os.cpu_count()} cores, {platform.system()}",
        "torch": f"{torch.__version__}, {torch.get_num_threads()} thread, float32 on the CPU",
        "seed": f"{options.seed} + number of the sentence",
        "options": json.dumps(options.options),
        "recogniser": f"Whisper {options.whisper}",
        "judges missing": "; ".join(panel.missing) or "none",
        "load average": f"{os.getloadavg()[0]:.1f} at the end",
    }


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def remember_voice(panel: Panel, folder: Path | None) -> None:
    """Takes the longest clips of a data folder as the voice that likeness is measured against; None forgets it."""
    rows = sorted(read_meta(folder), key=lambda row: -int(str(row["samples"])))[:NUM_REFERENCES] if folder else []
    panel.remember([soundfile.read(str(folder / "audio" / f"{row['id']}.opus"), dtype="float32") for row in rows])


def judge_voice(
    panel: Panel, options: argparse.Namespace, ours: OurVoice | None, name: str, sentences: Sequence[str]
) -> dict[str, list[Judged]]:
    """The stages of one voice, each judged; `name` is the model's for it. A voice it lacks has its teacher alone."""
    teacher, codes = options.teacher.get(name), options.codes.get(name)
    remember_voice(panel, teacher)
    if ours and name not in ours.model.voices:
        print(f"the model has no voice {name!r}, only {', '.join(ours.model.voices)}", file=sys.stderr)
        ours = None
    judged: dict[str, list[Judged]] = {}

    def judge(stage: str, renderings: Iterable[Rendering]) -> None:
        judged[f"{name} {stage}"] = judge_all(panel, renderings, f"{name}-{stage}", options.keep)

    if teacher:
        judge("teacher", teacher_clips(teacher, sentences))
    if ours and codes:
        judge("codec", ours.decode_all(codes, teacher, sentences))
    if ours:
        shipped = list(ours.speak(name, sentences, options.seed, options.options))
        judge("codes", (ours.decode(item.text, item.frames) for item in shipped if item.frames))
        judge("shipped", shipped)
    return judged


def _named(argument: str) -> tuple[str, Path]:
    name, mark, path = argument.partition("=")
    if not (name and mark and path):
        raise argparse.ArgumentTypeError(f"{argument!r} is not of the form voice=path")
    return name, Path(path)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.report", description="Judges a trained model.")
    parser.add_argument("--model", type=Path, help="checkpoint folder; without it only the others are judged")
    parser.add_argument("--voice", action="append", help="a voice of the model (default: each that has a --teacher)")
    parser.add_argument(
        "--teacher",
        type=_named,
        action="append",
        default=[],
        metavar="VOICE=FOLDER",
        help="data folder with the held-out sentences spoken by the teacher of a voice",
    )
    parser.add_argument(
        "--codes",
        type=_named,
        action="append",
        default=[],
        metavar="VOICE=FILE",
        help="codes of a teacher's clips (training.factors), to hear what our codec makes of them",
    )
    parser.add_argument("--piper", action="store_true", help="let Piper's joe-medium speak, too")
    parser.add_argument("--sentences", type=Path, default=HELD_OUT, help="text file, one sentence a line")
    parser.add_argument("--limit", type=int, help="take this many sentences only, spread over the list")
    parser.add_argument("--seed", type=int, default=1000, help="seed of the first sentence (default %(default)s)")
    parser.add_argument("--options", type=json.loads, default={}, help='for generate, as JSON: {"temperature": 0.6}')
    parser.add_argument("--beside", type=Path, help="REPORT.json of an earlier run, whose other systems are shown too")
    parser.add_argument("--whisper", choices=["base", "tiny"], default="base", help="recogniser")
    parser.add_argument("--keep", type=Path, help="folder for the audio that was judged")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("REPORT.md"), help="the report to write")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the judges' weights are kept")
    options = parser.parse_args(arguments)
    options.teacher, options.codes = dict(options.teacher), dict(options.codes)
    options.voice = options.voice or list(options.teacher)
    if not options.model and not options.teacher and not options.piper:
        parser.error("give --model, --teacher or --piper")
    if options.model and not options.voice:
        parser.error("--model needs --voice or --teacher, to know which of its voices to judge")
    if set(options.codes) - set(options.teacher) or (options.codes and not options.model):
        parser.error("--codes needs --model, whose codec decodes them, and the --teacher of the same voice")
    return options


def spread(sentences: Sequence[str], limit: int | None) -> list[str]:
    """`limit` sentences at equal distances, so that every kind is among them; all without a limit."""
    if limit is None or limit >= len(sentences):
        return list(sentences)
    return [sentences[index * len(sentences) // limit] for index in range(limit)]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    sentences = spread(read_held_out(options.sentences), options.limit)
    panel = Panel(options.whisper, options.cache)
    for name, message in panel.missing.items():
        print(f"no {name}: {message}", file=sys.stderr)
    ours = OurVoice(options.model) if options.model else None
    judged: dict[str, list[Judged]] = {}
    for name in options.voice:
        judged |= judge_voice(panel, options, ours, name, sentences)
    if options.piper:
        remember_voice(panel, None)
        judged["piper"] = judge_all(panel, piper(sentences, options.cache), "piper", options.keep)
    write_report(options, environment(options, panel), judged)
    return 0


def write_report(options: argparse.Namespace, where: Mapping[str, str], judged: Mapping[str, list[Judged]]) -> None:
    """Writes REPORT.md and REPORT.json, with the systems of an earlier run beside them, and prints the summary."""
    systems = {name: summary(items) for name, items in judged.items()}
    clips = {name: [asdict(item) for item in items] for name, items in judged.items()}
    if options.beside:
        earlier = json.loads(options.beside.read_text(encoding="utf-8"))
        systems, clips = {**earlier["systems"], **systems}, {**earlier["clips"], **clips}
    report = {"environment": where, "systems": systems}
    options.out.write_text(report_text.markdown(report), encoding="utf-8")
    full = json.dumps({**report, "clips": clips}, indent=1, ensure_ascii=False)
    options.out.with_suffix(".json").write_text(full + "\n", encoding="utf-8")
    print(json.dumps(report))


if __name__ == "__main__":
    sys.exit(main())
