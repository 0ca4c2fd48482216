"""Loading released-style folders (`ckpt_*`): what they hold, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from oscine.errors import ConfigMismatch, MissingFile, WeightMismatch
from oscine.families.audio8.config import Audio8Config
from oscine.families.audio8.prompt import PromptBuilder
from oscine.families.audio8.speakers import Speaker
from oscine.families.audio8.weights import LM_RULES, load_codec, load_language_model


def folders(golden_root: Path) -> list[Path]:
    found = sorted((golden_root / "audio8").glob("ckpt_*"))
    if not found:
        pytest.skip(f"no audio8/ckpt_* in {golden_root}")
    return found


@pytest.fixture
def copies(golden_root: Path, tmp_path: Path) -> list[Path]:
    """Writable copies of every folder."""
    targets = []
    for folder in folders(golden_root):
        target = tmp_path / folder.name
        target.mkdir()
        for file in folder.iterdir():
            shutil.copyfile(file, target / file.name)
        targets.append(target)
    return targets


def load(folder: Path, dtype: torch.dtype = torch.float32) -> None:
    config = Audio8Config.from_folder(folder)
    load_language_model(folder, config.lm, dtype=dtype, device="cpu")
    load_codec(folder, config.codec, device="cpu")


def edit_weights(folder: Path, edit: Callable[[dict[str, Tensor]], None]) -> None:
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors")


def edit_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_config_says_what_the_files_say(golden_root: Path) -> None:
    for folder in folders(golden_root):
        raw, config = json.loads((folder / "config.json").read_text()), Audio8Config.from_folder(folder)
        for key in ("dim", "n_layer", "n_head", "n_local_heads", "codebook_size", "eos_token_id", "rope_base"):
            assert getattr(config.lm, key) == raw[key]
        assert (config.lm.hybrid is not None) == (raw.get("slow_backbone") == "falcon_h1")
        defaults = json.loads((folder / "generation_config.json").read_text())
        for key in ("do_sample", "temperature", "top_k", "top_p", "max_new_tokens"):
            assert getattr(config.generation, key) == defaults[key]
        assert config.codec.sample_rate == raw["codec_sample_rate"]
        assert config.codec.latent_dim == raw["codec_config"]["latent_dim"]
        assert (config.text_frontend, config.speakers, config.voice_cloning) == (None, {}, True)
        PromptBuilder.from_folder(folder, config.lm)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_tensor_is_used_once_and_none_is_invented(golden_root: Path, dtype: torch.dtype) -> None:
    for folder in folders(golden_root):
        config = Audio8Config.from_folder(folder)
        model = load_language_model(folder, config.lm, dtype=dtype, device="cpu")
        stored = load_file(folder / "model.safetensors")
        kept = {key for key in stored if not key.endswith(LM_RULES.drop_suffixes)}
        assert set(model.state_dict()) == kept
        for key, value in model.state_dict().items():
            assert not value.is_meta
            assert torch.equal(value, stored[key].to(value.dtype))
            assert value.dtype == (torch.float32 if key.endswith((".A_log", ".D", ".dt_bias")) else dtype)
        codec = load_codec(folder, config.codec, device="cpu")
        assert not any(value.is_meta for value in codec.state_dict().values())


def test_a_missing_tensor_is_named(copies: list[Path]) -> None:
    for folder in copies:
        edit_weights(folder, lambda weights: weights.__delitem__("fast_norm.weight"))
        with pytest.raises(WeightMismatch, match=r"1 missing: fast_norm\.weight"):
            load(folder)


def test_an_extra_tensor_is_named_and_a_dropped_one_is_not(copies: list[Path]) -> None:
    for folder in copies:
        edit_weights(folder, lambda weights: weights.update({"layers.0.attention.freqs_cis": torch.zeros(3)}))
        load(folder)
        edit_weights(folder, lambda weights: weights.update({"lm_head.weight": torch.zeros(3)}))
        with pytest.raises(WeightMismatch, match=r"1 unexpected: lm_head\.weight"):
            load(folder)


def test_a_misshaped_tensor_is_named_with_both_shapes(copies: list[Path]) -> None:
    for folder in copies:
        size = load_file(folder / "model.safetensors")["fast_norm.weight"].shape[0]
        edit_weights(folder, lambda weights: weights.update({"fast_norm.weight": torch.zeros(5)}))
        with pytest.raises(WeightMismatch, match=rf"fast_norm\.weight \[5\] in the file, \[{size}\] in the model"):
            load(folder)


def test_broken_and_absent_files(copies: list[Path]) -> None:
    for folder in copies:
        (folder / "codec.pth").write_bytes((folder / "codec.pth").read_bytes()[:1000])
        with pytest.raises(WeightMismatch, match=r"codec\.pth"):
            load(folder)
        (folder / "codec.pth").unlink()
        with pytest.raises(MissingFile, match=r"codec\.safetensors, codec\.pth"):
            load(folder)
        (folder / "model.safetensors").write_bytes(b"no weights")
        with pytest.raises(WeightMismatch, match=r"model\.safetensors"):
            load(folder)
        (folder / "model.safetensors").unlink()
        with pytest.raises(MissingFile, match=r"model\.safetensors"):
            load(folder)
        (folder / "tokenizer.json").write_text("{}")
        with pytest.raises(ConfigMismatch, match=r"tokenizer\.json"):
            PromptBuilder.from_folder(folder, Audio8Config.from_folder(folder).lm)
        (folder / "config.json").write_text("{")
        with pytest.raises(ConfigMismatch, match="not valid JSON"):
            load(folder)
        (folder / "config.json").unlink()
        with pytest.raises(MissingFile, match=r"config\.json"):
            load(folder)


def test_config_that_disagrees_is_refused(copies: list[Path]) -> None:
    for folder in copies:
        edit_json(folder / "preprocessor_config.json", semantic_begin_id=1)
        with pytest.raises(ConfigMismatch, match="semantic_begin_id must agree"):
            load(folder)
        edit_json(folder / "preprocessor_config.json", semantic_begin_id=None)
        edit_json(folder / "config.json", codec_frame_size=1024)
        with pytest.raises(ConfigMismatch, match="codec_frame_size"):
            load(folder)


def test_our_own_keys_are_read(copies: list[Path]) -> None:
    for folder in copies:
        extra = {"text_frontend": "english", "speakers": {"michael": 3}, "voice_cloning": False}
        edit_json(folder / "preprocessor_config.json", **extra)
        config = Audio8Config.from_folder(folder)
        speakers = {"michael": Speaker(tag=3)}
        assert (config.text_frontend, config.speakers, config.voice_cloning) == ("english", speakers, False)
        edit_json(folder / "preprocessor_config.json", speakers={"michael": "three"})
        with pytest.raises(ConfigMismatch, match="speakers"):
            Audio8Config.from_folder(folder)


def test_codec_post_fields_override_the_codec(copies: list[Path]) -> None:
    for folder in copies:
        edit_json(folder / "config.json", codec_post_n_layer=7, codec_post_intermediate_size=33)
        codec = Audio8Config.from_folder(folder).codec
        assert (codec.post_n_layer, codec.post_intermediate_size) == (7, 33)


def test_weights_of_a_folder_in_half_precision_load(copies: list[Path]) -> None:
    for folder in copies:
        edit_weights(folder, lambda weights: weights.update({k: v.half() for k, v in weights.items()}))
        load(folder)
