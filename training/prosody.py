"""Pitch of every clip as the teacher meant it: `python -m training.prosody --data DIR --out training/runs/prosody.npz`.

The teacher's pitch predictor writes a fundamental frequency every 300 samples, and the phase of its harmonic source is
the running sum of that curve. Both are read off the graph, whose waveform half is not run: 5 % of the cost of speech.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from training.kokoro import MAX_SYMBOLS, float_model, load_style, load_vocab

PITCH_HOP = 300
"""Samples between two values of the pitch curve; value i belongs to sample (i + 1/2) * PITCH_HOP."""

DURATIONS = "/encoder/Clip_output_0"
PITCH = "/encoder/Squeeze_output_0"
ENERGY = "/encoder/Squeeze_1_output_0"
PHASE = "/decoder/decoder/generator/m_source/l_sin_gen/Mul_4"
PHASE_SCALE = 2.0 * np.pi
CURVES = ("pitch", "phase", "energy")
OUTPUTS = [DURATIONS, PITCH, PHASE, ENERGY]


@dataclass(frozen=True, kw_only=True)
class Prosody:
    """`pitch` in Hz, `phase` in cycles since the start and the teacher's `energy`, float32 [samples / PITCH_HOP]."""

    durations: tuple[int, ...]
    pitch: npt.NDArray[np.float32]
    phase: npt.NDArray[np.float32]
    energy: npt.NDArray[np.float32]


class ProsodyReader:
    """The teacher's graph down to its pitch curve, for one voice."""

    def __init__(self, voice: str, cache: Path) -> None:
        import onnxruntime

        path = cache / "kokoro-82m-v1.0-plan.onnx"
        if not path.exists():
            _cut(float_model(cache), path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.vocab, self.style = load_vocab(cache), load_style(voice, cache)

    def plan(self, phonemes: str) -> Prosody:
        """What the teacher would do with these phonemes; ValueError when it does not know one or they are too many."""
        unknown = sorted(set(phonemes) - self.vocab.keys())
        if unknown or not 1 <= len(phonemes) <= MAX_SYMBOLS:
            raise ValueError(f"{len(phonemes)} symbols (1 to {MAX_SYMBOLS} are allowed), unknown are {unknown}")
        tokens = [0, *(self.vocab[symbol] for symbol in phonemes), 0]
        inputs = {
            "tokens": np.array([tokens], dtype=np.int64),
            "style": self.style[None, len(phonemes) - 1],
            "speed": np.ones(1, dtype=np.float32),
        }
        durations, pitch, phase, energy = self.session.run(OUTPUTS, inputs)
        return Prosody(
            durations=tuple(int(n) for n in durations.reshape(-1)),
            pitch=pitch.reshape(-1),
            phase=phase[0, :, 0] / PHASE_SCALE,
            energy=energy.reshape(-1),
        )

    def read(self, phonemes: str, durations: Sequence[int]) -> Prosody:
        """The prosody of a clip; ValueError when the teacher's durations are not those of the clip."""
        found = self.plan(phonemes)
        if found.durations != tuple(durations):
            raise ValueError("the clip's durations are not those the teacher gives its phonemes")
        return found


def _cut(whole: Path, path: Path) -> None:
    import onnx
    from onnx import helper

    model = onnx.load(str(whole))
    graph, wanted = model.graph, OUTPUTS
    maker = {output: number for number, node in enumerate(graph.node) for output in node.output}
    needed: set[int] = set()
    names = list(wanted)
    while names:
        number = maker.get(names.pop())
        if number is not None and number not in needed:
            needed.add(number)
            names += graph.node[number].input
    nodes = [graph.node[number] for number in sorted(needed)]
    used = {name for node in nodes for name in node.input}
    constants = [item for item in graph.initializer if item.name in used]
    outputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in wanted]
    for field in (graph.node, graph.initializer, graph.output):
        del field[:]
    graph.node.extend(nodes)
    graph.initializer.extend(constants)
    graph.output.extend(outputs)
    partial = path.with_suffix(".part")
    onnx.save(model, str(partial))
    partial.rename(path)


def joined(curves: dict[str, Any] | None, ids: Sequence[str], parts: Sequence[Prosody]) -> dict[str, Any]:
    """`curves` with those of more clips behind: `ids`, `starts` [clip + 1] into `pitch`, `phase` and `energy`."""
    found: dict[str, Any] = {name: [getattr(part, name) for part in parts] for name in CURVES}
    lengths = np.cumsum([len(part.pitch) for part in parts])
    old = curves or {"ids": np.array([], dtype=str), "starts": np.zeros(1, dtype=np.int64)}
    names = np.concatenate([old["ids"], np.array(ids, dtype=str)])
    starts = np.concatenate([old["starts"], old["starts"][-1] + lengths])
    values = {name: np.concatenate([*([curves[name]] if curves else []), *found[name]]) for name in CURVES}
    return {"ids": names, "starts": starts, **values}


def write_curves(path: Path, curves: dict[str, Any]) -> None:
    """Writes the file of curves so that a crash leaves the old or the new one."""
    partial = path.with_suffix(".part.npz")
    np.savez(partial, **curves)
    os.replace(partial, path)


def read_folder(data: Path, cache: Path) -> dict[str, Any]:
    """The curves of all clips of a folder, as `joined` arranges them; odd clips are left out."""
    rows = [json.loads(line) for line in (data / "meta.jsonl").read_text().splitlines()]
    readers: dict[str, ProsodyReader] = {}
    ids, parts = [], []
    for number, row in enumerate(rows, 1):
        if row["voice"] not in readers:
            readers[row["voice"]] = ProsodyReader(row["voice"], cache)
        try:
            parts.append(readers[row["voice"]].read(row["phonemes"], row["durations"]))
            ids.append(row["id"])
        except ValueError as error:
            print(f"{row['id']}: {error}", flush=True)
        if number % 100 == 0:
            print(f"{number} of {len(rows)}", flush=True)
    return joined(None, ids, parts)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with meta.jsonl")
    parser.add_argument("--out", type=Path, required=True, help="file for the curves")
    parser.add_argument("--cache", type=Path, default=Path("training/runs/cache"))
    options = parser.parse_args()
    write_curves(options.out, read_folder(options.data, options.cache))


if __name__ == "__main__":
    main()
