"""The Audio8 codec: waveform ↔ codes, whole or streamed (AUDIO8 spec, 3.5 and 6).

    audio → encoder → quantizer.{downsample, pre_module, semantic_quantizer, quantizer} → codes
    codes → quantizer.{code_vectors, post_module, upsample} → decoder → audio

Module names are the checkpoint's keys with weight norm folded (see `codec_weights`). No module holds a
computed buffer, so a codec built on the meta device is complete once its parameters are assigned.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.errors import UnsupportedFeature
from oscine.families.audio8.codec.config import CodecConfig
from oscine.families.audio8.codec.layers import (
    CausalConv,
    CausalConvTranspose,
    Chain,
    ResidualUnit,
    Snake,
    StreamState,
)
from oscine.families.audio8.codec.quantizer import Quantizer
from oscine.families.audio8.codec.transformer import WindowTransformer

DILATIONS = (1, 3, 9)


class EncoderBlock(nn.Module):
    """Residual units, then a convolution that doubles the channels and divides the rate by `stride`."""

    def __init__(self, channels: int, stride: int, transformer: WindowTransformer | None) -> None:
        super().__init__()
        down = CausalConv(channels, 2 * channels, 2 * stride, stride=stride)
        units = (ResidualUnit(channels, d) for d in DILATIONS)
        self.block = Chain(*units, Snake(channels), down, *((transformer,) if transformer is not None else ()))

    def forward(self, x: Tensor, state: StreamState | None = None) -> Tensor:
        """x [batch, channel, time] → [batch, 2 channel, ceil(time / stride)]."""
        y: Tensor = self.block(x, state)
        return y


class Encoder(nn.Module):
    """Waveform → latents at encoder rate."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        channels = config.encoder_dim
        blocks: list[nn.Module] = [CausalConv(1, channels, 7)]
        for rate, num_layers in zip(config.encoder_rates, config.encoder_transformer_layers, strict=True):
            transformer = _encoder_transformer(config, 2 * channels, num_layers) if num_layers else None
            blocks.append(EncoderBlock(channels, rate, transformer))
            channels *= 2
        self.block = Chain(*blocks, Snake(channels), CausalConv(channels, config.latent_dim, 3))

    def forward(self, x: Tensor, state: StreamState | None = None) -> Tensor:
        """x [batch, 1, sample] → [batch, latent_dim, time]."""
        y: Tensor = self.block(x, state)
        return y


class DecoderBlock(nn.Module):
    """A transposed convolution that halves the channels and multiplies the rate, then residual units."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        up = CausalConvTranspose(channels, channels // 2, 2 * stride, stride=stride)
        self.block = Chain(Snake(channels), up, *(ResidualUnit(channels // 2, d) for d in DILATIONS))

    def forward(self, x: Tensor, state: StreamState | None = None) -> Tensor:
        """x [batch, channel, time] → [batch, channel / 2, time * stride]."""
        y: Tensor = self.block(x, state)
        return y


class Decoder(nn.Module):
    """Latents at encoder rate → waveform in [-1, 1]."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        channels = config.decoder_dim
        blocks: list[nn.Module] = [CausalConv(config.latent_dim, channels, 7)]
        for rate in config.decoder_rates:
            blocks.append(DecoderBlock(channels, rate))
            channels //= 2
        self.model = Chain(*blocks, Snake(channels), CausalConv(channels, 1, 7))

    def forward(self, x: Tensor, state: StreamState | None = None) -> Tensor:
        """x [batch, latent_dim, time] → [batch, 1, sample]."""
        return torch.tanh(self.model(x, state))


class Codec(nn.Module):
    """Neural codec with one semantic and several residual codebooks; every part is causal."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        if config.encodes:
            self.encoder = Encoder(config)
        self.quantizer = Quantizer(config)
        self.decoder = Decoder(config)

    @property
    def identity(self) -> Tensor:
        """The table that tells this codec from another: its semantic codebook."""
        table: Tensor = self.state_dict()["quantizer.semantic_quantizer.quantizers.0.codebook.weight"]
        return table

    @torch.no_grad()
    def encode(self, audio: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Audio [batch, 1, sample], right-padded, and its valid `lengths` [batch] in samples (default: all).

        Returns codes int64 [batch, codebook, frame], -1 past a row's end, and the frames of each row [batch]. Raises
        UnsupportedFeature when the codec has no encoder.
        """
        if not self.config.encodes:
            raise UnsupportedFeature("this codec has no encoder (encoder_dim is 0); it only speaks", param="ref_audio")
        if lengths is None:
            lengths = torch.full((len(audio),), audio.shape[-1], device=audio.device)
        frame = self.config.frame_length
        codes = self.quantizer.encode(self.encoder(F.pad(audio, (0, -audio.shape[-1] % frame))))
        code_lengths = (lengths.long() + frame - 1) // frame
        past_end = torch.arange(codes.shape[-1], device=codes.device) >= code_lengths[:, None]
        return codes.masked_fill(past_end[:, None], -1), code_lengths

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """Codes [batch, codebook, frame] → audio [batch, 1, frame * frame_length].

        The frames of a row are its columns without a negative code: the output is cut to the longest row,
        shorter rows end in zeros. Codes beyond a codebook are clamped. Nothing but absent codes: zero samples.
        """
        lengths = (codes >= 0).all(1).sum(-1)
        frames = int(lengths.max()) if len(lengths) else 0
        if frames == 0:
            return torch.zeros(len(codes), 1, 0, device=codes.device, dtype=next(self.parameters()).dtype)
        audio = self.synthesize(codes[..., :frames])
        past_end = torch.arange(audio.shape[-1], device=audio.device) >= (lengths * self.config.frame_length)[:, None]
        return audio.masked_fill(past_end[:, None], 0.0)

    def open_stream(self) -> StreamState:
        """A state for `decode_chunk`, before the first frame."""
        return StreamState()

    @torch.no_grad()
    def decode_chunk(self, codes: Tensor, state: StreamState) -> Tensor:
        """The next frames of one stream: codes [1, codebook, frame >= 1] → audio [1, 1, sample].

        Yields frame * frame_length samples and updates `state`. Any way of cutting equals `decode` of the
        whole within rounding; nothing is held back.
        """
        return self.synthesize(codes, state)

    def flush(self, state: StreamState) -> Tensor:
        """Nothing [1, 1, 0]: every frame is decoded in full when it comes."""
        weight = next(self.parameters())
        return torch.zeros(1, 1, 0, device=weight.device, dtype=weight.dtype)

    @torch.inference_mode()
    def stream_bytes(self) -> int:
        """Bytes of a stream's full state: what one frame leaves, with all attention windows filled."""
        state, config = self.open_stream(), self.config
        device = next(self.parameters()).device
        self.decode_chunk(torch.zeros(1, config.num_codebooks, 1, dtype=torch.long, device=device), state)
        position = 2 * config.post_n_layer * config.post_n_local_heads * config.transformer_head_dim * 4
        return state.num_bytes + position * config.quantizer_window

    def synthesize(self, codes: Tensor, state: StreamState | None = None) -> Tensor:
        """Audio of all frames given, every code clamped to its codebook, absent ones (-1) included."""
        audio: Tensor = self.decoder(self.quantizer.decode(codes, state), state)
        return audio


def _encoder_transformer(config: CodecConfig, dim: int, num_layers: int) -> WindowTransformer:
    heads = dim // config.transformer_head_dim
    return WindowTransformer(
        dim,
        num_layers,
        heads=(heads, heads),
        head_dim=config.transformer_head_dim,
        hidden=3 * dim,
        window=config.encoder_window,
    )
