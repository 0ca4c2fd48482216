"""Reads an Audex checkpoint folder, each part of it strictly (AUDEX spec, 1.1)."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from oscine.checkpoint.config import read_json, require
from oscine.checkpoint.hub import cached_folder
from oscine.checkpoint.tokenizer import read_tokenizer
from oscine.checkpoint.weights import load_strict, read_tensors
from oscine.errors import ConfigMismatch, MissingFile, UnsupportedFeature
from oscine.families.audex import frontend
from oscine.families.audex.codec.config import SpeechDecoderConfig, XCodecConfig
from oscine.families.audex.codec.speech_decoder import SpeechDecoder
from oscine.families.audex.codec.xcodec import XCodecDecoder
from oscine.families.audex.config import (
    AudioConfig,
    DenseConfig,
    LMConfig,
    parse_lm_config,
)
from oscine.families.audex.model.audio_tower import AudioTower
from oscine.families.audex.model.dense import DenseLM
from oscine.families.audex.model.hybrid import HybridLM
from oscine.families.audex.phases import XCODEC1_CODEBOOK_SIZE, XCODEC1_NUM_CODEBOOKS
from oscine.families.audex.tokens import TokenSpace
from oscine.families.audex.weights.rules import (
    FULL_FOLDER,
    LM_RULES,
    XCODEC_RULES,
    as_int8,
    audio_keys,
    lm_dtypes,
    lm_keys,
    read_shards,
    shard_paths,
    xcodec_tensors,
)
from oscine.kernels.int8 import require_whole_products, to_int8_weights
from oscine.kernels.upcast_linear import to_upcast_linear
from oscine.layers.log_mel import FFT_SIZE, HOP_LENGTH, SAMPLE_RATE

logger = logging.getLogger(__name__)

AUDIOGEN_FOLDER = "checkpoint_folder_audiogen"
SPEECH_DECODER_FOLDER = "audex_causal_speech_decoder"
XCODEC_FOLDER, XCODEC_HUB_ID = "xcodec1", "hf-audio/xcodec-hubert-general-balanced"
XCODEC_VARIABLE = "XCODEC1_PATH"
"""Environment variable with the folder of XCodec1, which is a repository of its own."""

LanguageModel = DenseLM | HybridLM

CLIP_SECONDS = frontend.CLIP_SAMPLES / SAMPLE_RATE
PREPROCESSOR = (
    ("feature_size", frontend.NUM_MEL_BINS),
    ("sampling_rate", SAMPLE_RATE),
    ("hop_length", HOP_LENGTH),
    ("n_fft", FFT_SIZE),
    ("n_samples", frontend.CLIP_SAMPLES),
    ("padding_side", "right"),
    ("padding_value", 0.0),
)
"""What `preprocessor_config.json` must say: the front end has these built in."""


@dataclass(frozen=True, kw_only=True)
class AudexModel:
    """All parts of one checkpoint; `tower` is None without the full folder, `xcodec` without an XCodec1 folder."""

    lm: LanguageModel
    tower: AudioTower | None
    speech_decoder: SpeechDecoder
    xcodec: XCodecDecoder | None
    tokenizer: Tokenizer
    tokens: TokenSpace

    @property
    def is_hybrid(self) -> bool:
        """Whether this is the 30B's kind of language model."""
        return isinstance(self.lm, HybridLM)


def load_model(root: Path, *, device: torch.device, dtype: torch.dtype) -> AudexModel:
    """The checkpoint in `root`, its codecs in float32. Raises a `CheckpointError` that names file and reason.

    With int8 the matrices of a dense language model are int8 and all else is of `wide_dtype`; UnsupportedFeature for a
    hybrid one.
    """
    folders = [root / name for name in (AUDIOGEN_FOLDER, FULL_FOLDER) if (root / name / "config.json").is_file()]
    if not folders:
        raise MissingFile(f"{root} has neither {AUDIOGEN_FOLDER} nor {FULL_FOLDER} with a config.json")
    configs = _lm_configs(folders)
    folder, config = folders[0], configs[folders[0].name]
    tokenizer, tokens = load_tokenizer(folder / "tokenizer.json", vocab_size=config.vocab_size)
    shards = {folder.name: shard_paths(folder) for folder in folders}
    lm = load_lm(config, lm_keys(shards[folder.name], tied=config.tie_word_embeddings), device=device, dtype=dtype)
    tower = None
    if FULL_FOLDER in configs and _same_lm(shards, configs):
        wide = wide_dtype(dtype, device)
        tower = load_tower(root / FULL_FOLDER, shards[FULL_FOLDER], config.hidden_size, device=device, dtype=wide)
    xcodec_folder = find_xcodec(root)
    model = AudexModel(
        lm=lm,
        tower=tower,
        speech_decoder=load_speech_decoder(root / SPEECH_DECODER_FOLDER, device=device),
        xcodec=load_xcodec(xcodec_folder, device=device) if xcodec_folder else None,
        tokenizer=tokenizer,
        tokens=tokens,
    )
    _check_codecs(model, source=str(root))
    return model


def load_tokenizer(path: Path, *, vocab_size: int) -> tuple[Tokenizer, TokenSpace]:
    """The tokenizer and the ids read from it. Raises MissingFile, or ConfigMismatch for one that does not fit."""
    tokenizer = read_tokenizer(path)
    tokens = TokenSpace.of(tokenizer, source=str(path))
    if tokens.largest >= vocab_size:
        raise ConfigMismatch(f"{path}: token {tokens.largest} is beyond the model's {vocab_size} rows")
    return tokenizer, tokens


def load_lm(config: LMConfig, shards: Mapping[str, Path], *, device: torch.device, dtype: torch.dtype) -> LanguageModel:
    """The language model of `config` with the tensors listed. Raises UnsupportedFeature for int8 where it cannot be."""
    int8 = dtype == torch.int8
    if int8 and not isinstance(config, DenseConfig):
        raise UnsupportedFeature(
            "int8 is for the dense 2B language model; load the hybrid 30B-A3B in bfloat16", param="dtype"
        )
    if int8 and device.type == "cpu":
        require_whole_products()
    with torch.device("meta"):
        lm = DenseLM(config) if isinstance(config, DenseConfig) else HybridLM(config)
        if int8:
            to_int8_weights(lm)
    source = str(next(iter(shards.values()), Path()).parent)
    tensors = as_int8(read_shards(shards)) if int8 else read_shards(shards)
    dtypes = lm_dtypes(wide_dtype(dtype, device))
    load_strict(lm, tensors, dtype=dtypes, device=device, source=source, rules=LM_RULES)
    to_upcast_linear(lm)
    return lm.eval()


def wide_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype of what is not int8: `dtype` itself unless that is int8."""
    if dtype != torch.int8:
        return dtype
    return torch.float32 if device.type == "cpu" else torch.bfloat16


def load_tower(
    folder: Path, shards: Mapping[str, Path], text_dim: int, *, device: torch.device, dtype: torch.dtype
) -> AudioTower:
    """The audio tower of the full checkpoint, after its feature extractor was found to be the one built in here."""
    values = _lenient_json(folder / "config.json")
    audio = AudioConfig.from_dict(values, source=f"{folder}/config.json")
    states = {
        "sound_target_rate": (values.get("sound_target_rate", SAMPLE_RATE), SAMPLE_RATE),
        "sound_clip_duration": (values.get("sound_clip_duration", CLIP_SECONDS), CLIP_SECONDS),
        "num_mel_bins": (audio.num_mel_bins, frontend.NUM_MEL_BINS),
        "max_source_positions": (audio.max_source_positions, frontend.CLIP_SAMPLES // HOP_LENGTH // 2),
    }
    require(
        [(value != own, f"{key} must be {own}, got {value!r}") for key, (value, own) in states.items()],
        source=f"{folder}/config.json",
    )
    path = folder / str(values.get("audio_preprocessor_path", "audio_preprocessor")) / "preprocessor_config.json"
    stated = _lenient_json(path)
    require(
        [
            (stated.get(key) != value, f"{key} must be {value!r}, got {stated.get(key)!r}")
            for key, value in PREPROCESSOR
        ],
        source=str(path),
    )
    with torch.device("meta"):
        tower = AudioTower(audio, text_dim)
    load_strict(tower, read_shards(audio_keys(shards)), dtype=dtype, device=device, source=str(folder))
    to_upcast_linear(tower)
    return tower.eval()


def load_speech_decoder(folder: Path, *, device: torch.device) -> SpeechDecoder:
    """The speech decoder, float32, with the rule of its calls."""
    config = SpeechDecoderConfig.from_dict(read_json(folder / "config.json"), source=f"{folder}/config.json")
    with torch.device("meta"):
        decoder = SpeechDecoder(config)
    path = folder / "model.safetensors"
    load_strict(decoder, read_tensors(path), dtype=torch.float32, device=device, source=str(path))
    decoder.measure_rules()
    return decoder.eval()


def find_xcodec(root: Path) -> Path | None:
    """The folder of XCodec1: inside the checkpoint, named by XCODEC1_PATH, or in the hub's cache; None without any."""
    inside, named = root / XCODEC_FOLDER, os.environ.get(XCODEC_VARIABLE)
    if inside.is_dir():
        return inside
    if named:
        return Path(named)
    cached = cached_folder(XCODEC_HUB_ID)
    if cached is None:
        logger.warning(
            "no XCodec1 in %s: sounds cannot be made; put %s there, set %s, or download it into the hub's cache",
            inside,
            XCODEC_HUB_ID,
            XCODEC_VARIABLE,
        )
    return cached


def load_xcodec(folder: Path, *, device: torch.device) -> XCodecDecoder:
    """The decoding half of XCodec1, float32; the encoder and HuBERT in the file are passed over."""
    config = XCodecConfig.from_dict(_lenient_json(folder / "config.json"), source=f"{folder}/config.json")
    with torch.device("meta"):
        decoder = XCodecDecoder(config)
    path = folder / "model.safetensors"
    tensors = xcodec_tensors(path, XCODEC1_NUM_CODEBOOKS)
    load_strict(decoder, tensors, dtype=torch.float32, device=device, source=str(path), rules=XCODEC_RULES)
    return decoder.eval()


def _lm_configs(folders: Sequence[Path]) -> dict[str, LMConfig]:
    """The language model's configuration by checkpoint folder; all must be of one size."""
    configs = {
        folder.name: parse_lm_config(_lenient_json(folder / "config.json"), source=f"{folder}/config.json")
        for folder in folders
    }
    if len({type(config) for config in configs.values()}) > 1:
        kinds = ", ".join(f"{name} {type(config).__name__}" for name, config in configs.items())
        raise ConfigMismatch(f"{folders[0].parent} mixes two sizes of Audex: {kinds}")
    return configs


def _check_codecs(model: AudexModel, *, source: str) -> None:
    """Raises ConfigMismatch unless both codecs speak the tokenizer's codes, at one sample rate; hops may differ."""
    decoder, tokens = model.speech_decoder.config, model.tokens
    xcodec = model.xcodec.config if model.xcodec else None
    pairs = [
        (
            tokens.speech.size > decoder.codebook_size,
            f"{tokens.speech.size} speech tokens, but the speech decoder knows {decoder.codebook_size}",
        )
    ]
    if xcodec:
        rates = decoder.sample_rate, xcodec.sample_rate
        pairs += [
            (rates[0] != rates[1], f"the sample rate is {rates[0]} Hz in the speech decoder, {rates[1]} Hz in XCodec1"),
            (
                xcodec.codebook_size != XCODEC1_CODEBOOK_SIZE,
                f"XCodec1's codebook_size must be {XCODEC1_CODEBOOK_SIZE}, got {xcodec.codebook_size}",
            ),
        ]
    require(pairs, source=source)


def _same_lm(shards: Mapping[str, Mapping[str, Path]], configs: Mapping[str, LMConfig]) -> bool:
    """Whether the full folder's language model is the one loaded, so that the audio tower can share it."""
    tied = configs[FULL_FOLDER].tie_word_embeddings
    models = [lm_keys(listed, tied=tied) for listed in shards.values()]
    same = all(model == models[0] for model in models)
    if not same:
        logger.warning("%s has a language model of its own: only speech and sound are offered", FULL_FOLDER)
    return same


def _lenient_json(path: Path) -> dict[str, Any]:
    """A released file may hold the bare word Infinity (AUDEX spec, 1.1)."""
    return read_json(path, non_finite=True)
