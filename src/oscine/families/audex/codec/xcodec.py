"""XCodec1, the decoding half: four codebooks at 50 frames a second to 16 kHz mono (AUDEX spec, 3.5).

Written out here instead of taken from `transformers`: decoding is these hundred lines and 25 M parameters, while the
library's model would also build the encoder and HuBERT. Two things differ from the usual DAC decoder:
`output_padding` where a stride is odd, and no tanh at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from oscine.families.audex.codec.config import XCodecConfig
from oscine.families.audex.phases import XCODEC1_NUM_CODEBOOKS

MAX_FRAMES = 500
"""Ten seconds: what the model was trained to make; later frames are not decoded (AUDEX spec, 6.5)."""
DILATIONS = (1, 3, 9)


class Snake(nn.Module):
    """`x + sin²(alpha x) / alpha`, one alpha a channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, channel, time] → same shape."""
        return x + (self.alpha * x).sin().square() / (self.alpha + 1e-9)


class ResidualUnit(nn.Module):
    """A dilated and a pointwise convolution around the input."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.snake1 = Snake(channels)
        self.conv1 = nn.Conv1d(channels, channels, 7, dilation=dilation, padding=3 * dilation)
        self.snake2 = Snake(channels)
        self.conv2 = nn.Conv1d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, channel, time] → same shape."""
        out: Tensor = x + self.conv2(self.snake2(self.conv1(self.snake1(x))))
        return out


class DecoderBlock(nn.Module):
    """Upsampling by `stride`, then three residual units."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.snake1 = Snake(channels)
        self.conv_t1 = nn.ConvTranspose1d(
            channels,
            channels // 2,
            2 * stride,
            stride=stride,
            padding=(stride + 1) // 2,
            output_padding=stride % 2,
        )
        self.res_unit1, self.res_unit2, self.res_unit3 = (ResidualUnit(channels // 2, d) for d in DILATIONS)

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, channel, time] → [batch, channel / 2, time * stride]."""
        out: Tensor = self.res_unit3(self.res_unit2(self.res_unit1(self.conv_t1(self.snake1(x)))))
        return out


class AcousticDecoder(nn.Module):
    """Latents to samples."""

    def __init__(self, config: XCodecConfig) -> None:
        super().__init__()
        channels = config.decoder_hidden_size
        self.conv1 = nn.Conv1d(config.hidden_size, channels, 7, padding=3)
        self.block = nn.ModuleList(
            DecoderBlock(channels // 2**i, stride) for i, stride in enumerate(config.upsampling_ratios)
        )
        last = channels // 2 ** len(config.upsampling_ratios)
        self.snake1 = Snake(last)
        self.conv2 = nn.Conv1d(last, 1, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, hidden, frame] → [batch, 1, sample]."""
        x = self.conv1(x)
        for block in self.block:
            x = block(x)
        out: Tensor = self.conv2(self.snake1(x))
        return out


class Codebook(nn.Module):
    """Vectors of one quantiser."""

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.embed = nn.Parameter(torch.zeros(size, dim))


class Quantizer(nn.Module):
    """One quantiser, named as in the checkpoint."""

    def __init__(self, config: XCodecConfig) -> None:
        super().__init__()
        self.codebook = Codebook(config.codebook_size, config.codebook_dim)

    def forward(self, codes: Tensor) -> Tensor:
        """codes int64 [batch, frame] → vectors [batch, frame, dim]."""
        return nn.functional.embedding(codes, self.codebook.embed)


class ResidualQuantizer(nn.Module):
    """The first four quantisers, summed; the released model has eight, of which Audex uses these."""

    def __init__(self, config: XCodecConfig) -> None:
        super().__init__()
        self.quantizers = nn.ModuleList(Quantizer(config) for _ in range(XCODEC1_NUM_CODEBOOKS))

    def forward(self, codes: Tensor) -> Tensor:
        """codes int64 [batch, codebook, frame] → [batch, dim, frame]."""
        looked_up = [quantizer(codes[:, index]) for index, quantizer in enumerate(self.quantizers)]
        return torch.stack(looked_up).sum(0).transpose(1, 2)


class XCodecDecoder(nn.Module):
    """Codes to audio; not causal, so a clip is decoded whole. The output may leave [-1, 1]."""

    def __init__(self, config: XCodecConfig) -> None:
        super().__init__()
        self.config = config
        self.quantizer = ResidualQuantizer(config)
        self.fc2 = nn.Linear(config.codebook_dim, config.hidden_size)
        self.acoustic_decoder = AcousticDecoder(config)

    def forward(self, codes: Tensor) -> Tensor:
        """codes int64 [batch, codebook, frame] → [batch, 1, sample]."""
        latents = self.fc2(self.quantizer(codes).transpose(1, 2)).transpose(1, 2)
        out: Tensor = self.acoustic_decoder(latents)
        return out

    def decode_ids(self, codec_ids: Sequence[Sequence[int]] | Tensor, max_frames: int = MAX_FRAMES) -> Tensor:
        """Samples float32 [sample] of codec ids [frame, codebook], each with its codebook's offset, as generated.

        Frames beyond `max_frames` are dropped; ids outside their codebook are clamped to it.
        """
        size = self.config.codebook_size
        ids = torch.as_tensor(codec_ids, dtype=torch.int64, device=self.fc2.weight.device)[:max_frames]
        offsets = torch.arange(XCODEC1_NUM_CODEBOOKS, device=ids.device) * size
        codes = (ids - offsets).clamp(0, size - 1)
        out: Tensor = self(codes.T[None])[0, 0]
        return out
