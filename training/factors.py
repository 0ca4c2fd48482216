"""Speech as factors, one code each: `python -m training.factors --data DIR --prosody FILE --out FILE`.

The codes of our voices are not found by an encoder but read off the teacher: what sound is heard in the first and in
the second half of a frame, how far the phase of the voice advances in it and how unevenly, and how loud the teacher
means the halves to be. Such codes are easy to predict from text, and all of them are known before the teacher speaks.

    codebook   0      1       2        3         4
    code       sound  sound   advance  loudness  bend     one frame: 50 ms, two alignment frames of the teacher

All codebooks share one range of codes, cut into parts (`SOUNDS`, `ADVANCES`, `LOUDNESSES`, `BENDS`), so that no code
means two things. Each speaker has sounds of their own, so every frame says who speaks.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from training.dataset import ALIGNMENT_FRAME, read_meta
from training.prosody import PITCH_HOP

SAMPLE_RATE = 24_000
FRAME = 2 * ALIGNMENT_FRAME
SPEAKERS = ("am_michael", "af_heart")
"""Voices of the teacher; the place is the number of the speaker tag and of the range of sounds."""

SOUNDS_EACH = 128
SOUNDS, ADVANCES = range(0, 256), range(256, 896)
LOUDNESSES, BENDS = range(896, 1024), range(1024, 1152)
CODEBOOK_SIZE = 1152
NUM_CODEBOOKS = 5
ADVANCE_CODEBOOK, LOUDNESS_CODEBOOK, BEND_CODEBOOK = 2, 3, 4
CYCLE_UNITS = 32
"""Parts of a cycle in which advance and bend count."""

LEAD, TAIL = 1, 2  # frames of silence around speech that the language model speaks
QUIETEST, SPEECH_ENERGY = -3.0, 0.0
"""Energy (natural log) below which all silence is alike, and above which there is speech: about -65 and -52 dBFS."""

SILENCE = "<silence>"


@dataclass(frozen=True, kw_only=True)
class Curves:
    """The teacher's plan of a clip every PITCH_HOP samples: pitch in Hz, phase in cycles, energy (natural log)."""

    pitch: npt.NDArray[np.float32]
    phase: npt.NDArray[np.float32]
    energy: npt.NDArray[np.float32]


def sounds(phonemes: str) -> list[str]:
    """For each character the sound heard while it lasts: a vowel with its stress; length marks prolong the last."""
    heard = list(phonemes)
    for i, symbol in enumerate(heard):
        if symbol == "ː" and i:
            heard[i] = heard[i - 1]
        elif i and heard[i - 1] in ("ˈ", "ˌ"):
            heard[i] = heard[i - 1] = heard[i - 1] + symbol
    return heard


def phase_points(phase: npt.NDArray[np.float32], num_frames: int) -> npt.NDArray[np.int64]:
    """The phase at starts, middles and ends of frames [2 * num_frames + 1] in units of 1 / CYCLE_UNITS cycles."""
    times = (np.arange(len(phase)) + 0.5) * PITCH_HOP
    points = np.interp(np.arange(2 * num_frames + 1) * (FRAME // 2), times, phase.astype(np.float64))
    return np.round(points * CYCLE_UNITS).astype(np.int64)


def phase_codes(phase: npt.NDArray[np.float32], num_frames: int) -> tuple[Tensor, Tensor]:
    """(advance, bend) codes [frame] from the phase in cycles every PITCH_HOP samples.

    Phases at frame boundaries are rounded; the advance is the difference of two, so errors never add up. The bend is
    how far the phase at the middle is ahead of half of the advance.
    """
    units = phase_points(phase, num_frames)
    starts, middles, ends = units[:-2:2], units[1::2], units[2::2]
    advance = np.clip(ends - starts, 0, len(ADVANCES) - 1)
    half = len(BENDS) // 2
    bend = np.clip(middles - starts - (ends - starts) // 2, -half, half - 1)
    return torch.from_numpy(ADVANCES.start + advance), torch.from_numpy(BENDS.start + half + bend)


def loudness(energy: npt.NDArray[np.float32], num_frames: int) -> npt.NDArray[np.float32]:
    """The teacher's energy in both halves of each frame [frame, 2], from its curve every PITCH_HOP samples."""
    quarters = np.full(4 * num_frames, energy[-1], dtype=np.float32)
    quarters[: len(energy)] = energy[: len(quarters)]
    return np.maximum(quarters.reshape(num_frames, 2, 2).mean(axis=2), QUIETEST)


def centroids(points: npt.NDArray[np.float32], seed: int = 1) -> Tensor:
    """Centres [code, 2] of the loudness codes: k-means over `points` [n, 2], sorted by mean loudness."""
    generator = np.random.default_rng(seed)
    some = points[generator.choice(len(points), min(len(points), 20_000), replace=False)]
    centres = some[generator.choice(len(some), len(LOUDNESSES), replace=False)]
    for _ in range(30):
        nearest = np.square(some[:, None] - centres[None]).sum(-1).argmin(1)
        for code in range(len(centres)):
            own = some[nearest == code]
            centres[code] = own.mean(0) if len(own) else some[generator.integers(len(some))]
    return torch.from_numpy(centres[np.argsort(centres.mean(1))])


def nearest_loudness(points: npt.NDArray[np.float32], centres: Tensor) -> Tensor:
    """Loudness codes [frame] of points [frame, 2]."""
    return LOUDNESSES.start + torch.cdist(torch.from_numpy(points), centres).argmin(1)


def sound_codes(record: dict, number: dict[str, int], num_frames: int) -> Tensor:
    """Sound codes [2, frame] of a line of `meta.jsonl`; KeyError for a sound that has no number."""
    spoken = [number[sound] for sound in sounds(record["phonemes"])]
    track = np.repeat([0, *spoken, 0], record["durations"])
    padded = np.zeros(2 * num_frames, dtype=np.int64)
    padded[: len(track)] = track[: len(padded)]
    first = SOUNDS_EACH * SPEAKERS.index(record["voice"])
    return torch.from_numpy(padded.reshape(num_frames, 2).T + first)


def clip_codes(record: dict, curves: Curves, number: dict[str, int], centres: Tensor) -> Tensor:
    """All codes int64 [5, frame] of an utterance, spoken or only planned: a line of `meta.jsonl` and its curves."""
    num_frames = -(-record["samples"] // FRAME)
    advance, bend = phase_codes(curves.phase, num_frames)
    level = nearest_loudness(loudness(curves.energy, num_frames), centres)
    return torch.stack([*sound_codes(record, number, num_frames), advance, level, bend])


def code_features(centres: Tensor) -> Tensor:
    """What a code means as numbers [CODEBOOK_SIZE, 64]: the first content of every codebook.

    Sounds are random directions, the same for all speakers beside one that says who it is. An advance is a fine and a
    coarse description of itself, among them the angles by which the phase has turned after each quarter of the frame.
    """
    features = torch.zeros(CODEBOOK_SIZE, 64)
    generator = torch.Generator().manual_seed(1)
    own = 0.7 * torch.randn(SOUNDS_EACH, 56, generator=generator)
    for speaker in range(len(SPEAKERS)):
        rows = slice(speaker * SOUNDS_EACH, (speaker + 1) * SOUNDS_EACH)
        features[rows, :56] = own
        features[rows, 56 + speaker] = 2.0
    speeds = [k / 4 / CYCLE_UNITS for k in (1, 2, 3, 4)] + [1 / 2048, 1 / 1024, 1 / 512, 1 / 256, 1 / 128]
    features[ADVANCES.start : ADVANCES.stop, :18] = _turns(torch.arange(len(ADVANCES)), speeds)
    features[ADVANCES.start : ADVANCES.stop, 18] = torch.arange(len(ADVANCES)) / 160.0 - 1.0
    features[ADVANCES.start : ADVANCES.stop, 19] = (torch.arange(len(ADVANCES)) >= 80).float() * 2.0 - 1.0
    bends = torch.arange(len(BENDS)) - len(BENDS) // 2
    features[BENDS.start : BENDS.stop, :12] = _turns(bends, [k / CYCLE_UNITS for k in range(1, 7)])
    features[BENDS.start : BENDS.stop, 12] = bends / 12.0
    spread = (centres - centres.mean(0)) / centres.std(0)
    features[LOUDNESSES.start : LOUDNESSES.stop, :2] = 2.0 * spread
    features[LOUDNESSES.start : LOUDNESSES.stop, 2] = (spread[:, 0] - spread[:, 1]) * 4.0
    for i in range(16):  # each level also by bumps along its range, so that what depends on it need not be linear
        for half in (0, 1):
            distance = spread[:, half] - (i - 8) / 4.0
            features[LOUDNESSES.start : LOUDNESSES.stop, 3 + 2 * i + half] = torch.exp(-8.0 * distance.square())
    return features


def _turns(values: Tensor, speeds: Sequence[float]) -> Tensor:
    angles = 2.0 * torch.pi * values[:, None] * torch.tensor(speeds)
    return torch.cat([angles.cos(), angles.sin()], dim=1)


def read_curves(path: Path) -> dict[str, Curves]:
    """The curves of each clip in a file of `training.prosody`."""
    content = np.load(path)
    starts, parts = content["starts"], {name: content[name] for name in ("pitch", "phase", "energy")}
    spans = zip(content["ids"].tolist(), starts[:-1], starts[1:], strict=True)
    return {name: Curves(**{key: part[a:b] for key, part in parts.items()}) for name, a, b in spans}


def speech_frames(codes: Tensor, centres: Tensor) -> slice:
    """The frames of a clip from LEAD before its first sound to TAIL behind its last, by codes [C, frame].

    Raises ValueError for a clip without a sound.
    """
    levels = centres[codes[LOUDNESS_CODEBOOK] - LOUDNESSES.start].amax(dim=1)
    loud = (levels > SPEECH_ENERGY).nonzero().flatten()
    if not len(loud):
        raise ValueError("nothing in this clip is louder than silence")
    return slice(max(0, int(loud[0]) - LEAD), min(codes.shape[1], int(loud[-1]) + 1 + TAIL))


def read_codebook(path: Path) -> tuple[list[str], Tensor]:
    """(sounds, loudness centres [128, 2]) in the metadata of a file of codes."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    return json.loads(metadata["sounds"]), torch.tensor(json.loads(metadata["loudness"]))


def new_codebook(folders: Sequence[tuple[Iterable[dict], dict[str, Curves]]]) -> tuple[list[str], Tensor]:
    """(sounds, loudness centres) of the records and curves of some folders."""
    records = [record for rows, curves in folders for record in rows if record["id"] in curves]
    names = sorted({sound for record in records for sound in sounds(record["phonemes"])})
    if len(names) + 1 > SOUNDS_EACH:
        raise ValueError(f"{len(names)} different sounds, there is room for {SOUNDS_EACH - 1}")
    energies = [curve.energy for _, curves in folders for curve in list(curves.values())[::4]]
    return [SILENCE, *names], centroids(np.concatenate([loudness(e, -(-len(e) // 4)) for e in energies]))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, action="append", required=True, help="folder with meta.jsonl")
    parser.add_argument("--prosody", type=Path, action="append", required=True, help="its file of training.prosody")
    parser.add_argument("--codebook", type=Path, help="file of codes whose sounds and loudness centres hold here too")
    parser.add_argument("--out", type=Path, action="append", required=True, help="file to write for the folder")
    options = parser.parse_args()
    folders = [(read_meta(data), read_curves(path)) for data, path in zip(options.data, options.prosody, strict=True)]
    names, centres = read_codebook(options.codebook) if options.codebook else new_codebook(folders)
    number = {name: i for i, name in enumerate(names)}
    for (records, curves), out in zip(folders, options.out, strict=True):
        known = [r for r in records if r["id"] in curves and set(sounds(r["phonemes"])) <= number.keys()]
        codes = {r["id"]: clip_codes(r, curves[r["id"]], number, centres).to(torch.int16) for r in known}
        save_file(codes, out, {"sounds": json.dumps(names), "loudness": json.dumps(centres.tolist())})
        frames = sum(c.shape[1] for c in codes.values())
        print(f"{out}: {len(codes)} of {len(records)} clips, {frames} frames, {len(names)} sounds")


if __name__ == "__main__":
    main()
