"""How good a trained model is: speaks the held-out sentences through the public API and lets the judges listen.

`python -m training.report --model FOLDER --teacher FOLDER` writes REPORT.md and REPORT.json. With teacher audio of the
same sentences (`python -m training.data --texts training/heldout.txt --out FOLDER`) the table also shows the teacher,
and with `--codec FOLDER --codes FILE` what the codec alone makes of the teacher's codes: the best a model can sound.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from training import report_text
from training.judges import Floats, Panel, Scores
from training.packages import CACHE
from training.texts import HELD_OUT, read_held_out, read_meta

NUM_REFERENCES = 12
"""Longest clips of the reference folder that make up the voice to compare with."""


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """One sentence spoken by one system, before it is judged; times are seconds, None where they mean nothing."""

    text: str
    samples: Floats
    sample_rate: int
    finish_reason: str = "stop"
    first_audio_s: float | None = None
    rtf: float | None = None
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One rendering with what the judges said; `audio_s` is its length."""

    text: str
    group: str
    audio_s: float
    finish_reason: str
    first_audio_s: float | None
    rtf: float | None
    seed: int | None
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


def from_model(folder: Path, sentences: Sequence[str], seed: int, options: dict[str, Any]) -> Iterator[Rendering]:
    """Speaks each sentence with the model of `folder`; sentence number n gets `seed` + n.

    A sentence whose generation fails is a rendering without samples and the error's code as its finish reason.
    """
    import oscine
    from oscine.errors import GenerationError

    with oscine.load(folder, device="cpu", threads=1, offline=True) as model:
        model.generate("This warms the model up.", seed=seed, **options)
        for number, text in enumerate(sentences):
            try:
                result = model.generate(text, seed=seed + number, **options)
            except GenerationError as error:
                rate = model.capabilities.sample_rate
                nothing = np.zeros(0, dtype=np.float32)
                yield Rendering(text=text, samples=nothing, sample_rate=rate, finish_reason=error.code)
                continue
            yield Rendering(
                text=text,
                samples=result.audio,
                sample_rate=result.sample_rate,
                finish_reason=result.finish_reason,
                first_audio_s=result.timings.first_audio_s,
                rtf=result.timings.rtf if len(result.audio) else None,
                seed=result.seed,
            )


def from_folder(folder: Path, sentences: Sequence[str]) -> Iterator[Rendering]:
    """The clips of a data folder that speak `sentences`; sentences it lacks are left out."""
    rows = {str(row["text"]): row for row in read_meta(folder)}
    for text in sentences:
        if text in rows:
            samples, rate = soundfile.read(str(folder / "audio" / f"{rows[text]['id']}.opus"), dtype="float32")
            yield Rendering(text=text, samples=samples, sample_rate=rate)


def through_codec(folder: Path, codes_file: Path, teacher: Path, sentences: Sequence[str]) -> Iterator[Rendering]:
    """What the codec in `folder` makes of the teacher's own codes (training.factors) for `sentences`."""
    import torch
    from safetensors.torch import load_file

    from training.codec import load_codec
    from training.factors import DELAY, FRAME

    codec, stored = load_codec(folder), load_file(codes_file)
    rows = {str(row["text"]): row for row in read_meta(teacher)}
    rate = codec.config.sample_rate
    for text in sentences:
        if text not in rows or rows[text]["id"] not in stored:
            continue
        begin = time.perf_counter()
        with torch.inference_mode():
            samples = codec.decode(stored[rows[text]["id"]].long()[None])[0, 0, DELAY * FRAME :].numpy()
        rtf = (time.perf_counter() - begin) * rate / len(samples)
        yield Rendering(text=text, samples=samples, sample_rate=rate, rtf=rtf)


def judge_all(panel: Panel, renderings: Iterator[Rendering], name: str, keep: Path | None) -> list[Judged]:
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
        "faultless": _mean([float(result.errors == 0) for result in words]),
        "wer_by_group": {
            group: _mean([item.scores.words.rate for item in judged if item.group == group and item.scores.words])
            for group in report_text.GROUPS
        },
        "naturalness": _mean([item.scores.naturalness for item in judged]),
        "noise": _mean([item.scores.noise for item in judged]),
        "likeness": _mean([item.scores.likeness for item in judged]),
        "rtf": _percentiles([item.rtf for item in judged]),
        "first_audio_s": _percentiles([item.first_audio_s for item in judged]),
        "finish_reasons": dict(Counter(item.finish_reason for item in judged)),
        "empty": sum(item.empty for item in judged),
    }


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
    """Takes the longest clips of a data folder as the voice that likeness is measured against."""
    if folder is None:
        return
    rows = sorted(read_meta(folder), key=lambda row: -int(str(row["samples"])))[:NUM_REFERENCES]
    panel.remember([soundfile.read(str(folder / "audio" / f"{row['id']}.opus"), dtype="float32") for row in rows])


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.report", description="Judges a trained model.")
    parser.add_argument("--model", type=Path, help="checkpoint folder; without it only teacher and codec are judged")
    parser.add_argument("--teacher", type=Path, help="data folder with the held-out sentences spoken by the teacher")
    parser.add_argument("--codec", type=Path, help="folder with codec.safetensors and codec_config.json")
    parser.add_argument("--codes", type=Path, help="codes of the teacher's clips (training.factors), for --codec")
    parser.add_argument("--reference", type=Path, help="data folder for likeness of voice (default: the teacher's)")
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
    if not options.model and not options.teacher:
        parser.error("give --model, --teacher or both")
    if options.codec and not (options.teacher and options.codes):
        parser.error("--codec needs --teacher and --codes, the teacher's sentences as codes")
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
    remember_voice(panel, options.reference or options.teacher)
    systems: dict[str, Callable[[], Iterator[Rendering]]] = {}
    if options.model:
        systems["model"] = lambda: from_model(options.model, sentences, options.seed, options.options)
    if options.codec:
        systems["codec"] = lambda: through_codec(options.codec, options.codes, options.teacher, sentences)
    if options.teacher:
        systems["teacher"] = lambda: from_folder(options.teacher, sentences)
    judged = {name: judge_all(panel, render(), name, options.keep) for name, render in systems.items()}
    report = {
        "environment": environment(options, panel),
        "systems": {name: summary(items) for name, items in judged.items()},
    }
    clips = {name: [asdict(item) for item in items] for name, items in judged.items()}
    if options.beside:
        earlier = json.loads(options.beside.read_text(encoding="utf-8"))
        for old, own in ((earlier["systems"], report["systems"]), (earlier["clips"], clips)):
            own.update({name: value for name, value in old.items() if name not in own})
    options.out.write_text(report_text.markdown(report), encoding="utf-8")
    full = json.dumps({**report, "clips": clips}, indent=1, ensure_ascii=False)
    options.out.with_suffix(".json").write_text(full + "\n", encoding="utf-8")
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
