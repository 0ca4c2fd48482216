"""Names, shapes and counts of the released checkpoints, at full size on the meta device (AUDEX spec, 2 and 4)."""

from __future__ import annotations

import torch
from torch import nn

from oscine.families.audex import spec
from oscine.families.audex.bench import SPEECH_DECODER, XCODEC
from oscine.families.audex.codec.config import SpeechDecoderConfig, XCodecConfig
from oscine.families.audex.codec.speech_decoder import SpeechDecoder
from oscine.families.audex.codec.xcodec import XCodecDecoder
from oscine.families.audex.config import AudioConfig, DenseConfig, HybridConfig, parse_lm_config
from oscine.families.audex.model.audio_tower import AudioTower
from oscine.families.audex.model.dense import DenseLM
from oscine.families.audex.model.hybrid import HybridLM
from oscine.families.audex.weights.rules import lm_dtypes
from oscine.kernels.int8 import to_int8_weights

Shapes = dict[str, tuple[int, ...]]

DENSE = {
    "architectures": ["NemotronDenseForCausalLM"],
    "model_type": "nemotron_dense",
    "vocab_size": 205312,
    "hidden_size": 2048,
    "intermediate_size": 9216,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "relu2",
    "norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 1e8, "partial_rotary_factor": 1.0},
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
PATTERN = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
HYBRID = {
    "architectures": ["NemotronHAudexForConditionalGeneration"],
    "model_type": "nemotron_h_audex",
    "vocab_size": 205312,
    "hidden_size": 2688,
    "hybrid_override_pattern": PATTERN,
    "num_hidden_layers": 52,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "use_conv_bias": True,
    "chunk_size": 128,
    "use_bias": False,
    "mamba_proj_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "mamba_hidden_act": "silu",
    "mamba_ssm_cache_dtype": "float32",
    "time_step_min": 0.001,
    "time_step_max": 0.1,
    "time_step_floor": 1e-4,
    "time_step_limit": [0.0, float("inf")],
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "n_shared_experts": 1,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "routed_scaling_factor": 2.5,
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
    "mlp_hidden_act": "relu2",
    "layer_norm_epsilon": 1e-5,
    "residual_in_fp32": False,
    "tie_word_embeddings": False,
    "max_position_embeddings": 262144,
    "rope_theta": 10000,
    "partial_rotary_factor": 1.0,
}
AUDIO = {
    "audio_config": {
        "num_mel_bins": 128,
        "d_model": 1280,
        "encoder_layers": 32,
        "encoder_attention_heads": 20,
        "encoder_ffn_dim": 5120,
        "max_source_positions": 1500,
        "activation_function": "gelu",
        "scale_embedding": False,
    },
    "audio_encoder_hidden_size": 1280,
    "audio_projector_intermediate_size": 4096,
    "audio_projector_activation": "relu2",
    "audio_projector_norm_eps": 1e-5,
    "sound_embedding_size": 750,
}


def shapes_of(module: nn.Module) -> Shapes:
    return {name: tuple(value.shape) for name, value in module.state_dict(keep_vars=True).items()}


def count(shapes: Shapes) -> int:
    return sum(torch.Size(shape).numel() for shape in shapes.values())


def test_dense_2b() -> None:
    layer: Shapes = {
        "input_layernorm.weight": (2048,),
        "post_attention_layernorm.weight": (2048,),
        "self_attn.q_proj.weight": (2048, 2048),
        "self_attn.o_proj.weight": (2048, 2048),
        "self_attn.k_proj.weight": (1024, 2048),
        "self_attn.v_proj.weight": (1024, 2048),
        "mlp.up_proj.weight": (9216, 2048),
        "mlp.down_proj.weight": (2048, 9216),
    }
    released = {f"model.layers.{i}.{name}": shape for i in range(28) for name, shape in layer.items()}
    released |= {"model.embed_tokens.weight": (205312, 2048), "lm_head.weight": (205312, 2048)}
    released |= {"model.norm.weight": (2048,)}
    config = parse_lm_config(DENSE, source="test")
    assert isinstance(config, DenseConfig)
    assert config.rope_theta == 1e8
    with torch.device("meta"):
        lm = DenseLM(config)
    assert shapes_of(lm) == released
    assert len(released) == 227
    assert round(count(released) / 1e9, 3) == 2.250
    bfloat16 = lm.to(torch.bfloat16)
    assert bfloat16.cache_shape.row_bytes(1) == 114_688


def test_hybrid_30b() -> None:
    kinds: dict[str, Shapes] = {
        "M": {
            "in_proj.weight": (10304, 2688),
            "conv1d.weight": (6144, 1, 4),
            "conv1d.bias": (6144,),
            "A_log": (64,),
            "D": (64,),
            "dt_bias": (64,),
            "norm.weight": (4096,),
            "out_proj.weight": (2688, 4096),
        },
        "*": {
            "q_proj.weight": (4096, 2688),
            "k_proj.weight": (256, 2688),
            "v_proj.weight": (256, 2688),
            "o_proj.weight": (2688, 4096),
        },
        "E": {
            "gate.weight": (128, 2688),
            "gate.e_score_correction_bias": (128,),
            "shared_experts.up_proj.weight": (3712, 2688),
            "shared_experts.down_proj.weight": (2688, 3712),
        },
    }
    for e in range(128):
        kinds["E"][f"experts.{e}.up_proj.weight"] = (1856, 2688)
        kinds["E"][f"experts.{e}.down_proj.weight"] = (2688, 1856)
    released: Shapes = {"backbone.embeddings.weight": (205312, 2688), "lm_head.weight": (205312, 2688)}
    released["backbone.norm_f.weight"] = (2688,)
    for i, letter in enumerate(PATTERN):
        released[f"backbone.layers.{i}.norm.weight"] = (2688,)
        released |= {f"backbone.layers.{i}.mixer.{name}": shape for name, shape in kinds[letter].items()}
    config = parse_lm_config(HYBRID, source="test")
    assert isinstance(config, HybridConfig)
    with torch.device("meta"):
        lm = HybridLM(config)
    assert shapes_of(lm) == released
    assert round(count(released) / 1e9, 2) == 31.98
    experts = {name: shape for name, shape in released.items() if ".experts." in name}
    assert round(count(experts) / 1e9, 2) == 29.37
    wide = {name.rsplit("mixer.", 1)[1] for name in released if lm_dtypes(torch.bfloat16)(name) == torch.float32}
    assert wide == {"A_log", "D", "dt_bias", "gate.weight", "gate.e_score_correction_bias"}
    assert lm.to(torch.bfloat16).cache_shape.row_bytes(1) - lm.cache_shape.row_bytes(0) == 6_144
    assert lm.cache_shape.row_bytes(0) == 23 * (6144 * 4 * 2 + 64 * 64 * 128 * 4)


def test_blocks_may_be_listed() -> None:
    names = {"M": "mamba", "*": "attention", "E": "moe"}
    listed = {key: value for key, value in HYBRID.items() if key != "hybrid_override_pattern"}
    for words in (names, {**names, "M": "linear_attention", "*": "full_attention"}):
        values = {**listed, "layers_block_type": [words[letter] for letter in PATTERN]}
        assert parse_lm_config(values, source="test") == parse_lm_config(HYBRID, source="test")


def test_audio_tower() -> None:
    with torch.device("meta"):
        tower = AudioTower(AudioConfig.from_dict(AUDIO), 2048)
    shapes = shapes_of(tower)
    assert len(shapes) == 490
    assert shapes["audio_encoder.conv2.weight"] == (1280, 1280, 3)
    assert shapes["audio_encoder.embed_positions.weight"] == (1500, 1280)
    assert "audio_encoder.layers.31.self_attn.k_proj.bias" not in shapes
    assert shapes["audio_encoder.layers.31.self_attn.out_proj.bias"] == (1280,)
    projector = {name: shape for name, shape in shapes.items() if name.startswith("audio_projector.")}
    assert projector == {
        "audio_projector.norm.weight": (1280,),
        "audio_projector.fc1.weight": (4096, 1280),
        "audio_projector.fc2.weight": (2048, 4096),
    }
    assert round(count(projector) / 1e6, 1) == 13.6
    assert round((count(shapes) - count(projector)) / 1e9, 3) == 0.637


def test_speech_decoder() -> None:
    values = {
        "hidden_dim": 2048,
        "depth": 12,
        "heads": 32,
        "pos_meb_dim": 64,
        "hop_length": 320,
        "vq_dim": 2048,
        "lookahead_steps": 4,
        "sample_rate": 16000,
        "codebook_levels": [4] * 8,
        "codebook_size": 65536,
        "token_embed_dim": 8,
        "embed_tokens_from_codes": True,
    }
    block: Shapes = {
        "att_norm.weight": (2048,),
        "ffn_norm.weight": (2048,),
        "att.c_attn.weight": (6144, 2048),
        "att.c_proj.weight": (2048, 2048),
        "mlp.fc1.weight": (8192, 2048),
        "mlp.fc2.weight": (2048, 8192),
    }
    released: Shapes = {
        "audex_speech_token_embedder.project_out.weight": (2048, 8),
        "audex_speech_token_embedder.project_out.bias": (2048,),
        "module.wav_proj.weight": (2048, 320),
        "module.fc_post_a.weight": (2048, 2048),
        "module.lookahead_conv.weight": (2048, 1, 5),
        "module.lookahead_proj.weight": (2048, 2048, 1),
        "module.backbone.final_layer_norm.weight": (2048,),
        "module.head.proj.weight": (320, 2048),
    }
    for i in range(12):
        released |= {f"module.backbone.transformers.{i}.{name}": shape for name, shape in block.items()}
    with torch.device("meta"):
        decoder = SpeechDecoder(SpeechDecoderConfig.from_dict(values))
        blind = SpeechDecoder(SpeechDecoderConfig.from_dict({**values, "lookahead_steps": 0}))
    assert shapes_of(decoder) == released
    assert round(count(released) / 1e6, 1) == 613.8
    assert shapes_of(blind) == {name: shape for name, shape in released.items() if "lookahead" not in name}
    assert decoder.cache_shape.row_bytes(1) == 196_608


def test_xcodec() -> None:
    values = {
        "model_type": "xcodec",
        "sample_rate": 16000,
        "codebook_size": 1024,
        "codebook_dim": 1024,
        "acoustic_model_config": {"hidden_size": 256, "decoder_hidden_size": 1024, "upsampling_ratios": [8, 5, 4, 2]},
    }
    config = XCodecConfig.from_dict(values)
    assert config.hop_length == 320
    with torch.device("meta"):
        decoder = XCodecDecoder(config)
    shapes = shapes_of(decoder)
    books = {name: shape for name, shape in shapes.items() if name.startswith("quantizer.")}
    assert books == {f"quantizer.quantizers.{i}.codebook.embed": (1024, 1024) for i in range(4)}
    assert shapes["fc2.weight"] == (256, 1024)
    assert shapes["acoustic_decoder.conv1.weight"] == (1024, 256, 7)
    assert shapes["acoustic_decoder.conv2.weight"] == (1, 64, 7)
    assert shapes["acoustic_decoder.snake1.alpha"] == (1, 64, 1)
    for i, (channels, stride) in enumerate(zip((1024, 512, 256, 128), (8, 5, 4, 2), strict=True)):
        assert shapes[f"acoustic_decoder.block.{i}.conv_t1.weight"] == (channels, channels // 2, 2 * stride)
        assert shapes[f"acoustic_decoder.block.{i}.res_unit3.conv1.weight"] == (channels // 2, channels // 2, 7)
    assert 20e6 < count(shapes) < 30e6


def test_doctor_knows_what_the_releases_need() -> None:
    """The counts behind `oscine doctor` are those of the modules; a request's are what the family reserves for it."""
    with torch.device("meta"):
        dense, narrow = (DenseLM(DenseConfig.from_dict(DENSE)) for _ in range(2))
        hybrid = HybridLM(HybridConfig.from_dict(HYBRID))
        towers = [AudioTower(AudioConfig.from_dict(AUDIO), width) for width in (2048, 2688)]
        decoder, xcodec = SpeechDecoder(SPEECH_DECODER), XCodecDecoder(XCODEC)
        to_int8_weights(narrow)
    sizes = [count(shapes_of(module)) for module in (dense, hybrid, *towers)]
    assert sizes == [spec.DENSE_PARAMETERS, spec.HYBRID_PARAMETERS, spec.DENSE_TOWER, spec.HYBRID_TOWER]
    assert count(shapes_of(decoder)) + count(shapes_of(xcodec)) == spec.CODEC_PARAMETERS
    for release, lm, tower in zip(spec.FAMILY.releases, (dense, hybrid), sizes[2:], strict=True):
        assert release.lm_parameters == count(shapes_of(lm)) + tower
        assert release.request_bytes == 2 * (
            lm.cache_shape.row_bytes(spec.SPOKEN) + decoder.cache_shape.row_bytes(spec.SPOKEN)
        )
        assert "Noncommercial" in release.licence
    held = sum(value.numel() * value.element_size() for value in narrow.state_dict(keep_vars=True).values())
    saved = spec.FAMILY.releases[0].memory(4) - (spec.FAMILY.releases[0].int8_memory() or 0)
    assert abs(4 * spec.DENSE_PARAMETERS - held - saved) < 0.01 * saved
    assert spec.FAMILY.releases[1].int8_memory() is None
