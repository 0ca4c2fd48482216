"""Speech that the teacher plans but never speaks: `python -m training.plans --hours 4 --codebook FILE ... --out DIR`.

The language model needs no audio, only codes. Sounds, their lengths and the pitch come from the first half of the
teacher's graph, at a twentieth of the cost of speech; loudness is told from the teacher's energy curve, by a least
squares fit to clips that were spoken. Writes `meta.jsonl` and `codes.safetensors`; resumes like `training.data`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from training import texts
from training.data import MAX_SECONDS, MIN_SECONDS, drop_torn_line, parse_mix
from training.dataset import load_clips, read_meta
from training.factors import (
    FRAME,
    SAMPLE_RATE,
    loudness,
    nearest_loudness,
    phase_codes,
    read_codebook,
    sound_codes,
    sounds,
)
from training.kokoro import FRAME_SAMPLES
from training.packages import CACHE
from training.phonemes import phonemize
from training.prosody import Prosody, ProsodyReader
from training.wording import spoken

FITTED_CLIPS = 120
RIDGE = 1.0
SAVED_TOGETHER = 200


def features(sound: Tensor, energy: npt.NDArray[np.float32], num_sounds: int) -> npt.NDArray[np.float32]:
    """What loudness is told from [half frame, 2 * num_sounds]: the sound, and the energy within that sound.

    sound [2, frame], energy every 300 samples.
    """
    labels = sound.T.flatten().numpy()
    halves = np.zeros(2 * len(labels), dtype=np.float32)
    halves[: len(energy)] = energy[: len(halves)]
    level = halves.reshape(-1, 2).mean(axis=1)
    table = np.zeros((len(labels), 2 * num_sounds), dtype=np.float32)
    table[np.arange(len(labels)), labels] = 1.0
    table[np.arange(len(labels)), num_sounds + labels] = level
    return table


def fit_loudness(data: Path, cache: Path, number: dict[str, int], reader: ProsodyReader) -> npt.NDArray[np.float32]:
    """Weights [2 * num_sounds] from `features` to loudness, from some clips of a spoken folder."""
    records, clips = read_meta(data), load_clips(data, cache)
    inputs, targets = [], []
    for index in range(0, len(records), max(1, len(records) // FITTED_CLIPS)):
        record, samples = records[index], clips.clip(index).numpy()
        if not set(sounds(record["phonemes"])) <= number.keys():
            continue
        num_frames = -(-len(samples) // FRAME)
        found = reader.read(record["phonemes"], record["durations"])
        inputs.append(features(sound_codes(record, number, num_frames), found.energy, len(number)))
        targets.append(loudness(samples, num_frames).reshape(-1))
    x, y = np.concatenate(inputs), np.concatenate(targets)
    weights: npt.NDArray[np.float32] = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ y).astype(np.float32)
    print(f"loudness is off by {12 * np.abs(x @ weights - y).mean():.1f} dB on average", flush=True)
    return weights


def plan_codes(
    record: dict[str, Any], found: Prosody, number: dict[str, int], centres: Tensor, weights: npt.NDArray[np.float32]
) -> Tensor:
    """All codes int64 [6, frame] of an utterance that was only planned."""
    num_frames = -(-record["samples"] // FRAME)
    sound = sound_codes(record, number, num_frames)
    advance, ends, bend = phase_codes(found.phase, num_frames)
    level = np.maximum(features(sound, found.energy, len(number)) @ weights, 0.0).reshape(num_frames, 2)
    return torch.stack([*sound, advance, ends, nearest_loudness(level, centres), bend])


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


def run(options: argparse.Namespace) -> None:
    """Plans texts until there are `--hours` of them."""
    options.out.mkdir(parents=True, exist_ok=True)
    meta = options.out / "meta.jsonl"
    drop_torn_line(meta)
    names, centres = read_codebook(options.codebook)
    number = {name: i for i, name in enumerate(names)}
    reader = ProsodyReader(options.voice, options.cache)
    weights = fit_loudness(options.data, options.clips, number, reader)
    rows = texts.read_meta(options.out)
    folders = [options.out, *options.exclude]
    taken = {key for path in folders for row in texts.read_meta(path) for key in texts.sentence_keys(str(row["text"]))}
    source = texts.stream(options.seed, mix=options.mix, taken=taken)
    seconds, begin = sum(int(str(r["samples"])) for r in rows) / SAMPLE_RATE, time.perf_counter()
    codes = load_file(codes_path) if (codes_path := options.out / "codes.safetensors").exists() else {}
    lines: list[dict[str, Any]] = []
    planning = planned(reader, options.voice, source, options.id_prefix, len(rows))
    while seconds < options.hours * 3600:
        record, found = next(planning)
        if set(sounds(record["phonemes"])) <= number.keys():
            codes[record["id"]] = plan_codes(record, found, number, centres, weights).to(torch.int16)
            lines.append(record)
            seconds += record["samples"] / SAMPLE_RATE
        if len(lines) == SAVED_TOGETHER or seconds >= options.hours * 3600:
            metadata = {"sounds": json.dumps(names), "loudness": json.dumps(centres.tolist())}
            save_file(codes, codes_path.with_suffix(".part"), metadata)
            codes_path.with_suffix(".part").replace(codes_path)  # codes first: a line always has its codes
            with meta.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            lines.clear()
            print(f"{seconds / 60:.0f} min planned after {(time.perf_counter() - begin) / 60:.1f} min", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to make or to continue")
    parser.add_argument("--codebook", type=Path, required=True, help="file of training.factors, whose codes hold here")
    parser.add_argument("--data", type=Path, required=True, help="folder of spoken clips, to tell loudness from")
    parser.add_argument("--clips", type=Path, default=Path("training/runs/clips"), help="its audio cache")
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
