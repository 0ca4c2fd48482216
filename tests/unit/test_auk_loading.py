"""Folder layouts, strict loading, and the released manifests at full size on the meta device."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor

from oscine.errors import CheckpointError, ConfigMismatch, InvalidRequest, MissingFile, WeightMismatch
from oscine.families import load_family
from oscine.families.auk import AuKPipeline, AuKTransformer, AuKVAE, dit_state_dict
from oscine.families.auk.config import AuKConfig, DiTConfig, ThinkerConfig, VAEConfig, read_yaml
from oscine.families.auk.model.conditioner import Conditioner
from oscine.families.auk.model.thinker import Thinker
from oscine.families.auk.sampler import FLASH_GRID
from oscine.families.auk.weights.folder import open_folder
from oscine.families.auk.weights.offload import HEADROOM_BYTES, fits, free_bytes
from oscine.families.auk.weights.rules import Fusion, is_unused, load_dit, load_thinker
from tests.unit.auk_factory import (
    RELEASED_ARCH,
    RELEASED_THINKER,
    RELEASED_VAE,
    TINY_VAE,
    config_values,
    tiny_config,
    tiny_weights,
    write_flat,
    write_released,
    write_training,
)
from tests.unit.hub_cache import put_snapshot, use_cache

CPU = torch.device("cpu")
LAYOUTS = (write_released, write_training, write_flat)


def keys_of(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


def count(shapes: dict[str, tuple[int, ...]]) -> int:
    return sum(torch.Size(shape).numel() for shape in shapes.values())


@pytest.mark.parametrize("write", LAYOUTS)
def test_every_layout_loads_the_same_model(write: Callable[[Path], Path], tmp_path: Path) -> None:
    folder, expected = write(tmp_path), tiny_weights()
    pipeline = AuKPipeline.from_folder(folder)
    for name, value in pipeline.dit.state_dict().items():
        assert torch.equal(value, expected.dit[f"transformer.{name}"]), name
    assert torch.equal(pipeline.fusion.layer_weights, expected.dit["layer_weights"])
    family = load_family(folder, name="tiny", device=CPU, dtype=torch.float32)
    assert family.capabilities.family == "auk"
    assert family.capabilities.frame_rate == 50.0
    assert "non-commercial" in family.capabilities.licence


def test_a_training_checkpoint_can_be_named(tmp_path: Path) -> None:
    folder = write_training(tmp_path)
    assert open_folder(folder / "model_7.pt").dit.name == "model_7.pt"
    torch.save({}, folder / "model_8.pt")
    with pytest.raises(ConfigMismatch, match="several training checkpoints"):
        open_folder(folder)


def test_the_flash_variant_is_told_by_name_or_file(tmp_path: Path) -> None:
    flash = write_released(tmp_path, name="AuK-Flash")
    assert open_folder(flash).config.variant == "flash"
    values = config_values("AuK")
    (flash / "config.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    assert open_folder(flash).config.variant == "flash"
    assert open_folder(write_released(tmp_path)).config.variant == "base"


def test_dit_state_dict_strips_what_wraps_it() -> None:
    weights = tiny_weights().dit
    expected = {key.removeprefix("transformer.") for key in weights if key.startswith("transformer.")}
    ema = {"ema_model_state_dict": {**{f"ema_model.{k}": v for k, v in weights.items()}, "step": torch.tensor(1)}}
    for checkpoint in (weights, ema, {key: weights[f"transformer.{key}"] for key in expected}):
        assert set(dit_state_dict(checkpoint)) == expected
    with pytest.raises(WeightMismatch, match="must be a tensor"):
        dit_state_dict({"transformer.x": 3})


def test_missing_files_are_named(tmp_path: Path) -> None:
    folder = write_released(tmp_path)
    (folder / "vae.safetensors").unlink()
    with pytest.raises(MissingFile, match=r"vae\.safetensors is missing"):
        open_folder(folder)
    (folder / "auk_base.safetensors").unlink()
    with pytest.raises(MissingFile, match=r"auk_base\.safetensors nor auk_flash"):
        open_folder(folder)


def test_a_missing_encoder_is_named_with_its_licence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_cache(monkeypatch, tmp_path / "cache")
    folder = write_released(tmp_path)
    (tmp_path / "Qwen2.5-Omni-3B" / "config.json").unlink()
    with pytest.raises(MissingFile, match="non-commercial"):
        open_folder(folder)


def test_the_encoder_may_be_in_the_hubs_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = use_cache(monkeypatch, tmp_path / "cache")
    folder = write_released(tmp_path)
    encoder = put_snapshot(cache, "Qwen/Qwen2.5-Omni-3B", tmp_path / "Qwen2.5-Omni-3B")
    assert open_folder(folder).encoder == encoder
    (encoder / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(MissingFile, match="download Qwen/Qwen2"):
        open_folder(folder)


def test_the_encoders_folder_alone_is_refused(tmp_path: Path) -> None:
    write_released(tmp_path)
    encoder = tmp_path / "Qwen2.5-Omni-3B"
    config = json.loads((encoder / "config.json").read_text())
    (encoder / "config.json").write_text(json.dumps({**config, "model_type": "qwen2_5_omni"}))
    with pytest.raises(ConfigMismatch, match="the encoder of AuK"):
        load_family(encoder, name="tiny", device=CPU, dtype=torch.float32)


def damaged(tensors: dict[str, Tensor], change: str) -> dict[str, Tensor]:
    name = sorted(tensors)[0]
    if change == "stray":
        return {**tensors, "extra.weight": torch.zeros(1)}
    if change == "missing":
        return {key: value for key, value in tensors.items() if key != name}
    return {**tensors, name: torch.zeros(*tensors[name].shape, 1)}


@pytest.mark.parametrize("change", ["stray", "missing", "misshaped"])
@pytest.mark.parametrize("part", ["dit", "vae", "thinker"])
def test_wrong_keys_are_named(part: str, change: str, tmp_path: Path) -> None:
    weights, config = tiny_weights(), tiny_config()
    with torch.device("meta"):
        dit, vae = AuKTransformer.from_config(config.dit), AuKVAE.from_config(config.vae)
    if part == "dit":
        save_file(damaged(weights.dit, change), tmp_path / "a.safetensors")
        with pytest.raises(WeightMismatch, match=r"extra\.weight|layer_scale"):
            load_dit(dit, tmp_path / "a.safetensors", device="cpu", dtype=torch.float32)
    elif part == "vae":
        save_file(damaged(weights.vae, change), tmp_path / "a.safetensors")
        with pytest.raises(ValueError, match=r"extra\.weight|activation_post"):
            vae.load_weights(tmp_path / "a.safetensors")
    else:
        folder = write_released(tmp_path)
        shard = tmp_path / "Qwen2.5-Omni-3B" / "model-00001-of-00002.safetensors"
        own = {key: value for key, value in load_file(shard).items() if not is_unused(key)}
        save_file(damaged(own, change), shard)
        parts = open_folder(folder)
        with torch.device("meta"):
            thinker = Thinker(parts.thinker)
        with pytest.raises(WeightMismatch, match=r"extra\.weight|audio_tower"):
            load_thinker(thinker, parts.encoder, device="cpu", dtype=torch.float32)


def test_fusion_values_are_needed(tmp_path: Path) -> None:
    weights = {key: value for key, value in tiny_weights().dit.items() if key != "layer_weights"}
    save_file(weights, tmp_path / "a.safetensors")
    with torch.device("meta"):
        dit = AuKTransformer.from_config(tiny_config().dit)
    with pytest.raises(WeightMismatch, match="layer_weights"):
        load_dit(dit, tmp_path / "a.safetensors", device="cpu", dtype=torch.float32)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("part", ["dit", "encoder"])
def test_quantised_weights_are_refused(part: str, dtype: torch.dtype, tmp_path: Path) -> None:
    folder = write_released(tmp_path)
    path, key = folder / "auk_base.safetensors", "transformer.proj_out.weight"
    if part == "encoder":
        path, key = tmp_path / "Qwen2.5-Omni-3B" / "model-00001-of-00002.safetensors", ""
    tensors = load_file(path)
    key = key or next(name for name in sorted(tensors) if not is_unused(name))
    save_file({**tensors, key: tensors[key].to(dtype)}, path)
    with pytest.raises(WeightMismatch, match=f"{key} is stored as .*quantised checkpoints"):
        load_family(folder, name="tiny", device=CPU, dtype=torch.float32)


def test_quantised_dtypes_and_encoders_are_refused(tmp_path: Path) -> None:
    folder = write_released(tmp_path)
    with pytest.raises(InvalidRequest, match=r"float8_e4m3fn is not supported"):
        AuKPipeline.from_folder(folder, dtype=torch.float8_e4m3fn)
    config = tmp_path / "Qwen2.5-Omni-3B" / "config.json"
    values = json.loads(config.read_text())
    for changed in (
        {**values, "quantization_config": {"quant_method": "awq"}},
        {"thinker_config": {**values["thinker_config"], "quantization_config": {"quant_method": "gptq"}}},
    ):
        config.write_text(json.dumps(changed))
        with pytest.raises(ConfigMismatch, match="quantised encoders are not supported"):
            open_folder(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vae": {"vae_name": "OtherVAE"}}, "vae_name 'OtherVAE' is not supported"),
        ({"schedule": {"odeint_kwargs": {"method": "midpoint"}}}, "solver 'midpoint' is not supported"),
    ],
)
def test_another_vae_or_solver_is_refused(tmp_path: Path, change: dict[str, dict[str, object]], message: str) -> None:
    folder, values = write_released(tmp_path), config_values()
    for section, entries in change.items():
        values["model"][section] = {**values["model"].get(section, {}), **entries}
    (folder / "config.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    with pytest.raises(ConfigMismatch, match=message):
        open_folder(folder)
    values["model"]["vae"]["vae_name"] = "BigVGANFlowVAE"
    values["model"]["schedule"] = {"odeint_kwargs": {"method": "euler"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    assert open_folder(folder).config.variant == "base"


def test_the_flat_folders_grid_must_be_the_flash_grid(tmp_path: Path) -> None:
    folder = write_flat(tmp_path, variant="flash")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "flash_t_grid": list(FLASH_GRID)}))
    assert open_folder(folder).config.variant == "flash"
    for grid in ([0.0, 0.5, 1.0], [0.0, 0.1, 0.2, 0.3, 1.0], "linear"):
        (folder / "config.json").write_text(json.dumps({**values, "flash_t_grid": grid}))
        with pytest.raises(ConfigMismatch, match="flash_t_grid"):
            open_folder(folder)


def test_missing_shards_are_named(tmp_path: Path) -> None:
    folder = write_released(tmp_path)
    (tmp_path / "Qwen2.5-Omni-3B" / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(MissingFile, match="model-00002"):
        load_family(folder, name="tiny", device=CPU, dtype=torch.float32)


def test_the_rotary_frequencies_stay_float32(tmp_path: Path) -> None:
    folder = write_released(tmp_path)
    pipeline = AuKPipeline.from_folder(folder, dtype=torch.bfloat16)
    assert pipeline.dit.rotary_embed.inv_freq.dtype == torch.float32
    assert pipeline.dit.proj_out.weight.dtype == torch.bfloat16
    assert pipeline.vae.conv_pre.get_parameter("weight").dtype == torch.float32


def test_weights_can_be_loaded_again_and_folded_later(tmp_path: Path) -> None:
    folder = write_released(tmp_path)
    vae = AuKVAE.from_config(TINY_VAE)
    z = torch.randn(1, 7, TINY_VAE["latent_dim"], generator=torch.Generator().manual_seed(0))
    missing, ignored = vae.load_weights(folder / "vae.safetensors", fold_weight_norm=False)
    assert (missing, ignored) == ([], ["flow.0.weight"])
    unfolded = vae.decode(z)
    vae.remove_weight_norm()
    vae.remove_weight_norm()
    torch.testing.assert_close(vae.decode(z), unfolded)
    vae.load_weights(folder / "vae.safetensors")
    torch.testing.assert_close(vae.decode(z), unfolded)


def test_an_encoder_loaded_for_each_use_gives_the_same(tmp_path: Path) -> None:
    parts = open_folder(write_released(tmp_path))
    fusion = Fusion(layer_weights=torch.linspace(-1, 1, 2), layer_scale=torch.ones(1))
    resident, staged = (
        Conditioner(parts, fusion, device=CPU, dtype=torch.float32, resident=resident, cache_size=0)
        for resident in (True, False)
    )
    for clip in (None, torch.randn(4000, generator=torch.Generator().manual_seed(1)).numpy()):
        assert torch.equal(resident.condition("Say it.", clip), staged.condition("Say it.", clip))
    assert staged._thinker is None


def test_conditions_are_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = open_folder(write_released(tmp_path))
    fusion = Fusion(layer_weights=torch.linspace(-1, 1, 2), layer_scale=torch.ones(1))
    conditioner = Conditioner(parts, fusion, device=CPU, dtype=torch.float32, resident=False, cache_size=2)
    loads: list[None] = []
    load = conditioner._load
    monkeypatch.setattr(conditioner, "_load", lambda: loads.append(None) or load())
    clip = torch.randn(4000, generator=torch.Generator().manual_seed(1)).numpy()
    first = conditioner.condition("Say it.", clip)
    assert conditioner.condition("Say it.", clip.copy()) is first
    assert len(loads) == 1
    for instruction, heard in (("Say it.", None), ("Sing it.", clip), ("Say it.", clip)):
        conditioner.condition(instruction, heard)
    assert len(loads) == 4


def test_whether_all_parts_fit() -> None:
    assert fits(7 << 30, (7 << 30) + HEADROOM_BYTES)
    assert not fits(7 << 30, 7 << 30)
    assert fits(7 << 30, None)
    assert not fits(1 << 60, free_bytes(CPU))


def test_the_released_dit_manifest() -> None:
    with torch.device("meta"):
        dit = AuKTransformer.from_config(DiTConfig.from_dict(RELEASED_ARCH, 64, source="released"))
    shapes = keys_of(dit)
    assert len(shapes) + 2 == 420  # layer_weights and layer_scale stand beside
    assert count(shapes) + 36 + 1 == 1_530_538_629
    assert shapes["transformer_blocks.9.attn.to_qkv_c.weight"] == (4608, 1536)
    assert shapes["single_transformer_blocks.19.ff.linear_in.weight"] == (6144, 1536)
    assert shapes["audio_embed.conv_pos_embed.conv1d.2.weight"] == (1536, 96, 31)
    assert shapes["rotary_embed.inv_freq"] == (32,)
    assert sum(layer.linear.out_features for layer in dit._ada_norms()) == 40 * 9216 + 3072


def test_the_released_vae_manifest() -> None:
    with torch.device("meta"):
        vae = AuKVAE.from_config(RELEASED_VAE)
    shapes = keys_of(vae)
    assert len(shapes) + 112 == 1137
    assert sum(name.endswith("filter") for name in shapes) == 218
    assert shapes["conv_pre.weight_v"] == (1536, 64, 7)
    assert shapes["ups.0.0.weight_g"] == (1536, 1, 1)
    assert "conv_post.bias" not in shapes
    assert shapes["audio_encoder.generator.20.layer.weight_v"] == (128, 768, 3)
    assert vae.decode_context_frames() == (53, 9)
    vae.remove_weight_norm()
    assert keys_of(vae)["ups.0.0.weight"] == (1536, 768, 10)


def test_the_released_thinker_manifest() -> None:
    with torch.device("meta"):
        thinker = Thinker(ThinkerConfig.from_dict(RELEASED_THINKER, source="released"))
    shapes = keys_of(thinker)
    unused_embedding = 2 * 2048  # audio_bos_eos_token, in the published count
    assert count(shapes) + unused_embedding == 3_723_615_232
    assert shapes["model.layers.35.self_attn.k_proj.weight"] == (256, 2048)
    assert "audio_tower.layers.31.self_attn.k_proj.bias" not in shapes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_vae": False}, "use_vae"),
        ({"upsample_kernel_sizes": [8, 8, 6, 4, 4, 4]}, r"kernel = 2 \* rate"),
        ({"downsample_rates": [2, 2, 2, 3, 4, 4]}, "differ in product"),
        ({"resblock_kernel_sizes": [3, 7]}, "differ in length"),
        ({"latent_dim": 0}, "latent_dim"),
    ],
)
def test_impossible_vae_configs_are_value_errors(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VAEConfig.from_dict({**RELEASED_VAE, **change})


def test_yaml_references_are_resolved_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: {b: 3}\nc: ${a.b}\nd: [1, '${c}']\n", encoding="utf-8")
    assert read_yaml(path) == {"a": {"b": 3}, "c": 3, "d": [1, 3]}
    for text, message in (
        ("a: ${b}", "names nothing"),
        ("a: ${b}\nb: ${a}", "itself"),
        ("[1]", "mapping"),
        ("a: [", "YAML"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigMismatch, match=message):
            read_yaml(path)


def test_a_config_that_contradicts_itself_is_refused() -> None:
    values = config_values()
    values["model"]["vae"]["model_init_kwargs"]["latent_dim"] = 9
    with pytest.raises(CheckpointError, match="latent_dim"):
        AuKConfig.from_dict(values, source="c")


def test_loading_says_the_licence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="oscine"):
        load_family(write_released(tmp_path), name="tiny", device=CPU, dtype=torch.float32)
    assert "Qwen research licence, non-commercial" in caplog.text
