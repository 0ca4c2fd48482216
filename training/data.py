"""Makes teacher speech: `python -m training.data --voice am_michael --hours 3 --out DIR`.

The folder holds `audio/<id>.opus` (24 kHz mono) and `meta.jsonl`, one line for each clip: id, voice, text, phonemes,
durations (frames of 600 samples, one for each phoneme and one for each end) and samples. A run that was stopped goes
on where it ended when it is started again with the same arguments: the texts depend on the seed alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from training import texts
from training.kokoro import FRAME_SAMPLES, SAMPLE_RATE, Speech, Teacher
from training.packages import CACHE
from training.phonemes import phonemize
from training.wording import spoken

OPUS_KBITS = 56
MIN_SECONDS, MAX_SECONDS = 0.6, 16.0
MIN_PEAK = 0.05


@dataclass(frozen=True, kw_only=True)
class Clip:
    """One utterance as `meta.jsonl` describes it."""

    id: str
    voice: str
    text: str
    phonemes: str
    durations: tuple[int, ...]
    samples: int


class Folder:
    """A data folder being written: appends clips, counts seconds, knows which texts it has."""

    def __init__(self, path: Path, prefix: str = "") -> None:
        self.path = path
        self.prefix = prefix
        (path / "audio").mkdir(parents=True, exist_ok=True)
        drop_torn_line(path / "meta.jsonl")
        rows = texts.read_meta(path)
        self.texts = [str(row["text"]) for row in rows]
        self.seconds = sum(int(str(row["samples"])) for row in rows) / SAMPLE_RATE

    def add(self, voice: str, text: str, phonemes: str, speech: Speech) -> Clip:
        """Writes the clip's audio, then its line, so that a line always has its audio."""
        clip = Clip(
            id=f"{self.prefix}{len(self.texts):05d}",
            voice=voice,
            text=text,
            phonemes=phonemes,
            durations=speech.durations,
            samples=len(speech.samples),
        )
        write_opus(self.path / "audio" / f"{clip.id}.opus", speech.samples)
        with (self.path / "meta.jsonl").open("a", encoding="utf-8") as meta:
            meta.write(json.dumps(vars(clip), ensure_ascii=False) + "\n")
        self.texts.append(text)
        self.seconds += clip.samples / SAMPLE_RATE
        return clip


def drop_torn_line(path: Path) -> None:
    """Cuts off a last line that a killed run left unfinished; a file that ends in a newline stays as it is."""
    if path.exists():
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            path.write_bytes(content[: content.rfind(b"\n") + 1])


def write_opus(path: Path, samples: np.ndarray) -> None:
    """Writes mono float32 at 24 kHz as Ogg/Opus of `OPUS_KBITS`."""
    # libsndfile maps compression 0..1 to 256..6 kbit/s for each channel.
    level = (256 - OPUS_KBITS) / 250
    partial = path.with_suffix(".part")
    with soundfile.SoundFile(
        partial, "w", SAMPLE_RATE, 1, format="OGG", subtype="OPUS", compression_level=level
    ) as out:
        out.write(samples)
    partial.rename(path)


def problem_of(speech: Speech, max_seconds: float = MAX_SECONDS) -> str | None:
    """Why a clip is unfit for training, or None: wrong length, too short, too long, silent, clipped, not finite."""
    seconds = len(speech.samples) / SAMPLE_RATE
    if sum(speech.durations) * FRAME_SAMPLES != len(speech.samples):
        return f"durations say {sum(speech.durations) * FRAME_SAMPLES} samples, there are {len(speech.samples)}"
    if not MIN_SECONDS <= seconds <= max_seconds:
        return f"{seconds:.1f} s long"
    if not np.isfinite(speech.samples).all():
        return "not finite"
    peak = float(np.abs(speech.samples).max())
    return None if MIN_PEAK <= peak <= 1.0 else f"peak {peak:.3f}"


def generate(
    teacher: Teacher,
    voice: str,
    folder: Folder,
    source: Iterator[str],
    *,
    hours: float = math.inf,
    max_seconds: float = MAX_SECONDS,
    max_load: float | None = None,
) -> int:
    """Speaks texts of `source` into `folder` until it has `hours` or the source ends; returns how many were refused.

    With `max_load` it waits whenever the machine's one-minute load is above that number.
    """
    progress = Progress(folder, hours)
    refused = 0
    for text in source:
        if folder.seconds >= hours * 3600:
            break
        wait_for_quiet(max_load)
        phonemes = phonemize(spoken(text))
        try:
            speech = teacher.speak(phonemes)
            problem = problem_of(speech, max_seconds)
        except ValueError as error:
            problem = str(error)
        if problem:
            refused += 1
            print(f"refused: {text!r}: {problem}", flush=True)
            continue
        folder.add(voice, text, phonemes, speech)
        progress.show()
    return refused


class Progress:
    """A line every 20 clips: clips, audio made, speed of this run and the time left."""

    def __init__(self, folder: Folder, hours: float) -> None:
        self.folder = folder
        self.goal_s = hours * 3600
        self.begin_s = time.perf_counter()
        self.had_s = folder.seconds

    def show(self) -> None:
        """Prints the line when its turn has come."""
        if len(self.folder.texts) % 20:
            return
        spent = time.perf_counter() - self.begin_s
        made = self.folder.seconds - self.had_s
        left_min = max(self.goal_s - self.folder.seconds, 0) * spent / made / 60
        goal = "" if math.isinf(self.goal_s) else f" of {self.goal_s / 60:.1f} min, {left_min:.0f} min left"
        print(
            f"{time.strftime('%H:%M:%S')} {len(self.folder.texts)} clips, {self.folder.seconds / 60:.1f} min{goal}, "
            f"{spent / made:.2f} s per audio second",
            flush=True,
        )


def wait_for_quiet(max_load: float | None, pause_s: float = 30.0) -> None:
    """Returns at once without a limit, else when the one-minute load average is at most `max_load`."""
    while max_load is not None and os.getloadavg()[0] > max_load:
        print(f"load {os.getloadavg()[0]:.1f}, waiting {pause_s:.0f} s", flush=True)
        time.sleep(pause_s)


def check_folder(path: Path) -> list[str]:
    """What is wrong with a data folder: repeated or held-out texts, wrong lengths, missing audio; empty if nothing."""
    held_out = {name for text in texts.read_held_out() for name in texts.sentence_keys(text)}
    problems: list[str] = []
    seen: set[str] = set()
    for row in texts.read_meta(path):
        name, text = str(row["id"]), str(row["text"])
        durations = row["durations"]
        if texts.key(text) in seen:
            problems.append(f"{name}: text repeated: {text}")
        seen.add(texts.key(text))
        if texts.sentence_keys(text) & held_out:
            problems.append(f"{name}: a held-out sentence: {text}")
        if not isinstance(durations, list) or sum(durations) * FRAME_SAMPLES != row["samples"]:
            problems.append(f"{name}: durations do not add up to {row['samples']} samples")
        elif len(durations) != len(str(row["phonemes"])) + 2:
            problems.append(f"{name}: {len(durations)} durations for {len(str(row['phonemes']))} phonemes")
        audio = path / "audio" / f"{name}.opus"
        if not audio.exists() or soundfile.info(str(audio)).frames != row["samples"]:
            problems.append(f"{name}: {audio.name} is missing or not {row['samples']} samples long")
    return problems


def parse_mix(words: str) -> Mapping[str, float]:
    """The text mix of `kind=share,kind=share`."""
    try:
        return {kind: float(share) for kind, share in (item.split("=") for item in words.split(","))}
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{words!r} is not of the form example=0.5,number=0.2") from error


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.data", description="Makes teacher speech for training.")
    parser.add_argument("--out", type=Path, required=True, help="data folder to make or to continue")
    parser.add_argument("--voice", default="am_michael", help="a voice of Kokoro (default %(default)s)")
    parser.add_argument("--hours", type=float, default=1.0, help="audio wanted in all (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="decides the texts (default %(default)s)")
    parser.add_argument(
        "--mix",
        type=parse_mix,
        default=texts.DEFAULT_MIX,
        help="share of each kind of text, for example example=0.5,number=0.2,short=0.3",
    )
    parser.add_argument("--exclude", type=Path, action="append", default=[], help="data folder whose texts to avoid")
    parser.add_argument("--texts", type=Path, help="speak the lines of this file instead (for example heldout.txt)")
    parser.add_argument("--id-prefix", default="", help="put before each id, to join folders later")
    parser.add_argument("--cache", type=Path, default=CACHE, help="downloads and the converted teacher")
    parser.add_argument("--max-load", type=float, help="wait while the load average is above this")
    parser.add_argument("--check", action="store_true", help="only check the folder")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.check:
        problems = check_folder(options.out)
        print("\n".join(problems) or f"{options.out}: {len(texts.read_meta(options.out))} clips, nothing wrong")
        return 1 if problems else 0
    folder = Folder(options.out, options.id_prefix)
    if options.texts:
        lines = texts.read_held_out(options.texts)
        source = iter([line for line in lines if line not in folder.texts])
        limits = {"max_seconds": math.inf}
    else:
        rows = [row for path in [options.out, *options.exclude] for row in texts.read_meta(path)]
        taken = {name for row in rows for name in texts.sentence_keys(str(row["text"]))}
        source = texts.stream(options.seed, mix=options.mix, taken=taken)
        limits = {"hours": options.hours}
    teacher = Teacher(options.voice, options.cache)
    refused = generate(teacher, options.voice, folder, source, max_load=options.max_load, **limits)
    print(f"{len(folder.texts)} clips, {folder.seconds / 60:.1f} min in {options.out}; {refused} texts refused")
    return 0


if __name__ == "__main__":
    sys.exit(main())
