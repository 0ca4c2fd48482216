"""The codes of the default voice: what is read off the teacher, and what the codec learns from them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from training import codec as codec_module
from training.checkpoint import trained_weights, write_start
from training.codec_start import initialise, start_codebooks, start_gains
from training.coded import Segment, Segments, Source
from training.common import Log
from training.dataset import Clips
from training.discriminator import Discriminator
from training.factors import (
    ADVANCES,
    BENDS,
    CODEBOOK_SIZE,
    CYCLE_UNITS,
    FRAME,
    LEAD,
    LOUDNESSES,
    QUIETEST,
    SOUNDS,
    SOUNDS_EACH,
    TAIL,
    Curves,
    clip_codes,
    code_features,
    loudness,
    nearest_loudness,
    new_codebook,
    phase_codes,
    sounds,
    speech_frames,
)
from training.losses import WaveLoss
from training.prosody import PITCH_HOP

from oscine.families.audio8.codec.spectral import SpectralCodec
from oscine.families.audio8.codec.spectral_config import SpectralConfig

CENTRES = torch.stack([torch.linspace(0, 5, len(LOUDNESSES)), torch.linspace(5, 0, len(LOUDNESSES))], dim=1)
RATE = 24_000


def steady(hertz: float, frames: int) -> np.ndarray:
    """Phase in cycles of a steady voice, every PITCH_HOP samples."""
    return ((np.arange(frames * FRAME // PITCH_HOP) + 0.5) * PITCH_HOP * hertz / RATE).astype(np.float32)


def curves_of(phase: np.ndarray, energy: float = 6.0) -> Curves:
    level = np.full(len(phase), energy, dtype=np.float32)
    return Curves(pitch=np.full(len(phase), 120.0, dtype=np.float32), phase=phase, energy=level)


def small_codec() -> SpectralCodec:
    torch.manual_seed(1)
    config = SpectralConfig(**{**vars(codec_module.CONFIG), "dim": 24, "hidden_dim": 32, "num_blocks": 2})
    codec = SpectralCodec(config)
    initialise(codec)
    start_codebooks(codec, CENTRES)
    return codec


def test_a_vowel_bears_its_stress_and_lasts_as_long_as_its_marks() -> None:
    assert sounds("wˈʌn") == ["w", "ˈʌ", "ˈʌ", "n"]
    assert sounds("ɡɹˈiːn.") == ["ɡ", "ɹ", "ˈi", "ˈi", "ˈi", "n", "."]


@pytest.mark.parametrize("hertz", [0.0, 61.3, 100.0, 187.7, 380.0])
def test_a_steady_voice_advances_evenly_and_the_advances_add_up(hertz: float) -> None:
    advance, bend = phase_codes(steady(hertz, 12), 12)
    inner = slice(1, 11)  # the curve ends half a hop inside both ends
    expected = hertz * FRAME / RATE * CYCLE_UNITS
    assert (advance[inner] - ADVANCES.start - expected).abs().max() <= 1
    assert (bend[inner] - BENDS.start - len(BENDS) // 2).abs().max() <= 1
    total = (advance - ADVANCES.start).sum().item() / CYCLE_UNITS
    assert total == pytest.approx(hertz * 12 * FRAME / RATE, abs=hertz / 80 + 0.1)


def test_a_voice_that_starts_within_a_frame_bends_its_phase() -> None:
    pitch = np.repeat([0.0, 0.0, 0.0, 100.0, 100.0, 100.0], [4, 4, 2, 2, 4, 4])
    phase = np.cumsum(pitch * PITCH_HOP / RATE).astype(np.float32) - 0.5 * pitch.astype(np.float32) * PITCH_HOP / RATE
    advance, bend = phase_codes(phase, 5)
    assert (advance - ADVANCES.start).tolist()[:2] == [0, 0]
    assert advance[2] - ADVANCES.start == pytest.approx(2.5 * CYCLE_UNITS, abs=2)
    assert bend[2] - BENDS.start - len(BENDS) // 2 == pytest.approx(-1.0 * CYCLE_UNITS, abs=4)


def test_loudness_is_the_teachers_energy_in_the_halves() -> None:
    energy = np.array([1.0, 3.0, 5.0, 5.5, -9.0, -8.0, 4.0], dtype=np.float32)  # the last frame lacks its last value
    levels = loudness(energy, 2)
    np.testing.assert_allclose(levels, [[2.0, 5.25], [QUIETEST, 4.0]])
    codes = nearest_loudness(levels, CENTRES)
    assert ((codes >= LOUDNESSES.start) & (codes < LOUDNESSES.stop)).all()
    nearest = torch.cdist(torch.from_numpy(levels), CENTRES).min(1).values
    picked = CENTRES[codes - LOUDNESSES.start]
    torch.testing.assert_close((picked - torch.from_numpy(levels)).norm(dim=1), nearest, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("voice", "first"), [("am_michael", 0), ("af_heart", SOUNDS_EACH)])
def test_every_code_lies_in_the_part_of_its_codebook_and_says_who_speaks(voice: str, first: int) -> None:
    record = {"voice": voice, "phonemes": "hˈaɪ.", "durations": [4, 1, 1, 3, 2, 3, 4], "samples": 18 * 600}
    number = {"<silence>": 0, "h": 1, "ˈa": 2, "ɪ": 3, ".": 4}
    codes = clip_codes(record, curves_of(steady(110.0, 9)), number, CENTRES)
    assert codes.shape == (5, 9)
    for row, part in zip(codes, (SOUNDS, SOUNDS, ADVANCES, LOUDNESSES, BENDS), strict=True):
        assert ((row >= part.start) & (row < part.stop)).all()
    halves = (codes[:2].T.flatten() - first).tolist()
    assert halves == [0] * 4 + [1] + [2] * 4 + [3] * 2 + [4] * 3 + [0] * 4


def test_one_codebook_serves_several_folders() -> None:
    rows = [[{"id": "a", "phonemes": "hˈaɪ."}, {"id": "lost", "phonemes": "z"}], [{"id": "b", "phonemes": "bi"}]]
    energies = np.random.default_rng(0).uniform(-5, 9, (2, 4000)).astype(np.float32)
    curves = [{name: Curves(pitch=e, phase=e, energy=e)} for name, e in zip("ab", energies, strict=True)]
    names, centres = new_codebook(list(zip(rows, curves, strict=True)))
    assert names == ["<silence>", ".", "b", "h", "i", "ɪ", "ˈa"]
    assert centres.shape == (len(LOUDNESSES), 2)
    assert bool((centres.mean(1).diff() >= 0).all())
    assert float(centres.min()) >= QUIETEST


def test_the_features_of_codes_tell_apart_what_they_mean() -> None:
    features = code_features(CENTRES)
    assert features.shape == (CODEBOOK_SIZE, small_codec().config.codebook_dim)
    one, other = features[:SOUNDS_EACH], features[SOUNDS_EACH : 2 * SOUNDS_EACH]
    assert torch.equal(one[:, :56], other[:, :56])
    assert not torch.equal(one[:, 56:], other[:, 56:])
    for part in (ADVANCES, LOUDNESSES, BENDS):
        rows = features[part.start : part.stop]
        assert torch.cdist(rows, rows).fill_diagonal_(9.0).min() > 1e-3


def test_speech_is_kept_with_a_little_silence_at_both_ends() -> None:
    centres = torch.full((len(LOUDNESSES), 2), 5.0)
    centres[0] = -2.0  # silence
    centres[1] = torch.tensor([-2.0, 3.0])  # sound in the second half
    codes = torch.zeros(5, 30, dtype=torch.long)
    codes[3] = LOUDNESSES.start
    with pytest.raises(ValueError, match="nothing in this clip is louder than silence"):
        speech_frames(codes, centres)
    codes[3, 10] = LOUDNESSES.start + 1
    codes[3, 11:15] = LOUDNESSES.start + 7
    assert speech_frames(codes, centres) == slice(10 - LEAD, 15 + TAIL)
    codes[3, 29:] = LOUDNESSES.start + 7
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
    advance, bend = phase_codes(phase, frames)
    curves, sound = curves_of(phase), torch.full((frames,), 3)
    level = nearest_loudness(loudness(curves.energy, frames), CENTRES)
    codes = torch.stack([sound, sound, advance, level, bend])
    return Source(
        clips=held,
        codes=dict.fromkeys(range(clips), codes),
        curves=dict.fromkeys(ids, curves),
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
        codes[i] = torch.zeros(5, frames[i], dtype=torch.long)
        codes[i][0] = torch.arange(int(starts[i]), int(starts[i + 1]))
        codes[i][3] = LOUDNESSES.start + torch.where(spoken, 1, 0)
    centres = torch.full((len(LOUDNESSES), 2), QUIETEST)
    centres[1] = 5.0
    ids = [f"c{i}" for i in range(len(lengths))]
    audio = np.repeat(np.arange(1, starts[-1] + 1), FRAME).astype(np.int16)
    return Source(
        clips=Clips(audio=audio, starts=starts * FRAME, ids=ids),
        codes=codes,
        curves=dict.fromkeys(ids, curves_of(np.zeros(4, dtype=np.float32))),
        centres=centres,
    )


def test_every_spoken_frame_is_drawn_equally_often() -> None:
    source = numbered_source([40, 3, 12, 25])
    segments = Segments([source], held_out_every=100)  # clip 0 is held out
    generator = torch.Generator().manual_seed(1)
    drawn = torch.cat([segments.draw(generator, 8, 16).codes[:, 0].flatten() for _ in range(400)])
    spoken = torch.cat([source.codes[i][0, 5 - LEAD : TAIL - 5] for i in (1, 2, 3)])
    counts = torch.tensor([int((drawn == number).sum()) for number in spoken])
    assert not (drawn < 50).any()
    assert (counts / counts.float().mean() - 1).abs().max() < 0.2


def test_a_segment_that_starts_an_utterance_starts_like_one_and_goes_on_with_others() -> None:
    source = numbered_source([40, 3, 12, 25])
    segments = Segments([source], held_out_every=100)
    starts = {int(source.codes[i][0, 5 - LEAD]) for i in (1, 2, 3)}
    drawn = segments.draw(torch.Generator().manual_seed(1), 60, 30, "onset")
    assert set(drawn.codes[:, 0, 0].tolist()) == starts
    level = (drawn.audio.reshape(60, 30, FRAME)[..., 0] * 32768).round().long()
    for codes, heard in zip(drawn.codes[:, 0].tolist(), level.tolist(), strict=True):
        breaks = [at for at in range(1, 30) if codes[at] not in (codes[at - 1], codes[at - 1] + 1)]
        assert all(codes[at] in starts for at in breaks)
        for begin, end in itertools.pairwise([0, *breaks, 30]):
            sounds_then = [codes[begin] + at + 1 for at in range(end - begin)]
            assert heard[begin:end] == sounds_then
    assert any(len(set(row)) > 20 for row in drawn.codes[:, 0].tolist())


def test_a_segment_that_ends_an_utterance_ends_like_one() -> None:
    source = numbered_source([40, 3, 12, 25])
    segments = Segments([source], held_out_every=100)
    ends = {int(source.codes[i][0, TAIL - 6]) for i in (1, 2, 3)}
    drawn = segments.draw(torch.Generator().manual_seed(1), 40, 20, "ending")
    assert set(drawn.codes[:, 0, -1].tolist()) == ends
    steps = drawn.codes[:, 0].diff(dim=1)
    breaks = drawn.codes[:, 0, :-1][steps != 1]
    assert len(breaks)  # before a short utterance comes the end of another one
    assert set(breaks.tolist()) <= ends


def test_a_segment_pairs_codes_with_their_sound_and_phase(tmp_path: Path) -> None:
    source = make_source(tmp_path)
    segment = source.cut(1, 5, 10)
    np.testing.assert_allclose(segment.audio[0, 0], source.clips.clip(1)[5 * FRAME : 15 * FRAME])
    assert torch.equal(segment.codes[0], source.codes[1][:, 5:15])
    assert segment.starts[0].tolist() == pytest.approx([(5 + i) * 6 * CYCLE_UNITS for i in range(10)], abs=1)
    advances = segment.codes[0, 2, :-1] - ADVANCES.start
    assert torch.equal(segment.starts[0].diff(), advances)
    beyond = source.cut(1, 28, 4)
    assert not beyond.audio[..., 2 * FRAME :].any()


def test_the_wave_loss_hears_phases_at_low_frequencies_only() -> None:
    times = torch.arange(9600) / RATE
    low, high = (torch.sin(2 * torch.pi * f * times)[None, None] for f in (150.0, 6000.0))
    shifted_low, shifted_high = (torch.cos(2 * torch.pi * f * times)[None, None] for f in (150.0, 6000.0))
    loss, voice = WaveLoss(RATE), 0.1 * low
    assert loss(low, low).item() < 1e-3
    assert loss(shifted_low, low).item() > 1.0
    assert loss(voice + 0.1 * shifted_high, voice + 0.1 * high).item() < 0.2
    assert loss(torch.zeros_like(low), low).item() == pytest.approx(1.0, abs=0.02)


def test_the_first_gains_give_about_the_right_power(tmp_path: Path) -> None:
    source, codec = make_source(tmp_path), small_codec()
    codes = source.codes[0].clone()
    codes[2, 15:] = ADVANCES.start  # the second half has no voice
    rough = 0.05 * torch.randn(1, 1, 15 * FRAME)
    whole = source.cut(0, 0, 30)
    batch = Segment(
        codes=codes[None], audio=torch.cat([whole.audio[..., : 15 * FRAME], rough], dim=-1), starts=whole.starts
    )
    start_gains(codec, batch)
    with torch.no_grad():
        codec.spectra.weight.zero_()
        made = codec.synthesize(codes[None]).unflatten(-1, (2, -1))
    wanted = batch.audio.unflatten(-1, (2, -1))
    share = (made.square().mean(-1) / wanted.square().mean(-1)).flatten()
    assert 0.5 < float(share[0]) < 2.0
    assert 0.05 < float(share[1]) < 0.5  # noise starts on the quiet side


def test_speaking_in_training_is_decoding(tmp_path: Path) -> None:
    source, codec = make_source(tmp_path), small_codec()
    whole = source.cut(0, 0, 12)
    whole = dataclasses.replace(whole, starts=whole.starts - whole.starts[:, :1])  # a stream's phase starts at zero
    with torch.no_grad():
        torch.testing.assert_close(codec_module.speak(codec, whole, half=False), codec.decode(whole.codes))
    assert codec.config.lookahead == codec_module.CONFIG.lookahead


def test_a_codec_run_learns_and_resumes_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(codec_module, "CONFIG", small_codec().config)
    monkeypatch.setattr(codec_module, "SEGMENT_FRAMES", 14)
    monkeypatch.setattr(codec_module, "read_codebook", lambda path: ([], CENTRES))
    monkeypatch.setattr(codec_module, "DISCRIMINATOR_ALONE", 0)
    monkeypatch.setattr(codec_module, "JUDGED_SAMPLES", 2400)
    segments = Segments([make_source(tmp_path)], held_out_every=4)

    def trainer() -> codec_module.Trainer:
        return codec_module.Trainer(segments, tmp_path / "codes", tmp_path, torch.device("cpu"), half=False)

    first, log = trainer(), Log(tmp_path)
    before = first.evaluate()
    for _ in range(25):
        first.train_step(0.0, log, judge=False)
    assert first.evaluate()["held_mel"] < before["held_mel"]
    first.train_step(0.0, log, judge=True)
    torch.save(first.state(), tmp_path / "last.pt")
    second = trainer()
    second.restore(tmp_path / "last.pt")
    for run in (first, second):
        run.train_step(0.0, log, judge=True)
    for a, b in zip(first.codec.parameters(), second.codec.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    write_start(tmp_path / "kept.safetensors", *trained_weights(tmp_path), (["<silence>"], CENTRES))
    third = trainer()
    third.start_from(tmp_path / "kept.safetensors")
    assert third.step == 0
    kept = torch.load(tmp_path / "last.pt", weights_only=True)["averaged"]
    for name, value in third.codec.state_dict().items():
        torch.testing.assert_close(value, kept[name], rtol=1e-3, atol=1e-6)  # they were kept in float16
    monkeypatch.setattr(codec_module, "CONFIG", dataclasses.replace(first.codec.config, num_blocks=3))
    with pytest.raises(ValueError, match="other dimensions"):
        third.start_from(tmp_path / "kept.safetensors")
    assert third.optimizer.state_dict()["state"] == {}


def test_fresh_discriminator_passes_on_what_it_hears() -> None:
    torch.manual_seed(0)
    discriminator = Discriminator(level=0.1)
    speech = 0.1 * torch.randn(2, 1, 9600)
    for scores, heard in discriminator(speech):
        assert all(0.3 < float(part.detach().std()) < 3.0 for part in heard)
        assert float(scores.detach().std()) > 0.3
