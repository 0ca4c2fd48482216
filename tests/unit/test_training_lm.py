"""The default voice's language model: tokens, alignment, batches, a step, and the folder that export writes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from training import checkpoint
from training.alignment import align, frame_places
from training.checkpoint import halved, read_start, write_start
from training.export import louder, sharpened, write_folder
from training.factors import (
    ADVANCES,
    BENDS,
    CODEBOOK_SIZE,
    LOUDNESSES,
    NUM_CODEBOOKS,
    SOUNDS,
    SOUNDS_EACH,
    SPEAKERS,
    code_features,
    read_codebook,
)
from training.lm import Trainer, initialise, model_config, start_from_features
from training.lm_data import IGNORED, LEAST_WORDS, Utterance, batches, collate, corrupted, cropped, make_utterance
from training.lm_losses import code_targets, compact_head, slow_states, soft_cross_entropy
from training.tokenizer import CUT, SEMANTIC_BEGIN, alphabet, build_tokenizer

import oscine
from oscine.families.audio8.codec.spectral import SpectralCodec
from oscine.families.audio8.codec.spectral_config import SpectralConfig
from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model.dual_ar import DualAR
from oscine.families.audio8.prompt import PromptBuilder
from oscine.families.audio8.weights import build_lm

CODEC = SpectralConfig(codebook_dim=8, dim=16, hidden_dim=32, num_blocks=1)
PARTS = (SOUNDS, SOUNDS, ADVANCES, LOUDNESSES, BENDS)
CENTRES = torch.stack([torch.linspace(0, 5, len(LOUDNESSES)), torch.linspace(1, 4, len(LOUDNESSES))], dim=1)
SMALL = {"dim": 32, "n_layer": 5, "intermediate_size": 48, "fast_dim": 16, "fast_intermediate_size": 24}
RECORD = {
    "id": "a",
    "voice": "am_michael",
    "text": "Hello there.",
    "phonemes": "həlˈoʊ ðˈɛɹ.",
    "durations": [18, 2, 3, 2, 1, 3, 4, 1, 2, 2, 3, 4, 5, 8],
}


def small_values() -> dict:
    return {**model_config(), **SMALL}


def drawn_codes(frames: int, generator: torch.Generator) -> torch.Tensor:
    return torch.stack([torch.randint(p.start, p.stop, (frames,), generator=generator) for p in PARTS])


@pytest.fixture
def config() -> LMConfig:
    return LMConfig.from_dict(small_values())


@pytest.fixture
def utterances(config: LMConfig) -> list[Utterance]:
    prompts = PromptBuilder(build_tokenizer(), config)
    generator = torch.Generator().manual_seed(0)
    made = []
    for n in range(9):
        codes = drawn_codes(20 + n, generator)
        made.append(make_utterance({**RECORD, "id": str(n)}, codes, slice(1, 20 + n), prompts, 1200))
    return made


def test_every_symbol_is_one_token_and_comes_back(config: LMConfig) -> None:
    tokenizer = build_tokenizer()
    prompt = PromptBuilder(tokenizer, config).text_only("<|speaker:0|>" + alphabet())
    spoken = prompt.after[1 : 1 + len(alphabet())]
    assert [tokenizer.id_to_token(i) for i in spoken] == list(alphabet())
    assert len(set(spoken)) == len(alphabet())
    assert prompt.after[0] == tokenizer.token_to_id("<|speaker:0|>")
    assert prompt.num_columns() - len(alphabet()) == 13
    assert tokenizer.token_to_id("<unk>") not in (*prompt.before, *prompt.after)
    assert max(*prompt.before, *prompt.after) < SEMANTIC_BEGIN


def test_what_is_no_symbol_is_unknown_and_no_control_token(config: LMConfig) -> None:
    builder = PromptBuilder(build_tokenizer(), config)
    unknown = build_tokenizer().token_to_id("<unk>")
    assert set(builder.text_only("QQ").after[:2]) == {unknown}
    controls = {build_tokenizer().token_to_id(t) for t in ("<|im_end|>", "<|voice|>", "user\n")}
    plain = builder.text_only("<|voice|> user").after[: len("<|voice|> user")]
    assert not controls & set(plain)


@pytest.mark.parametrize(
    ("symbols", "phonemes", "expected"),
    [
        ("wˈʌn.", "wˈʌn.", "wʌʌn."),
        ("ɡˌO hˈOm.", "ɡˌoʊ hˈoʊm.", "ɡOOO hOOOm."),
        ("fˈɜɹmli", "fˈɜːmli", "fɜɜɜmli"),
        ("ðɛɹ wʌz", "ðɛɹwˌʌz", "ðɛɹwʌʌz"),
    ],
)
def test_alignment_finds_the_symbol_that_is_spoken(symbols: str, phonemes: str, expected: str) -> None:
    places = align(symbols, phonemes)
    assert places == sorted(places)
    assert "".join(symbols[i] for i in places) == expected


def test_frames_take_the_symbol_at_their_middle() -> None:
    places = frame_places([0, 2], [2, 4, 2, 1], num_frames=7, frame_length=1200)
    assert places.tolist() == [-1, 0, 0, 2, 2, 2, 2]  # unit 2f + 1 of [-1 -1 0 0 0 0 2 2 2], the last one repeated


def test_a_batch_predicts_each_frame_from_the_column_before(config: LMConfig, utterances: list[Utterance]) -> None:
    batch = collate(utterances[3:5], config)
    first = utterances[3]
    start, end = len(first.prompt), first.num_columns
    assert torch.equal(batch.columns[0, 0, :start], torch.tensor(first.prompt))
    assert torch.equal(batch.columns[0, 1:, start:end], first.codes)
    assert torch.equal(batch.columns[0, 0, start:end], first.codes[0] + SEMANTIC_BEGIN)
    assert torch.equal(batch.semantic[0, start - 1 : end - 1], first.codes[0])
    assert batch.semantic[0, end - 1] == config.codebook_size
    assert torch.equal(batch.codes[0, start - 1 : end - 1].T, first.codes)
    assert (batch.semantic[0] != IGNORED).sum() == first.num_frames + 1
    assert batch.num_frames == first.num_frames + utterances[4].num_frames
    tokens = batch.columns[0, 0]
    assert torch.equal(tokens[batch.place[0, start - 1 : end - 1]], batch.now[0, start - 1 : end - 1])
    assert len(set(batch.now[0, start - 1 : end - 1].tolist())) > 5


def test_batches_hold_everything_once_and_stay_within_their_size(utterances: list[Utterance]) -> None:
    groups = list(batches(utterances, 160, torch.Generator().manual_seed(1)))
    assert sorted(u.name for group in groups for u in group) == [u.name for u in utterances]
    assert all(len(group) * max(u.num_columns for u in group) <= 160 for group in groups)
    assert any(len(group) > 1 for group in groups)


LONG = {
    "id": "w",
    "voice": "af_heart",
    "text": "We saw two men by the sea.",
    "phonemes": "wi sˈɔ tˈu mˈɛn baɪ ðə sˈi.",
    "durations": [4, *[2] * 27, 4],
}


def test_a_crop_keeps_whole_words_with_their_frames_and_marks_what_is_gone(config: LMConfig) -> None:
    """Without the mark the model began some of its utterances in mid-speech, as most crops do."""
    tokenizer = build_tokenizer()
    cut, space = tokenizer.token_to_id(CUT), tokenizer.token_to_id(" ")
    whole = make_utterance(
        LONG, torch.arange(40).repeat(NUM_CODEBOOKS, 1), slice(0, 40), PromptBuilder(tokenizer, config), 960
    )
    text = "".join(tokenizer.id_to_token(i) for i in whole.prompt[8:-5])
    generator, seen = torch.Generator().manual_seed(1), set()
    for _ in range(80):
        part = cropped(whole, generator)
        ids = part.prompt[8:-5]
        said = "".join(tokenizer.id_to_token(i) for i in ids if i != cut)
        seen.add(said)
        assert (part.prompt[:8], part.prompt[-5:]) == (whole.prompt[:8], whole.prompt[-5:])
        assert set(said.rstrip(".").split(" ")) <= set(text.rstrip(".").split(" "))
        assert (ids[0] == cut, ids[-1] == cut) == (not text.startswith(said), not text.endswith(said))
        assert cut not in ids[1:-1]
        assert part.codes.shape[1] == len(part.places) > 0
        assert 7 <= int(part.places.min()) <= int(part.places.max()) < len(part.prompt) - 5
        assert cut not in [part.prompt[i] for i in part.places if i > 8]
        for frame in (0, -1):  # each frame still speaks the symbol it spoke
            at = int((whole.codes[0] == part.codes[0, frame]).nonzero()[0])
            if whole.prompt[whole.places[at]] != space:
                assert whole.prompt[whole.places[at]] == part.prompt[part.places[frame]]
    assert len(seen) > 8


def test_a_short_text_is_never_cropped(config: LMConfig, utterances: list[Utterance]) -> None:
    short = {**LONG, "text": "We saw two men.", "phonemes": "wi sˈɔ tˈu mˈɛn.", "durations": [4, *[3] * 16, 4]}
    assert len(short["text"].split()) < LEAST_WORDS <= len(LONG["text"].split())
    codes = torch.arange(40).repeat(NUM_CODEBOOKS, 1)
    whole = make_utterance(short, codes, slice(0, 35), PromptBuilder(build_tokenizer(), config), 960)
    assert all(cropped(whole, torch.Generator().manual_seed(n)) is whole for n in range(20))


def test_no_text_of_a_user_says_that_something_was_cut(config: LMConfig) -> None:
    tokenizer = build_tokenizer()
    spoken = PromptBuilder(tokenizer, config).text_only(f"<|speaker:1|>a {CUT} b").after
    assert tokenizer.token_to_id(CUT) not in spoken


def test_the_prompt_names_the_speaker_of_the_clip(config: LMConfig) -> None:
    tokenizer, codes = build_tokenizer(), torch.zeros(NUM_CODEBOOKS, 29, dtype=torch.long)
    for voice, number in (("am_michael", 0), ("af_heart", 1)):
        made = make_utterance({**RECORD, "voice": voice}, codes, slice(0, 29), PromptBuilder(tokenizer, config), 1200)
        assert made.prompt[7] == tokenizer.token_to_id(f"<|speaker:{number}|>")
        assert made.prompt[made.places[-1]] == tokenizer.token_to_id(".")


def test_corruption_stays_within_the_parts_and_keeps_both_places_of_the_first(
    config: LMConfig, utterances: list[Utterance]
) -> None:
    batch = collate(utterances, config)
    columns = corrupted(batch, config, 0.5, torch.Generator().manual_seed(1))
    audio = batch.columns[:, 0] >= SEMANTIC_BEGIN
    assert torch.equal(columns.transpose(1, 2)[~audio], batch.columns.transpose(1, 2)[~audio])
    assert torch.equal(columns[:, 0][audio], columns[:, 1][audio] + SEMANTIC_BEGIN)
    for codebook, part in enumerate(PARTS):
        codes, true = columns[:, 1 + codebook][audio], batch.columns[:, 1 + codebook][audio]
        assert ((codes >= part.start) & (codes < part.stop)).all()
        changed = (codes != true).float().mean()
        assert 0.35 < changed < 0.6
    assert torch.equal(corrupted(batch, config, 0.0, torch.Generator()), batch.columns)


def test_training_computes_what_the_family_computes(config: LMConfig, utterances: list[Utterance]) -> None:
    torch.manual_seed(2)
    model = DualAR(config)
    initialise(model)
    batch = collate(utterances[:2], config)
    states, guide = slow_states(model, batch.columns, batch.place)
    for row, u in enumerate(utterances[:2]):
        alone = collate([u], config).columns
        logits, hidden = model(alone)
        torch.testing.assert_close(states[row, : u.num_columns], model.final_norm(hidden)[0])
        assert torch.equal(compact_head(model), model.compact_table())
        assert logits.shape[-1] == config.vocab_size
    assert guide > 0


def test_codes_that_mean_alike_start_alike(config: LMConfig) -> None:
    torch.manual_seed(3)
    model = DualAR(config)
    initialise(model)
    start_from_features(model, code_features(CENTRES), torch.Generator().manual_seed(1))
    advances = model.codebook_embeddings.weight[2 * CODEBOOK_SIZE :][ADVANCES.start : ADVANCES.stop]
    near, far = torch.cosine_similarity(advances[200], advances[[201, 216]]).tolist()
    assert near > 0.9 > far
    assert 0.005 < model.codebook_embeddings.weight.detach().std().item() < 0.1


def test_targets_spread_over_what_sounds_alike_alone() -> None:
    targets = code_targets(CENTRES)
    torch.testing.assert_close(targets.sum(-1), torch.ones(CODEBOOK_SIZE))
    exact = [*SOUNDS]
    assert torch.equal(targets[exact], torch.eye(CODEBOOK_SIZE)[exact])
    for part in (ADVANCES, BENDS, LOUDNESSES):
        row = targets[part.start + 20]
        assert row.argmax() == part.start + 20
        assert row[part.start : part.stop].sum() == pytest.approx(1.0)
        assert row[part.start + 21] > row[part.start + 24]


def test_soft_targets_are_least_where_they_are_met_and_spare_the_end_of_speech() -> None:
    targets = code_targets(CENTRES)
    codes = torch.tensor([ADVANCES.start + 5, CODEBOOK_SIZE, LOUDNESSES.start + 3])
    hard = torch.full((3, CODEBOOK_SIZE + 1), -20.0).scatter(1, codes[:, None], 20.0)
    met = torch.full((3, CODEBOOK_SIZE + 1), -40.0)
    met[:, :CODEBOOK_SIZE] = targets[codes.clamp_max(CODEBOOK_SIZE - 1)].clamp_min(1e-17).log()
    met[1] = hard[1]
    assert soft_cross_entropy(met, codes, targets) < soft_cross_entropy(hard, codes, targets)
    assert soft_cross_entropy(hard, codes, None) < 1e-6
    assert soft_cross_entropy(hard[1:2], codes[1:2], targets) < 1e-6


def test_sharpening_turns_the_fast_logits_alone(config: LMConfig) -> None:
    weights = DualAR(config).state_dict()
    changed = sharpened(weights, 2.0)
    assert {n for n in weights if not torch.equal(weights[n], changed[n])} == {"fast_output.weight"}
    assert torch.equal(changed["fast_output.weight"], 2.0 * weights["fast_output.weight"])


def test_a_run_learns_and_resumes_where_it_stopped(tmp_path: Path, utterances: list[Utterance]) -> None:
    def steps(trainer: Trainer, count: int) -> list[float]:
        return [trainer.train_step(utterances, 0.0).semantic.item() for _ in range(count)]

    torch.set_num_threads(1)
    trainer = Trainer(small_values(), utterances, tmp_path, torch.device("cpu"), CENTRES)
    first = steps(trainer, 60)
    assert sum(first[-9:]) < 0.97 * sum(first[:9])
    torch.save(trainer.state(), tmp_path / "last.pt")
    expected = steps(trainer, 2)
    resumed = Trainer(small_values(), utterances, tmp_path, torch.device("cpu"), CENTRES)
    resumed.restore(tmp_path / "last.pt")
    assert steps(resumed, 2) == pytest.approx(expected, rel=1e-5)
    assert resumed.evaluate()["held_semantic"] > 0


def test_the_weights_that_are_kept_are_of_the_model_that_is_trained() -> None:
    path = Path(checkpoint.__file__).with_name("checkpoints") / "lm.safetensors"
    config, weights = read_start(path)
    assert config == model_config()
    DualAR(LMConfig.from_dict(config)).load_state_dict(weights)
    names, centres = read_codebook(path)
    assert centres.shape == (len(LOUDNESSES), 2)
    assert 0 < len(names) <= SOUNDS_EACH
    codec_path = path.with_name("codec.safetensors")
    codec_config, codec_weights = read_start(codec_path)
    SpectralCodec(SpectralConfig(**codec_config)).load_state_dict(codec_weights)
    codec_names, codec_centres = read_codebook(codec_path)
    assert codec_names == names
    assert torch.equal(codec_centres, centres)


def test_a_step_in_half_precision_is_nearly_the_same_step(tmp_path: Path, utterances: list[Utterance]) -> None:
    torch.set_num_threads(1)
    whole, half = (
        Trainer(small_values(), utterances, tmp_path, torch.device("cpu"), CENTRES, half=half) for half in (False, True)
    )
    for _ in range(3):
        expected, found = (trainer.train_step(utterances, 0.0) for trainer in (whole, half))
        assert found.total.item() != expected.total.item()
        assert found.total.item() == pytest.approx(expected.total.item(), rel=0.01)


def test_a_run_begins_with_the_weights_of_a_file(tmp_path: Path, utterances: list[Utterance]) -> None:
    torch.manual_seed(6)
    path, names = tmp_path / "kept" / "lm.safetensors", ["<silence>", "a"]
    model = DualAR(LMConfig.from_dict(small_values()))
    initialise(model)
    write_start(path, small_values(), model.state_dict(), (names, CENTRES))
    assert read_codebook(path)[0] == names
    torch.testing.assert_close(read_codebook(path)[1], CENTRES)
    trainer = Trainer(small_values(), utterances, tmp_path, torch.device("cpu"), CENTRES)
    trainer.start_from(path)
    for name, value in read_start(path)[1].items():
        assert torch.equal(trainer.model.state_dict()[name], value)
        assert torch.equal(trainer.averaged.state_dict()[name], value)
        torch.testing.assert_close(value, model.state_dict()[name], rtol=1e-3, atol=1e-6)
    other = Trainer({**small_values(), "dim": 64, "n_head": 8}, utterances, tmp_path, torch.device("cpu"), CENTRES)
    with pytest.raises(ValueError, match=r"\['dim', 'n_head'\] differ"):
        other.start_from(path)


def test_the_exported_folder_is_an_ordinary_checkpoint(tmp_path: Path) -> None:
    torch.manual_seed(4)
    values = small_values()
    model, codec = DualAR(LMConfig.from_dict(values)), SpectralCodec(CODEC)
    initialise(model)
    write_folder(tmp_path / "voice", values, model.state_dict(), codec)
    voice = oscine.load(tmp_path / "voice", device="cpu")
    result = voice.generate("Hello there.", seed=1, max_new_tokens=5, min_new_frames=3)
    assert 3 * 1200 <= len(result.audio) <= 5 * 1200
    assert [(v.name, v.speaker, v.gender) for v in voice.voices.values()] == [
        ("heart", SPEAKERS.index("af_heart"), "female"),
        ("michael", SPEAKERS.index("am_michael"), "male"),
    ]


def test_a_gain_makes_the_codec_louder_and_changes_nothing_else() -> None:
    torch.manual_seed(7)
    codec, loud = SpectralCodec(CODEC), SpectralCodec(CODEC)
    codec.load_state_dict(louder(codec, -30.0))  # untrained gains clip
    loud.load_state_dict(louder(codec, 3.0))
    codes = drawn_codes(12, torch.Generator().manual_seed(8))[None]
    quiet = codec.decode(codes)
    assert 0 < quiet.abs().max() < 0.7
    torch.testing.assert_close(loud.decode(codes), quiet * 10 ** (3.0 / 20), rtol=1e-4, atol=1e-6)


def test_weights_beyond_half_precision_are_refused() -> None:
    with pytest.raises(ValueError, match="loud"):
        halved({"loud": torch.tensor([1e6]), "fine": torch.ones(1)})
    assert halved({"fine": torch.ones(1)})["fine"].dtype == torch.float16


def test_half_weights_load_strictly(config: LMConfig) -> None:
    model = DualAR(config)
    loaded = build_lm(config, halved(model.state_dict()).items(), device="cpu", dtype=torch.float32)
    assert dataclasses.asdict(loaded.config) == dataclasses.asdict(config)
    assert loaded.codebook_embeddings.weight.dtype == torch.float32
