"""Configurations that would build without end, nest without end or grow without end are refused at once, by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from oscine.checkpoint.config import MOST, MOST_LAYERS, read_json
from oscine.checkpoint.folder import read_config, read_safetensors_header
from oscine.checkpoint.hub import is_complete
from oscine.checkpoint.json_text import MAX_DEPTH, parse_json, shown
from oscine.checkpoint.tokenizer import read_tokenizer
from oscine.compat.auk_wire import MAGIC, decode_frame
from oscine.errors import CheckpointError, ConfigMismatch, InvalidRequest, WeightMismatch
from oscine.families.audex.codec.config import SpeechDecoderConfig
from oscine.families.audex.config import AudioConfig, parse_lm_config
from oscine.families.audio8.codec.config import CodecConfig
from oscine.families.audio8.codec.spectral_config import SpectralConfig
from oscine.families.audio8.config import LMConfig
from oscine.families.auk.config import AuKConfig, read_yaml
from oscine.families.auk.spec import recognise
from tests.server.conftest import CHECKPOINT

DEEP = ("[" * 100_000, '{"a":' * 100_000, "[" * 500 + "]" * 500, '{"a":' * 40 + "1" + "}" * 40)


# Nesting


@pytest.mark.parametrize("text", DEEP, ids=["lists", "objects", "closed", "few"])
def test_deep_json_is_refused_wherever_it_is_read(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"levels deep|Expecting"):
        parse_json(text)
    path = tmp_path / "config.json"
    path.write_text('{"a": ' + text)
    with pytest.raises(ConfigMismatch, match="config.json"):
        read_json(path)
    with pytest.raises(ConfigMismatch, match="cannot be read"):
        read_config(tmp_path)
    with pytest.raises(ConfigMismatch, match="tokenizer"):
        read_tokenizer(path)
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CheckpointError, match="weight index"):
        is_complete(tmp_path)


@pytest.mark.parametrize("text", DEEP[2:], ids=["lists", "objects"])
def test_deep_headers_are_refused(tmp_path: Path, text: str) -> None:
    header = b'{"a": ' + text.encode() + b"}"
    data = len(header).to_bytes(8, "little") + header
    (tmp_path / "a.safetensors").write_bytes(data)
    with pytest.raises(WeightMismatch, match="levels deep"):
        read_safetensors_header(tmp_path / "a.safetensors")
    with pytest.raises(InvalidRequest, match="levels deep"):
        decode_frame(MAGIC + len(header).to_bytes(4, "big") + header + data)


def test_what_is_nested_as_deep_as_allowed_is_read() -> None:
    text = "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH
    assert json.dumps(parse_json(text)) == text
    with pytest.raises(ValueError, match=f"{MAX_DEPTH} levels"):
        parse_json(f"[{text}]")


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(28))
REFERENCES = "a0: x\n" + "".join(f'a{n + 1}: ["${{a{n}}}", "${{a{n}}}"]\n' for n in range(28))


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        REFERENCES,
        "a: &a [*a]",
        "a: " + "[" * 5000,
        "a: " + "[" * 300 + "]" * 300,
        "a: " + "9" * 5000,
        "a: 2024-99-99",
        "a: [" + "1, " * 50_000 + "]",
    ],
    ids=["anchors", "references", "circle", "open", "deep", "digits", "date", "long"],
)
def test_yaml_that_grows_or_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    """Twenty-eight lines could become 2^28 values."""
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigMismatch, match="config.yaml"):
        read_yaml(path)


def test_the_name_of_a_model_is_found_without_trying_every_way_to_group_its_lines(tmp_path: Path) -> None:
    """Blank lines could be taken in two ways each: thirty of them took longer than anybody waits."""
    (tmp_path / "config.yaml").write_text("model:\n" + "\n" * 200 + "  a: 1\n" + " \n" * 200 + "b: 1\n")
    assert recognise(tmp_path, {}) == "unknown"
    (tmp_path / "config.yaml").write_text("a: 1\nmodel:\n\n  type: x\n  name: AuK\n")
    assert recognise(tmp_path, {}) == "auk"


# Sizes

Parse = Callable[[Mapping[str, Any]], object]
AUDEX_LM = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1}
COUNTS: dict[str, tuple[Parse, str]] = {
    "audio8": (LMConfig.from_dict, "n_layer"),
    "audio8 fast": (LMConfig.from_dict, "n_fast_layer"),
    "audio8 codebooks": (LMConfig.from_dict, "num_codebooks"),
    "audio8 codec before": (CodecConfig.from_dict, "pre_n_layer"),
    "audio8 codec after": (CodecConfig.from_dict, "post_n_layer"),
    "audio8 quantizer": (CodecConfig.from_dict, "n_residual_codebooks"),
    "audio8 spectral": (SpectralConfig.from_dict, "num_blocks"),
    "audex decoder": (lambda values: SpeechDecoderConfig.from_dict({"hidden_dim": 4} | values), "depth"),
    "audex encoder": (
        lambda values: AudioConfig.from_dict({"audio_config": {"num_mel_bins": 4, "d_model": 4} | values}),
        "encoder_layers",
    ),
}


@pytest.mark.parametrize(("parse", "name"), COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("value", [MOST_LAYERS + 1, 10**6, 10**18])
def test_what_is_built_one_by_one_has_an_end(parse: Parse, name: str, value: int) -> None:
    with pytest.raises(ConfigMismatch, match=rf"{name} .*{MOST_LAYERS}"):
        parse({name: value})


@pytest.mark.parametrize("name", ["dim", "vocab_size", "n_head", "intermediate_size"])
def test_sizes_have_an_end_too(name: str) -> None:
    with pytest.raises(ConfigMismatch, match=f"{name} must be <= {MOST}"):
        LMConfig.from_dict({name: 10**18})


@pytest.mark.parametrize("key", ["hybrid_override_pattern", "layers_block_type"])
def test_a_pattern_of_blocks_has_an_end(key: str) -> None:
    known = json.loads(
        (CHECKPOINT.parents[1] / "audex" / "tiny_audex" / "checkpoint_folder_full" / "config.json").read_text()
    )
    given = "M" * 100_000 if key == "hybrid_override_pattern" else ["mamba"] * 100_000
    hybrid = known | {"model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"], key: given}
    with pytest.raises(ConfigMismatch) as caught:
        parse_lm_config(hybrid, source="f")
    assert len(caught.value.message) < 400


def test_lists_of_rates_have_an_end() -> None:
    """Their product has to be printed, and is a number of more digits than Python prints."""
    with pytest.raises(ConfigMismatch, match="decoder_rates must be a list of 1 to 64"):
        CodecConfig.from_dict({"decoder_rates": [8] * 100_000})


def test_a_million_layers_are_refused_when_a_checkpoint_is_loaded(tmp_path: Path) -> None:
    import oscine

    folder = tmp_path / "model"
    shutil.copytree(CHECKPOINT, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"n_layer": 1_000_000}))
    with pytest.raises(ConfigMismatch, match="n_layer must be >= 1 and <= 1024, got 1000000"):
        oscine.load(folder, device="cpu")


def test_a_tokenizer_that_its_library_gives_up_on_is_refused(tmp_path: Path) -> None:
    """Rust panics there, which is no `Exception` in Python."""
    values = json.loads((CHECKPOINT / "tokenizer.json").read_text())
    values["model"]["continuing_subword_prefix"] = "a" * 10
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(ConfigMismatch, match="tokenizer"):
        read_tokenizer(tmp_path / "tokenizer.json")


def test_long_values_are_shown_in_short() -> None:
    assert shown({"a": [1, "b"]}) == "{'a': [1, 'b']}"
    assert len(shown(["a" * 1000] * 1000)) < 2000
    assert len(shown(10**2000)) < 200


def test_auk_has_the_same_limits() -> None:
    arch = {"dim": 4, "heads": 1, "dim_head": 4, "ff_mult": 1.0, "text_hidden_dim": 4, "num_layers": 10**6}
    vae = {"latent_dim": 4, "target_sample_rate": 24000}
    values = {"model": {"name": "AuK", "arch": arch, "vae": vae}}
    with pytest.raises(ConfigMismatch, match=r"num_layers must be >= 0 and <= 1024"):
        AuKConfig.from_dict(values, source="f")
