"""The three folder layouts AuK checkpoints come in (AUK spec, section 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oscine.checkpoint.config import read_json
from oscine.checkpoint.hub import cached_folder
from oscine.errors import ConfigMismatch, InvalidRequest, MissingFile
from oscine.families.auk.config import AuKConfig, ThinkerConfig, read_yaml
from oscine.families.auk.sampler import FLASH_GRID, build_time_grid

ENCODER_NAME, ENCODER_HUB_ID = "Qwen2.5-Omni-3B", "Qwen/Qwen2.5-Omni-3B"
DIT_FILES = ("auk_base.safetensors", "auk_flash.safetensors")
VAE_NAME, SOLVER = "BigVGANFlowVAE", "euler"
FLASH_FILE, FLAT_FILE, VAE_FILE = "auk_flash.safetensors", "auk.safetensors", "vae.safetensors"


@dataclass(frozen=True, kw_only=True)
class AuKFolder:
    """Where the parts of one checkpoint are, and what they look like."""

    config: AuKConfig
    dit: Path
    vae: Path
    encoder: Path
    thinker: ThinkerConfig


def open_folder(path: Path) -> AuKFolder:
    """The parts of the checkpoint in `path`, a folder or the DiT file itself; nothing is loaded.

    Released: `config.yaml` with `auk_base.safetensors` or `auk_flash.safetensors`; training: `config.yaml` with one
    `.pt` file; flat: `config.json` with `auk.safetensors` and the encoder's files beside it. The VAE is always
    `vae.safetensors` beside the DiT. Raises MissingFile or ConfigMismatch.
    """
    folder = path if path.is_dir() else path.parent
    parts = _released(folder, None if path.is_dir() else path) if (folder / "config.yaml").is_file() else _flat(folder)
    for file in (parts.dit, parts.vae):
        if not file.is_file():
            raise MissingFile(f"{file} is missing; AuK needs its DiT and {VAE_FILE} in one folder")
    fits = parts.thinker.text.hidden_size == parts.config.dit.text_hidden_dim
    if not fits:
        raise ConfigMismatch(
            f"{parts.encoder}: hidden size {parts.thinker.text.hidden_size}, the DiT wants "
            f"{parts.config.dit.text_hidden_dim}"
        )
    return parts


def _released(folder: Path, file: Path | None) -> AuKFolder:
    values = read_yaml(folder / "config.yaml")
    config = AuKConfig.from_dict(values, source=str(folder / "config.yaml"))
    _refuse_other_methods(values["model"], str(folder / "config.yaml"))
    dit = file or _dit_file(folder, config)
    if dit.name == FLASH_FILE:
        config = replace(config, variant="flash")
    named = values["model"].get("text_encoder") or {}
    encoder = _encoder(folder, str(named.get("text_encoder_path") or ""))
    return AuKFolder(config=config, dit=dit, vae=folder / VAE_FILE, encoder=encoder, thinker=_thinker(encoder))


def _flat(folder: Path) -> AuKFolder:
    source = folder / "config.json"
    values = read_json(source)
    if "dit" not in values or "vae" not in values:
        raise ConfigMismatch(
            f"{source} has no `dit` and `vae`: this is a Qwen2.5-Omni folder, the encoder of AuK. Load the folder with "
            f"auk_base.safetensors or auk_flash.safetensors, and keep this one beside it as {ENCODER_NAME}"
        )
    config = AuKConfig.from_flat(values, source=str(source))
    grid = values.get("flash_t_grid")
    if config.variant == "flash" and grid is not None and not _is_flash_grid(grid):
        raise ConfigMismatch(f"{source}: flash_t_grid {grid!r} is not the grid of AuK-Flash, {list(FLASH_GRID)}")
    try:
        build_time_grid(config.recipe.nfe, config.recipe.sway)
    except InvalidRequest as error:
        raise ConfigMismatch(f"{source}: defaults make no time grid: {error}") from error
    thinker = _thinker_of(values, source)
    return AuKFolder(config=config, dit=folder / FLAT_FILE, vae=folder / VAE_FILE, encoder=folder, thinker=thinker)


def _dit_file(folder: Path, config: AuKConfig) -> Path:
    """The file of the variant the config names, else the only other one."""
    wanted = DIT_FILES[1] if config.variant == "flash" else DIT_FILES[0]
    found = [folder / name for name in (wanted, *DIT_FILES) if (folder / name).is_file()]
    found = found or sorted(folder.glob("*.pt"))
    if not found:
        raise MissingFile(f"{folder} holds neither {' nor '.join(DIT_FILES)} nor a training checkpoint (*.pt)")
    if found[0].suffix == ".pt" and len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise ConfigMismatch(f"{folder} holds several training checkpoints ({names}); load one by its path")
    return found[0]


def _encoder(folder: Path, named: str) -> Path:
    """The encoder's folder: what the config names, from here or from there, one of its name nearby, or the cache."""
    candidates = [folder / named, Path(named)] if named else []
    candidates += [folder.parent / ENCODER_NAME, folder / ENCODER_NAME]
    for candidate in candidates:
        if (candidate / "config.json").is_file():
            return candidate
    cached = cached_folder(ENCODER_HUB_ID)
    if cached is None:
        raise MissingFile(
            f"the encoder of AuK is missing: put {ENCODER_NAME} (Qwen research licence, non-commercial) at "
            f"{folder.parent / ENCODER_NAME}, or download {ENCODER_HUB_ID} into the hub's cache"
        )
    return cached


def _thinker(folder: Path) -> ThinkerConfig:
    source = folder / "config.json"
    return _thinker_of(read_json(source), source)


def _thinker_of(values: Mapping[str, Any], source: Path) -> ThinkerConfig:
    """The encoder's config. Raises ConfigMismatch for one whose weights are quantised."""
    inner = values.get("thinker_config")
    for part in (values, inner if isinstance(inner, Mapping) else {}):
        if part.get("quantization_config") is not None:
            raise ConfigMismatch(
                f"{source} has a quantization_config: quantised encoders are not supported; use {ENCODER_NAME} as "
                "released, and dtype='bfloat16' to halve its memory"
            )
    return ThinkerConfig.from_dict(values, source=str(source))


def _refuse_other_methods(model: Mapping[str, Any], source: str) -> None:
    """Raises ConfigMismatch for a VAE or a solver that is not the released one."""
    name = model["vae"].get("vae_name", VAE_NAME)
    if name != VAE_NAME:
        raise ConfigMismatch(f"{source}: vae_name {name!r} is not supported, {VAE_NAME} is")
    schedule = model.get("schedule")
    options = schedule.get("odeint_kwargs") if isinstance(schedule, Mapping) else None
    method = options.get("method", SOLVER) if isinstance(options, Mapping) else SOLVER
    if method != SOLVER:
        raise ConfigMismatch(f"{source}: the solver {method!r} is not supported, {SOLVER} is")


def _is_flash_grid(grid: Any) -> bool:
    if not isinstance(grid, list) or len(grid) != len(FLASH_GRID):
        return False
    return all(isinstance(t, int | float) and abs(t - own) < 1e-6 for t, own in zip(grid, FLASH_GRID, strict=True))
