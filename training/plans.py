"""Speech that the teacher plans but never speaks: `python -m training.plans --voice af_heart --hours 4 --out DIR`.

The language model needs no audio, only codes, and those follow from what the first half of the teacher's graph says:
sounds, their lengths, pitch and energy, at a twentieth of the cost of speech. Writes `meta.jsonl` and `prosody.npz` as
`training.data` and `training.prosody` do, so that `training.factors` makes the codes; resumes like `training.data`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from training import texts
from training.data import MAX_SECONDS, MIN_SECONDS, SAMPLE_RATE, drop_torn_line, parse_mix
from training.kokoro import FRAME_SAMPLES
from training.packages import CACHE
from training.phonemes import phonemize
from training.prosody import CURVES, Prosody, ProsodyReader, joined, write_curves
from training.wording import spoken

SAVED_TOGETHER = 500


def planned(
    reader: ProsodyReader, voice: str, source: Iterator[str], prefix: str, first: int
) -> Iterator[tuple[dict[str, Any], Prosody]]:
    """(line of meta.jsonl, prosody) of each text that the teacher can speak, neither too short nor too long."""
    count = first
    for text in source:
        phonemes = phonemize(spoken(text))
        try:
            found = reader.plan(phonemes)
        except ValueError as error:
            print(f"refused: {text!r}: {error}", flush=True)
            continue
        samples = sum(found.durations) * FRAME_SAMPLES
        if MIN_SECONDS <= samples / SAMPLE_RATE <= MAX_SECONDS:
            record = {"id": f"{prefix}{count:05d}", "voice": voice, "text": text, "phonemes": phonemes}
            yield {**record, "durations": list(found.durations), "samples": samples}, found
            count += 1


class Folder:
    """A folder of plans being written: lines and their curves wait until `save`, which leaves both or neither."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.meta, self.curves = path / "meta.jsonl", path / "prosody.npz"
        drop_torn_line(self.meta)
        rows = texts.read_meta(path)
        self.count = len(rows)
        self.seconds = sum(int(str(row["samples"])) for row in rows) / SAMPLE_RATE
        self._old = _first(dict(np.load(self.curves)), self.count) if self.curves.exists() else None
        self._lines: list[dict[str, Any]] = []
        self._parts: list[Prosody] = []

    def add(self, line: dict[str, Any], found: Prosody) -> None:
        """One text more."""
        self._lines.append(line)
        self._parts.append(found)
        self.count += 1
        self.seconds += line["samples"] / SAMPLE_RATE

    @property
    def waiting(self) -> int:
        """Texts that a crash would lose."""
        return len(self._lines)

    def save(self) -> None:
        """Writes what waits: the curves first, so that a line always has its curves."""
        if not self._lines:
            return
        self._old = joined(self._old, [line["id"] for line in self._lines], self._parts)
        write_curves(self.curves, self._old)
        with self.meta.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in self._lines)
        self._lines, self._parts = [], []


def _first(curves: dict[str, Any], count: int) -> dict[str, Any]:
    """The curves of the first `count` texts: those of lines that a crash kept from being written are cut off."""
    end = curves["starts"][count]
    values = {name: curves[name][:end] for name in CURVES}
    return {"ids": curves["ids"][:count], "starts": curves["starts"][: count + 1], **values}


def run(options: argparse.Namespace) -> None:
    """Plans texts until there are `--hours` of them."""
    folder = Folder(options.out)
    reader = ProsodyReader(options.voice, options.cache)
    folders = [options.out, *options.exclude]
    taken = {key for path in folders for row in texts.read_meta(path) for key in texts.sentence_keys(str(row["text"]))}
    source = texts.stream(options.seed, mix=options.mix, taken=taken)
    planning, begin = planned(reader, options.voice, source, options.id_prefix, folder.count), time.perf_counter()
    while folder.seconds < options.hours * 3600:
        folder.add(*next(planning))
        if folder.waiting == SAVED_TOGETHER:
            folder.save()
            print(f"{folder.seconds / 60:.0f} min planned, {(time.perf_counter() - begin) / 60:.1f} min", flush=True)
    folder.save()
    print(f"{folder.count} texts, {folder.seconds / 60:.0f} min in {options.out}", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to make or to continue")
    parser.add_argument("--voice", default="am_michael")
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=2, help="decides the texts")
    parser.add_argument(
        "--mix", type=parse_mix, default=texts.DEFAULT_MIX, help="share of each kind of text, as in data"
    )
    parser.add_argument("--exclude", type=Path, action="append", default=[], help="data folder whose texts to avoid")
    parser.add_argument("--id-prefix", default="p", help="put before each id")
    parser.add_argument("--cache", type=Path, default=CACHE)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
