"""The released folder layout: shared shards, what may be absent, and everything that must be refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from oscine.errors import CheckpointError, ConfigMismatch, MissingFile, WeightMismatch
from oscine.families import load_family
from oscine.families.audex.codec.config import XCodecConfig
from oscine.families.audex.codec.xcodec import XCodecDecoder
from oscine.families.audex.family import AudexFamily
from oscine.families.audex.weights.loading import XCODEC_HUB_ID, XCODEC_VARIABLE, load_model
from oscine.types import Request
from tests.unit.audex_models import CPU, tiny_folder
from tests.unit.hub_cache import put_snapshot, use_cache

AUDIOGEN, FULL = "checkpoint_folder_audiogen", "checkpoint_folder_full"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(golden_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the miniature checkpoint that a test may damage."""
    monkeypatch.delenv(XCODEC_VARIABLE, raising=False)
    return Path(shutil.copytree(tiny_folder(golden_root), tmp_path / "audex"))


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def load(folder: Path) -> Any:
    return load_model(folder, device=CPU, dtype=torch.float32)


def test_the_registry_finds_the_family(folder: Path) -> None:
    family = load_family(folder, name="tiny", device=CPU, dtype=torch.float32)
    assert isinstance(family, AudexFamily)
    assert family.capabilities.tasks == ("speech", "sound", "transcribe", "ask", "converse")
    assert "Noncommercial" in family.capabilities.licence


def test_shards_are_found_in_the_sibling_folder_or_at_home(folder: Path) -> None:
    there = load(folder).lm.state_dict()
    shard = folder / FULL / "model-00001-of-00002.safetensors"
    shutil.copy(shard, folder / AUDIOGEN / shard.name)
    assert not list((folder / AUDIOGEN).glob("*-00002-*"))
    here = load_model(folder, device=CPU, dtype=torch.float32)
    assert all(torch.equal(there[name], value) for name, value in here.lm.state_dict().items())


def test_only_listed_tensors_are_read(folder: Path) -> None:
    """Speech and sound need no shard of the audio tower, even when it is not there."""
    (folder / FULL / "config.json").unlink()
    (folder / FULL / "model-00002-of-00002.safetensors").unlink()
    model = load(folder)
    assert model.tower is None
    assert model.xcodec is not None


def test_the_two_codecs_may_differ_in_their_hop(folder: Path) -> None:
    """A sound of so many seconds is counted in the frames of the codec that makes it."""
    path = folder / "xcodec1"
    edit(path / "config.json", lambda values: values["acoustic_model_config"].update(upsampling_ratios=[8, 5, 4, 4]))
    config = XCodecConfig.from_dict(json.loads((path / "config.json").read_text()))
    assert (config.hop_length, config.frame_rate) == (640, 25.0)
    save_file(XCodecDecoder(config).state_dict(), path / "model.safetensors")
    family = load_family(folder, name="tiny", device=CPU, dtype=torch.float32)
    (job,) = family.prepare(Request(task="sound", text="rain", duration_s=2.0), "r").jobs
    assert job.max_frames == 50
    assert family.capabilities.options["duration_s"].maximum == 20.0
    decoder = family.open_decoder(job)
    decoder.push([[0, 1024, 2048, 3072]] * 3)
    assert len(decoder.flush()) == 3 * 640


def test_one_weight_file_without_an_index(folder: Path) -> None:
    shutil.rmtree(folder / AUDIOGEN)
    tensors = {}
    for path in sorted((folder / FULL).glob("*.safetensors")):
        tensors |= load_file(path)
        path.unlink()
    save_file(tensors, folder / FULL / "model.safetensors")
    (folder / FULL / INDEX).unlink()
    model = load(folder)
    assert model.tower is not None


def test_a_model_of_its_own_in_the_full_folder_is_not_mixed_in(folder: Path) -> None:
    shard = folder / FULL / "model-00001-of-00002.safetensors"
    shutil.copy(shard, folder / AUDIOGEN / shard.name)
    assert load(folder).tower is None


def test_xcodec_by_environment_and_without(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = use_cache(monkeypatch, tmp_path / "cache")
    (folder / "xcodec1").rename(tmp_path / "elsewhere")
    family = load_family(folder, name="tiny", device=CPU, dtype=torch.float32)
    assert "sound" not in family.capabilities.tasks
    assert "duration_s" not in family.capabilities.options
    monkeypatch.setenv(XCODEC_VARIABLE, str(tmp_path / "elsewhere"))
    assert load(folder).xcodec is not None
    monkeypatch.setenv(XCODEC_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(MissingFile, match="nowhere"):
        load(folder)
    monkeypatch.delenv(XCODEC_VARIABLE)
    put_snapshot(cache, XCODEC_HUB_ID, tmp_path / "elsewhere")
    assert load(folder).xcodec is not None


def test_infinity_in_a_released_config(folder: Path) -> None:
    path = folder / AUDIOGEN / "config.json"
    path.write_text(path.read_text().replace("{", '{"time_step_limit": [0.0, Infinity],', 1))
    assert load(folder).lm.config.hidden_size > 0


def test_a_saved_rotary_table_and_another_name_of_the_embedding(folder: Path) -> None:
    shard = folder / FULL / "model-00001-of-00002.safetensors"
    tensors = load_file(shard)
    tensors["model.embeddings.weight"] = tensors.pop("model.embed_tokens.weight")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)
    tensors["mtp.layers.0.weight"] = torch.zeros(2)
    save_file(tensors, shard)

    def rename(values: dict[str, Any]) -> None:
        values["weight_map"] = dict.fromkeys(tensors, shard.name)

    edit(folder / AUDIOGEN / INDEX, rename)
    assert load(folder).lm.state_dict()


def set_key(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda values: values.__setitem__(name, value)


DENSE_CONFIG = f"{AUDIOGEN}/config.json"
CONFIG_FAULTS: dict[str, tuple[str, Callable[[dict[str, Any]], None], str]] = {
    "30B given as 2B": (DENSE_CONFIG, set_key("architectures", ["NemotronHForCausalLM"]), "architectures"),
    "2B given as 30B": (DENSE_CONFIG, set_key("model_type", "nemotron_h"), "architectures"),
    "unknown size": (DENSE_CONFIG, set_key("model_type", "llama"), "nemotron_dense"),
    "no size": (DENSE_CONFIG, lambda values: values.pop("model_type"), "model_type"),
    "gate": (DENSE_CONFIG, set_key("hidden_act", "silu"), "hidden_act"),
    "bias": (DENSE_CONFIG, set_key("attention_bias", True), "attention_bias"),
    "misspelt": (DENSE_CONFIG, lambda v: v.__setitem__("norm_epss", v.pop("norm_eps")), "norm_eps"),
    "heads": (DENSE_CONFIG, set_key("num_key_value_heads", 3), "num_key_value_heads"),
    "half rotary": (DENSE_CONFIG, set_key("partial_rotary_factor", 0.5), "partial_rotary_factor"),
    "rope kind": (DENSE_CONFIG, set_key("rope_parameters", {"rope_type": "yarn", "rope_theta": 1.0}), "rope_type"),
    "too few rows": (DENSE_CONFIG, set_key("vocab_size", 4000), "beyond"),
    "escaping shard": (f"{AUDIOGEN}/{INDEX}", set_key("weight_map", {"a": "../a.safetensors"}), "plain file name"),
    "no weight map": (f"{AUDIOGEN}/{INDEX}", set_key("weight_map", {}), "weight_map"),
    "other mel": (f"{FULL}/audio_preprocessor/preprocessor_config.json", set_key("feature_size", 80), "feature_size"),
    "other clips": (f"{FULL}/config.json", set_key("sound_clip_duration", 15.0), "sound_clip_duration must be 30"),
    "other sound rate": (f"{FULL}/config.json", set_key("sound_target_rate", 8000), "sound_target_rate must be 16000"),
    "other bins": (
        f"{FULL}/config.json",
        lambda values: values["audio_config"].__setitem__("num_mel_bins", 80),
        "num_mel_bins must be 128",
    ),
    "other positions": (
        f"{FULL}/config.json",
        lambda values: values.update(
            audio_config={**values["audio_config"], "max_source_positions": 750}, sound_embedding_size=375
        ),
        "max_source_positions must be 1500",
    ),
    "projector": (f"{FULL}/config.json", set_key("audio_projector_activation", "silu"), "projector_activation"),
    "levels": ("audex_causal_speech_decoder/config.json", set_key("codebook_size", 1000), "codebook_levels"),
    "other rate": ("audex_causal_speech_decoder/config.json", set_key("sample_rate", 24000), "sample rate is 24000"),
    "no codec": ("xcodec1/config.json", set_key("model_type", "dac"), "xcodec"),
}


@pytest.mark.parametrize("fault", CONFIG_FAULTS)
def test_config_faults(folder: Path, fault: str) -> None:
    name, change, message = CONFIG_FAULTS[fault]
    edit(folder / name, change)
    with pytest.raises(ConfigMismatch, match=message):
        load(folder)


def test_two_sizes_in_one_repository(folder: Path) -> None:
    hybrid = {
        "model_type": "nemotron_h_audex",
        "vocab_size": 4512,
        "hidden_size": 32,
        "hybrid_override_pattern": "M*E",
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "mamba_num_heads": 4,
        "mamba_head_dim": 8,
        "ssm_state_size": 8,
        "n_groups": 2,
        "conv_kernel": 4,
        "chunk_size": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8,
        "moe_shared_expert_intermediate_size": 8,
        "routed_scaling_factor": 2.5,
        "layer_norm_epsilon": 1e-5,
        "max_position_embeddings": 4096,
    }
    (folder / FULL / "config.json").write_text(json.dumps(hybrid))
    with pytest.raises(ConfigMismatch, match="two sizes"):
        load(folder)
    (folder / AUDIOGEN / "config.json").write_text(json.dumps({**hybrid, "model_type": "nemotron_h"}))
    with pytest.raises(WeightMismatch, match=r"backbone\.embeddings"):  # a dense file under a hybrid configuration
        load(folder)


def test_missing_files(folder: Path) -> None:
    shard = folder / FULL / "model-00001-of-00002.safetensors"
    shard.rename(folder / "kept")
    with pytest.raises(MissingFile) as raised:
        load(folder)
    assert str(folder / AUDIOGEN / shard.name) in str(raised.value)
    assert str(shard) in str(raised.value)
    (folder / "kept").rename(shard)
    for name in (f"{AUDIOGEN}/tokenizer.json", f"{AUDIOGEN}/{INDEX}", "audex_causal_speech_decoder/model.safetensors"):
        (folder / name).rename(folder / "kept")
        with pytest.raises(MissingFile, match=Path(name).name):
            load(folder)
        (folder / "kept").rename(folder / name)
    for name in (AUDIOGEN, FULL):
        shutil.rmtree(folder / name)
    with pytest.raises(MissingFile, match=FULL):
        load(folder)


def test_weight_faults(folder: Path) -> None:
    edit(folder / AUDIOGEN / INDEX, lambda values: values["weight_map"].pop("model.norm.weight"))
    with pytest.raises(WeightMismatch, match=r"1 missing: model\.norm\.weight"):
        load(folder)


def test_tensor_of_unknown_purpose_in_the_codec(folder: Path) -> None:
    path = folder / "xcodec1" / "model.safetensors"
    save_file({**load_file(path), "surprise": torch.zeros(1)}, path)
    with pytest.raises(WeightMismatch, match="surprise"):
        load(folder)


def drop_token(content: str) -> Callable[[dict[str, Any]], None]:
    def change(values: dict[str, Any]) -> None:
        values["added_tokens"] = [token for token in values["added_tokens"] if token["content"] != content]
        values["model"]["vocab"].pop(content, None)

    return change


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<audiogen_end>", "audiogen_end=None"),
        ("<speechgen_end>", "speechgen_end"),
        ("<so_embedding>", "so_embedding"),
        ("<audiocodec_77>", "Incomplete codec vocab for RVQ phase 0"),
        ("<audiocodec_4100>", "not contiguous"),
        ("<speechcodec_5>", "not contiguous"),
    ],
)
def test_tokenizer_faults(folder: Path, content: str, message: str) -> None:
    edit(folder / AUDIOGEN / "tokenizer.json", drop_token(content))
    with pytest.raises(ConfigMismatch, match=message):
        load(folder)


def test_unreadable_tokenizer(folder: Path) -> None:
    (folder / AUDIOGEN / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        load(folder)
