"""What hears: the NV-Whisper encoder and the projector into the language model (AUDEX spec, 3.3).

Written out here instead of taken from `transformers`, which would be a heavy dependency for a hundred lines.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audex.config import AudioConfig
from oscine.layers.embedding import Embedding
from oscine.layers.norm import RMSNorm, upcast_rms_norm
from oscine.layers.whisper_encoder import LAYER_NORM_EPS, EncoderLayer


class AudioEncoder(nn.Module):
    """Log-mel frames of whole clips to one row for every four of them; padding is heard as silence, never masked."""

    def __init__(self, config: AudioConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.d_model
        self.conv1 = nn.Conv1d(config.num_mel_bins, dim, 3, padding=1)
        self.conv2 = nn.Conv1d(dim, dim, 3, stride=2, padding=1)
        self.embed_positions = Embedding(config.max_source_positions, dim)
        self.layers = nn.ModuleList(
            EncoderLayer(dim, config.encoder_attention_heads, config.encoder_ffn_dim)
            for _ in range(config.encoder_layers)
        )
        self.layer_norm = nn.LayerNorm(dim, eps=LAYER_NORM_EPS)

    def forward(self, mel: Tensor) -> Tensor:
        """mel [clip, bin, 2 * max_source_positions] → [clip, max_source_positions / 2, dim]."""
        expected = 2 * self.config.max_source_positions
        if mel.shape[-1] != expected:
            raise ValueError(f"a clip has {expected} mel frames, got {mel.shape[-1]}")
        h = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2) + self.embed_positions.weight
        for layer in self.layers:
            h = layer(h)
        out: Tensor = self.layer_norm(F.avg_pool1d(h.transpose(1, 2), 2).transpose(1, 2))
        return out


class AudioProjector(nn.Module):
    """Norm and a two-matrix block from encoder rows to embeddings of the language model."""

    def __init__(self, config: AudioConfig, text_dim: int) -> None:
        super().__init__()
        self.activation = config.projector_activation
        self.norm = RMSNorm(config.d_model, config.projector_norm_eps, upcast_rms_norm)
        self.fc1 = nn.Linear(config.d_model, config.projector_intermediate_size, bias=False)
        self.fc2 = nn.Linear(config.projector_intermediate_size, text_dim, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        """rows [..., encoder dim] → [..., text_dim]."""
        h = self.fc1(self.norm(rows))
        out: Tensor = self.fc2(F.gelu(h) if self.activation == "gelu" else h.relu().square())
        return out


class AudioTower(nn.Module):
    """Encoder and projector, named as in the checkpoint."""

    def __init__(self, config: AudioConfig, text_dim: int) -> None:
        super().__init__()
        self.audio_encoder = AudioEncoder(config)
        self.audio_projector = AudioProjector(config, text_dim)

    def forward(self, mel: Tensor) -> Tensor:
        """mel [clip, bin, frame] of whole clips → embeddings [clip, row, text_dim]."""
        dtype = self.audio_encoder.conv1.weight.dtype
        embeddings: Tensor = self.audio_projector(self.audio_encoder(mel.to(dtype)))
        return embeddings

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.audio_encoder.conv1.weight.device
