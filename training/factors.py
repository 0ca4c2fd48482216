"""Speech as factors, one code each: `python -m training.factors --data DIR --prosody FILE --out FILE`.

The codes of our voice are not found by an encoder but read off the teacher: what sound is heard in the first and in the
second half of a frame, how far the phase of the voice advances in it, where that phase ends, and how loud the halves
are. Such codes are easy to predict from text, and the phase makes every vowel one unbroken wave: the decoder need
not guess how the periods of two frames fit together. The bend tells where the phase is in the middle of the frame:
without it the start of a voice, and every glide, would be off by a quarter of a period.

    codebook   0      1       2        3      4         5
    code       sound  sound   advance  phase  loudness  bend     one frame: 50 ms, two alignment frames of the teacher

All codebooks share one range of codes, cut into parts (`SOUNDS`, `PHASES`, `LOUDNESSES`, `ADVANCES`, `BENDS`), so that
no code means two things.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from training.dataset import ALIGNMENT_FRAME, Clips, load_clips, read_meta
from training.prosody import PITCH_HOP

SAMPLE_RATE = 24_000
FRAME = 2 * ALIGNMENT_FRAME
DELAY = 2
"""Frames between a code and the sound it describes: what the decoder hears ahead."""

SOUNDS, PHASES, LOUDNESSES = range(0, 128), range(128, 160), range(160, 288)
ADVANCES, BENDS = range(288, 672), range(672, 768)
CODEBOOK_SIZE = 768
NUM_CODEBOOKS = 6
PHASE_CODEBOOK, LOUDNESS_CODEBOOK = 3, 4
PITCHED_HZ = 50.0
"""Below this the teacher's pitch curve means no voice."""

QUIETEST_DB, LOUDNESS_DB = -70.0, 12.0  # floor, and the scale of one unit
LEAD, TAIL = 1, 6  # frames of silence around speech that the language model speaks
SPEECH_RANGE = 2.8  # units of LOUDNESS_DB below the loudest half frame: what is no silence
SILENCE = "<silence>"


def sounds(phonemes: str) -> list[str]:
    """For each character the sound heard while it lasts: a vowel with its stress; length marks prolong the last."""
    heard = list(phonemes)
    for i, symbol in enumerate(heard):
        if symbol == "ː" and i:
            heard[i] = heard[i - 1]
        elif i and heard[i - 1] in ("ˈ", "ˌ"):
            heard[i] = heard[i - 1] = heard[i - 1] + symbol
    return heard


def phase_codes(phase: npt.NDArray[np.float32], num_frames: int) -> tuple[Tensor, Tensor, Tensor]:
    """(advance, phase, bend) codes [frame] from the phase in cycles every PITCH_HOP samples.

    Phases at frame boundaries are rounded to 1/32 cycle; the advance is the difference of two, so errors never add up.
    The bend is how far the phase at the middle is ahead of the mean of both ends.
    """
    times = (np.arange(len(phase)) + 0.5) * PITCH_HOP
    points = np.interp(np.arange(2 * num_frames + 1) * (FRAME // 2), times, phase.astype(np.float64))
    units = np.round(points * len(PHASES)).astype(np.int64)
    starts, middles, ends = units[:-2:2], units[1::2], units[2::2]
    advance = np.clip(ends - starts, 0, len(ADVANCES) - 1)
    half = len(BENDS) // 2
    bend = np.clip(middles - (starts + ends) // 2, -half, half - 1)
    codes = (ADVANCES.start + advance, PHASES.start + ends % len(PHASES), BENDS.start + half + bend)
    advances, phases, bends = (torch.from_numpy(c) for c in codes)
    return advances, phases, bends


def loudness(samples: npt.NDArray[np.float32], num_frames: int) -> npt.NDArray[np.float32]:
    """Loudness of both halves of each frame [frame, 2] in units of LOUDNESS_DB above QUIETEST_DB."""
    halves = np.zeros((2 * num_frames, ALIGNMENT_FRAME), dtype=np.float32)
    halves.reshape(-1)[: len(samples)] = samples[: halves.size]
    level = 10.0 * np.log10(np.square(halves).mean(axis=1) + 1e-12)
    units: npt.NDArray[np.float32] = (np.maximum(level, QUIETEST_DB) - QUIETEST_DB) / LOUDNESS_DB
    return units.reshape(num_frames, 2).astype(np.float32)


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
    return torch.from_numpy(padded.reshape(num_frames, 2).T.copy())


def clip_codes(
    record: dict,
    phase: npt.NDArray[np.float32],
    samples: npt.NDArray[np.float32],
    number: dict[str, int],
    centres: Tensor,
) -> Tensor:
    """All codes int64 [6, frame] of a clip."""
    num_frames = -(-len(samples) // FRAME)
    first, second = sound_codes(record, number, num_frames)
    advance, ends, bend = phase_codes(phase, num_frames)
    level = nearest_loudness(loudness(samples, num_frames), centres)
    return torch.stack([first, second, advance, ends, level, bend])


def code_features(centres: Tensor) -> Tensor:
    """What a code means as numbers [768, 32]: the first content of every codebook.

    Sounds are random directions. A phase is its first eight harmonics. An advance is a slow and a fast
    description of itself, among them the angles by which the phase has turned after each quarter of the frame.
    """
    features = torch.zeros(CODEBOOK_SIZE, 32)
    generator = torch.Generator().manual_seed(1)
    features[SOUNDS.start : SOUNDS.stop] = 0.7 * torch.randn(len(SOUNDS), 32, generator=generator)
    features[PHASES.start : PHASES.stop, :16] = _turns(len(PHASES), [k / len(PHASES) for k in range(1, 9)])
    speeds = [k / 4 / len(PHASES) for k in (1, 2, 3, 4)] + [1 / 1024, 1 / 512, 1 / 256, 1 / 128]
    features[ADVANCES.start : ADVANCES.stop, :16] = _turns(len(ADVANCES), speeds)
    features[ADVANCES.start : ADVANCES.stop, 16] = torch.arange(len(ADVANCES)) / 128.0 - 1.0
    bends = torch.arange(len(BENDS)) - len(BENDS) // 2
    angles = 2.0 * torch.pi / len(PHASES) * bends[:, None] * torch.arange(1, 7)
    features[BENDS.start : BENDS.stop, :12] = torch.cat([angles.cos(), angles.sin()], dim=1)
    features[BENDS.start : BENDS.stop, 12] = bends / 12.0
    spread = (centres - centres.mean(0)) / centres.std(0)
    features[LOUDNESSES.start : LOUDNESSES.stop, :2] = spread
    features[LOUDNESSES.start : LOUDNESSES.stop, 2] = (spread[:, 0] - spread[:, 1]) * 2.0
    return features


def _turns(count: int, speeds: Sequence[float]) -> Tensor:
    angles = 2.0 * torch.pi * torch.arange(count)[:, None] * torch.tensor(speeds)
    return torch.cat([angles.cos(), angles.sin()], dim=1)


def pitch_curves(path: Path) -> dict[str, tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]]:
    """(pitch, phase) of each clip in a file of `training.prosody`."""
    content = np.load(path)
    pitch, phase, starts = content["pitch"], content["phase"], content["starts"]
    spans = zip(content["ids"].tolist(), starts[:-1], starts[1:], strict=True)
    return {name: (pitch[a:b], phase[a:b]) for name, a, b in spans}


def speech_frames(codes: Tensor, centres: Tensor) -> slice:
    """The frames of a clip from LEAD before its first sound to TAIL behind its last, by codes [C, frame]."""
    levels = centres[codes[LOUDNESS_CODEBOOK] - LOUDNESSES.start].amax(dim=1)
    loud = (levels > levels.max() - SPEECH_RANGE).nonzero().flatten()
    return slice(max(0, int(loud[0]) - LEAD), min(codes.shape[1], int(loud[-1]) + 1 + TAIL))


def read_codebook(path: Path) -> tuple[list[str], Tensor]:
    """(sounds, loudness centres [128, 2]) in the metadata of a file of codes."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    return json.loads(metadata["sounds"]), torch.tensor(json.loads(metadata["loudness"]))


def _samples(clips: Clips, index: int) -> npt.NDArray[np.float32]:
    return clips.clip(index).numpy()


def _new_codebook(records: Iterable[dict], clips: Clips) -> tuple[list[str], Tensor]:
    names = sorted({sound for record in records for sound in sounds(record["phonemes"])})
    if len(names) + 1 > len(SOUNDS):
        raise ValueError(f"{len(names)} different sounds, there is room for {len(SOUNDS) - 1}")
    levels = [loudness(_samples(clips, i), -(-len(_samples(clips, i)) // FRAME)) for i in range(0, len(clips.ids), 4)]
    return [SILENCE, *names], centroids(np.concatenate(levels))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with audio/ and meta.jsonl")
    parser.add_argument("--prosody", type=Path, required=True, help="file of training.prosody")
    parser.add_argument("--cache", type=Path, default=Path("training/runs/clips"))
    parser.add_argument("--codebook", type=Path, help="file of codes whose sounds and loudness centres hold here too")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    options = parser.parse_args()
    records, clips = read_meta(options.data), load_clips(options.data, options.cache)
    names, centres = read_codebook(options.codebook) if options.codebook else _new_codebook(records, clips)
    number, curves = {name: i for i, name in enumerate(names)}, pitch_curves(options.prosody)
    codes: dict[str, Tensor] = {}
    for index, record in enumerate(records):
        known = set(sounds(record["phonemes"])) <= number.keys()
        if record["id"] in curves and known:
            phase = curves[record["id"]][1]
            codes[record["id"]] = clip_codes(record, phase, _samples(clips, index), number, centres).to(torch.int16)
    save_file(codes, options.out, {"sounds": json.dumps(names), "loudness": json.dumps(centres.tolist())})
    print(
        f"{len(codes)} of {len(records)} clips, {sum(c.shape[1] for c in codes.values())} frames, {len(names)} sounds"
    )


if __name__ == "__main__":
    main()
