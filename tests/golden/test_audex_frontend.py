"""Audio in: normalising, cutting into clips, log-mel frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from oscine.families.audex.frontend import CLIP_SAMPLES, cut_clips, log_mel, normalize, num_clips
from tests.golden.audex_fixtures import check, fixtures, read

TOL, MEL_TOL = 1e-6, 2e-3


def test_frontend_cases(golden_root: Path) -> None:
    for path in fixtures(golden_root, "audio_frontend*.safetensors"):
        t, meta = read(path)
        names = {key.split(".")[0] for key in t} - {"two_clips"}
        assert names == {case["name"] for case in meta["cases"]}
        for case in meta["cases"]:
            name = case["name"]
            samples = normalize(t[f"{name}.wave"].numpy())
            check(name, torch.from_numpy(samples), t[f"{name}.normalized"], TOL)
            clips = cut_clips(samples)
            assert clips.shape == (case["clips"], case["clip_samples"])
            if f"{name}.mel_head" in t:
                mel = log_mel(clips)[0]
                stats = torch.stack([mel.mean(), mel.std(), mel.min(), mel.max()])
                head, tail = t[f"{name}.mel_head"], t[f"{name}.mel_tail"]
                check(f"{name} head", mel[:, : head.shape[1]], head, MEL_TOL)
                check(f"{name} tail", mel[:, -tail.shape[1] :], tail, MEL_TOL)
                check(f"{name} stats", stats, t[f"{name}.mel_stats"], MEL_TOL)


def test_clip_counts(golden_root: Path) -> None:
    for path in fixtures(golden_root, "audio_frontend*.safetensors"):
        for samples, clips in read(path)[1]["clip_counts"]:
            assert num_clips(samples) == clips


def test_tail_of_a_second_clip(golden_root: Path) -> None:
    """The fixture holds the end of a signal one clip and 800 samples long, and how the second clip begins."""
    for path in fixtures(golden_root, "audio_frontend*.safetensors"):
        t, _ = read(path)
        wave, tail = t["two_clips.wave_tail"].numpy(), t["two_clips.tail"]
        samples = np.concatenate([np.zeros(CLIP_SAMPLES, np.float32), wave])
        clips = cut_clips(normalize(samples))
        assert clips.shape[0] == 2
        check("two_clips.tail", torch.from_numpy(clips[1, : len(tail)]), tail, TOL)
