"""The codes of the default voice: what is read off the teacher, and what the codec learns from them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from training import codec as codec_module
from training.codec import initialise, start_codebooks
from training.coded import Segments, Source
from training.common import Log
from training.dataset import Clips
from training.discriminator import Discriminator
from training.encoder import code_losses, layers_of, separate_directions
from training.factors import (
    ADVANCES,
    BENDS,
    DELAY,
    FRAME,
    LEAD,
    LOUDNESSES,
    PHASES,
    SOUNDS,
    TAIL,
    clip_codes,
    code_features,
    loudness,
    nearest_loudness,
    phase_codes,
    sounds,
    speech_frames,
)
from training.heads import PHASE_HOP, PhaseHead
from training.losses import WaveLoss
from training.prosody import PITCH_HOP

from oscine.families.audio8.codec import Codec
from oscine.families.audio8.codec_config import CodecConfig

CENTRES = torch.stack([torch.linspace(0, 5, len(LOUDNESSES)), torch.linspace(5, 0, len(LOUDNESSES))], dim=1)
RATE = 24_000


def steady(hertz: float, frames: int) -> np.ndarray:
    """Phase in cycles of a steady voice, every PITCH_HOP samples."""
    return ((np.arange(frames * FRAME // PITCH_HOP) + 0.5) * PITCH_HOP * hertz / RATE).astype(np.float32)


def small_codec() -> Codec:
    torch.manual_seed(1)
    small = {"latent_dim": 32, "decoder_dim": 32, "encoder_dim": 2, "transformer_head_dim": 8}
    layers = {"pre_n_layer": 1, "post_n_layer": 1, "pre_intermediate_size": 32, "post_intermediate_size": 32}
    config = CodecConfig(**{**vars(codec_module.CONFIG), **small, **layers})
    codec = Codec(config)
    initialise(codec)
    start_codebooks(codec, CENTRES)
    return codec


def test_a_vowel_bears_its_stress_and_lasts_as_long_as_its_marks() -> None:
    assert sounds("wˈʌn") == ["w", "ˈʌ", "ˈʌ", "n"]
    assert sounds("ɡɹˈiːn.") == ["ɡ", "ɹ", "ˈi", "ˈi", "ˈi", "n", "."]


@pytest.mark.parametrize("hertz", [0.0, 61.3, 100.0, 187.7])
def test_a_steady_voice_advances_evenly_and_its_phases_follow(hertz: float) -> None:
    advance, phase, bend = phase_codes(steady(hertz, 12), 12)
    inner = slice(1, 11)  # the curve ends half a hop inside both ends
    expected = hertz * FRAME / RATE * len(PHASES)
    assert (advance[inner] - ADVANCES.start - expected).abs().max() <= 1
    assert (bend[inner] - BENDS.start - len(BENDS) // 2).abs().max() <= 1
    moved = (phase[1:] - phase[:-1]) % len(PHASES)
    assert torch.equal(moved, (advance[1:] - ADVANCES.start) % len(PHASES))
    total = (advance - ADVANCES.start).sum().item() / len(PHASES)
    assert total == pytest.approx(hertz * 12 * FRAME / RATE, abs=hertz / 80 + 0.1)


def test_a_voice_that_starts_within_a_frame_bends_its_phase() -> None:
    pitch = np.repeat([0.0, 0.0, 0.0, 100.0, 100.0, 100.0], [4, 4, 2, 2, 4, 4])
    phase = np.cumsum(pitch * PITCH_HOP / RATE).astype(np.float32) - 0.5 * pitch.astype(np.float32) * PITCH_HOP / RATE
    advance, _, bend = phase_codes(phase, 5)
    assert (advance - ADVANCES.start).tolist()[:2] == [0, 0]
    assert advance[2] - ADVANCES.start == pytest.approx(2.5 * len(PHASES), abs=2)
    assert bend[2] - BENDS.start - len(BENDS) // 2 == pytest.approx(-1.0 * len(PHASES), abs=4)


def test_loudness_is_that_of_the_halves() -> None:
    samples = np.concatenate([np.full(600, 0.1), np.full(600, 0.01), np.zeros(1200)]).astype(np.float32)
    levels = loudness(samples, 2)
    np.testing.assert_allclose(levels, [[50 / 12, 30 / 12], [0, 0]], atol=1e-5)
    codes = nearest_loudness(levels, CENTRES)
    assert ((codes >= LOUDNESSES.start) & (codes < LOUDNESSES.stop)).all()
    picked = CENTRES[codes - LOUDNESSES.start]
    nearest = torch.cdist(torch.from_numpy(levels[:1]), CENTRES).min().item()
    assert (picked - torch.from_numpy(levels)).norm(dim=1)[0].item() == pytest.approx(nearest, rel=1e-5)


def test_every_code_lies_in_the_part_of_its_codebook() -> None:
    record = {"phonemes": "hˈaɪ.", "durations": [4, 1, 1, 3, 2, 3, 4]}
    samples = (0.1 * np.random.default_rng(0).standard_normal(18 * 600)).astype(np.float32)
    number = {"<silence>": 0, "h": 1, "ˈa": 2, "ɪ": 3, ".": 4}
    codes = clip_codes(record, steady(110.0, 9), samples, number, CENTRES)
    assert codes.shape == (6, 9)
    for row, part in zip(codes, (SOUNDS, SOUNDS, ADVANCES, PHASES, LOUDNESSES, BENDS), strict=True):
        assert ((row >= part.start) & (row < part.stop)).all()
    halves = codes[:2].T.flatten().tolist()
    assert halves == [0] * 4 + [1] + [2] * 4 + [3] * 2 + [4] * 3 + [0] * 4


def test_speech_is_kept_with_a_little_silence_at_both_ends() -> None:
    centres = torch.full((len(LOUDNESSES), 2), 5.0)
    centres[0] = 0.0  # silence
    centres[1] = torch.tensor([0.0, 3.0])  # sound in the second half
    codes = torch.zeros(6, 30, dtype=torch.long)
    codes[4] = LOUDNESSES.start
    codes[4, 10] = LOUDNESSES.start + 1
    codes[4, 11:15] = LOUDNESSES.start + 7
    assert speech_frames(codes, centres) == slice(10 - LEAD, 15 + TAIL)
    codes[4, 26:] = LOUDNESSES.start + 7
    assert speech_frames(codes, centres) == slice(10 - LEAD, 30)


def make_source(tmp_path: Path, frames: int = 30, clips: int = 4) -> Source:
    times = np.arange(frames * FRAME) / RATE
    wave = (0.2 * np.sin(2 * np.pi * 120.0 * times)).astype(np.float32)
    soundfile.write(str(tmp_path / "a.wav"), wave, RATE)
    audio = np.round(np.tile(wave, clips) * 32767).astype(np.int16)
    ids = [f"c{i}" for i in range(clips)]
    held = Clips(
        audio=audio,
        starts=np.arange(clips + 1) * frames * FRAME,
        ids=ids,
    )
    phase = steady(120.0, frames)
    advance, ends, bend = phase_codes(phase, frames)
    sound = torch.full((frames,), 3)
    level = nearest_loudness(loudness(wave, frames), CENTRES)
    codes = torch.stack([sound, sound, advance, ends, level, bend])
    return Source(
        clips=held,
        codes=dict.fromkeys(range(clips), codes),
        curves={name: (np.full(len(phase), 120.0), phase) for name in ids},
        centres=CENTRES,
    )


def numbered_source(lengths: Sequence[int], silent: int = 5) -> Source:
    """Clips of so many spoken frames between `silent` ones, each frame with a first sound of its own."""
    frames = [length + 2 * silent for length in lengths]
    starts = np.cumsum([0, *frames])
    codes = {}
    for i, length in enumerate(lengths):
        spoken = torch.zeros(frames[i], dtype=torch.bool)
        spoken[silent : silent + length] = True
        codes[i] = torch.zeros(6, frames[i], dtype=torch.long)
        codes[i][0] = torch.arange(int(starts[i]), int(starts[i + 1]))
        codes[i][4] = LOUDNESSES.start + torch.where(spoken, 1, 0)
    centres = torch.zeros(len(LOUDNESSES), 2)
    centres[1] = 5.0
    ids = [f"c{i}" for i in range(len(lengths))]
    silence = np.zeros(1, dtype=np.float32), np.zeros(1, dtype=np.float32)
    audio = np.repeat(np.arange(1, starts[-1] + 1), FRAME).astype(np.int16)
    return Source(
        clips=Clips(audio=audio, starts=starts * FRAME, ids=ids),
        codes=codes,
        curves=dict.fromkeys(ids, silence),
        centres=centres,
    )


def test_every_spoken_frame_is_drawn_equally_often() -> None:
    source = numbered_source([40, 3, 12, 25])
    segments = Segments([source], held_out_every=100)  # clip 0 is held out
    generator = torch.Generator().manual_seed(1)
    drawn = torch.cat([segments.draw(generator, 8, 16, PHASE_HOP).codes[:, 0].flatten() for _ in range(400)])
    spoken = torch.cat([source.codes[i][0, 5 - LEAD : -5] for i in (1, 2, 3)])
    counts = torch.tensor([int((drawn == number).sum()) for number in spoken])
    assert not (drawn < 50).any()
    assert (counts / counts.float().mean() - 1).abs().max() < 0.2


def test_a_segment_that_starts_an_utterance_starts_like_one_and_goes_on_with_others() -> None:
    source = numbered_source([40, 3, 12, 25])
    segments = Segments([source], held_out_every=100)
    starts = {int(source.codes[i][0, 5 - LEAD]) for i in (1, 2, 3)}
    drawn = segments.draw(torch.Generator().manual_seed(1), 60, 30, PHASE_HOP, onset=True)
    assert set(drawn.codes[:, 0, 0].tolist()) == starts
    level = (drawn.audio.reshape(60, 30, FRAME)[..., 0] * 32768).round().long()
    for codes, heard in zip(drawn.codes[:, 0].tolist(), level.tolist(), strict=True):
        breaks = [at for at in range(1, 30) if codes[at] not in (codes[at - 1], codes[at - 1] + 1)]
        assert all(codes[at] in starts for at in breaks)
        for begin, end in itertools.pairwise([0, *breaks, 30]):
            sounds_then = [codes[begin] + at - DELAY + 1 for at in range(end - begin)]
            assert heard[begin:end] == sounds_then
    assert any(len(set(row)) > 20 for row in drawn.codes[:, 0].tolist())


def test_a_segment_pairs_codes_with_the_sound_they_become(tmp_path: Path) -> None:
    source = make_source(tmp_path)
    segment = source.cut(1, 5, 10, PHASE_HOP)
    start = (5 - DELAY) * FRAME
    np.testing.assert_allclose(segment.audio[0, 0], source.clips.clip(1)[start : start + 10 * FRAME])
    assert torch.equal(segment.codes[0], source.codes[1][:, 5:15])
    sample = start + 100 * PHASE_HOP + PHASE_HOP // 2
    assert segment.phase[0, 100].item() == pytest.approx(120.0 * sample / RATE, abs=1e-3)
    early = source.cut(1, 0, 4, PHASE_HOP)
    assert not early.audio[..., : DELAY * FRAME].any()
    assert not early.voiced[0, : DELAY * FRAME // PHASE_HOP].any()
    assert early.voiced[0, -1] == 1


def test_the_wave_loss_hears_phases_at_low_frequencies_only() -> None:
    times = torch.arange(9600) / RATE
    low, high = (torch.sin(2 * torch.pi * f * times)[None, None] for f in (150.0, 6000.0))
    shifted_low, shifted_high = (torch.cos(2 * torch.pi * f * times)[None, None] for f in (150.0, 6000.0))
    loss, voice = WaveLoss(RATE), 0.1 * low
    assert loss(low, low).item() < 1e-3
    assert loss(shifted_low, low).item() > 1.0
    assert loss(voice + 0.1 * shifted_high, voice + 0.1 * high).item() < 0.2
    assert loss(torch.zeros_like(low), low).item() == pytest.approx(1.0, abs=0.02)


def test_the_phase_head_is_right_where_features_hold_the_angles() -> None:
    head = PhaseHead(4, 2)
    phase, voiced = torch.rand(1, 50), torch.ones(1, 50)
    angles = 2 * torch.pi * torch.stack([phase, 2 * phase], dim=1)
    with torch.no_grad():
        head.out.weight.copy_(torch.eye(4)[..., None])
        head.out.bias.zero_()
    features = torch.cat([angles.cos(), angles.sin()], dim=1)
    assert head(features, phase, voiced).item() < 1e-9
    assert head(features.flip(-1), phase, voiced).item() > 0.1
    assert head(features.flip(-1), phase, torch.zeros(1, 50)).item() == 0


def test_a_codec_run_learns_and_resumes_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(codec_module, "CONFIG", small_codec().config)
    monkeypatch.setattr(codec_module, "SEGMENT_FRAMES", 10)
    monkeypatch.setattr(codec_module, "use_fast_kernels", lambda module: None)
    monkeypatch.setattr(codec_module, "read_codebook", lambda path: ([], CENTRES))
    monkeypatch.setattr(codec_module, "DISCRIMINATOR_ALONE", 0)
    monkeypatch.setattr(codec_module, "JUDGED_SAMPLES", 2400)
    segments = Segments([make_source(tmp_path)], held_out_every=4)

    def trainer() -> codec_module.Trainer:
        return codec_module.Trainer(segments, tmp_path / "codes", tmp_path, torch.device("cpu"))

    first, log = trainer(), Log(tmp_path)
    first.first_step(0.0, log)
    before = first.evaluate()
    for _ in range(25):
        first.train_step(0.0, log, judge=False)
    assert first.evaluate()["held_mel"] < before["held_mel"]
    first.train_step(0.0, log, judge=True)
    state = {key: value for key, value in first.state().items() if key != "config"}
    torch.save(state, tmp_path / "last.pt")
    second = trainer()
    second.restore(tmp_path / "last.pt")
    for run in (first, second):
        run.train_step(0.0, log, judge=False)
    for a, b in zip(first.codec.parameters(), second.codec.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_codebooks_moved_apart_decode_to_the_same(tmp_path: Path) -> None:
    codec = small_codec()
    codes = make_source(tmp_path).codes[0][None]
    before = codec.quantizer.code_vectors(codes)
    separate_directions(codec)
    torch.testing.assert_close(codec.quantizer.code_vectors(codes), before, rtol=1e-4, atol=1e-4)
    book = torch.nn.functional.normalize(layers_of(codec)[2].codebook.weight, dim=-1)
    steps = book[ADVANCES.start : ADVANCES.stop]
    assert (steps[1:] * steps[:-1]).sum(-1).max() < 1 - 1e-6


def test_an_encoder_that_hears_the_code_vectors_finds_the_codes(tmp_path: Path) -> None:
    codec = small_codec()
    separate_directions(codec)
    codes = make_source(tmp_path).codes[0][None]
    layers = layers_of(codec)
    with torch.no_grad():
        for layer in layers:  # projections that undo each other
            layer.in_proj.weight.copy_(torch.linalg.pinv(layer.out_proj.weight[..., 0])[..., None])
            layer.in_proj.bias.copy_(-layer.in_proj.weight[..., 0] @ layer.out_proj.bias)
        last = layers[-1].decode(codes[:, -1])
        _, found = code_losses(codec, codec.quantizer.code_vectors(codes), codes)
    assert last.shape[1] == codec.config.latent_dim
    assert found[-1] == 1.0  # what is left after the true codes of the others is the last one's own vector
    assert code_features(CENTRES).shape == (codec.config.semantic_codebook_size, codec.config.codebook_dim)


def test_fresh_discriminator_passes_on_what_it_hears() -> None:
    torch.manual_seed(0)
    discriminator = Discriminator(level=0.1)
    speech = 0.1 * torch.randn(2, 1, 9600)
    for scores, heard in discriminator(speech):
        assert all(0.3 < float(part.detach().std()) < 3.0 for part in heard)
        assert float(scores.detach().std()) > 0.3
