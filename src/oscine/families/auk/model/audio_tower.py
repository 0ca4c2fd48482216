"""The audio tower of Qwen2.5-Omni: log-mel frames → one embedding for each 40 ms (AUK spec, 3.1)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.auk.config import AudioTowerConfig
from oscine.layers.whisper_encoder import LAYER_NORM_EPS, EncoderLayer


def audio_tokens(mel_frames: int) -> int:
    """Embeddings that `mel_frames` (>= 3) valid frames give."""
    return ((mel_frames - 1) // 2 + 1 - 2) // 2 + 1


def sinusoid_positions(length: int, channels: int, device: torch.device) -> Tensor:
    """[length, channels] float32: sines, then cosines."""
    half = channels // 2
    omega = torch.exp(torch.arange(half, dtype=torch.float32, device=device) * (-math.log(10000) / (half - 1)))
    angles = torch.arange(length, dtype=torch.float32, device=device)[:, None] * omega
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class AudioTower(nn.Module):
    """Chunks of `2 * n_window` frames, each encoded by itself, then pairs of positions averaged over the whole."""

    def __init__(self, config: AudioTowerConfig) -> None:
        super().__init__()
        self.chunk = 2 * config.n_window
        self.conv1 = nn.Conv1d(config.num_mel_bins, config.d_model, 3, padding=1)
        self.conv2 = nn.Conv1d(config.d_model, config.d_model, 3, stride=2, padding=1)
        self.layers = nn.ModuleList(
            EncoderLayer(config.d_model, config.encoder_attention_heads, config.encoder_ffn_dim)
            for _ in range(config.encoder_layers)
        )
        self.ln_post = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS)
        self.proj = nn.Linear(config.d_model, config.output_dim)

    @torch.inference_mode()
    def forward(self, mel: Tensor) -> Tensor:
        """mel [bin, frame], valid frames only → [token, output_dim]."""
        whole = mel.shape[1] // self.chunk
        parts = []
        if whole:
            chunks = torch.unflatten(mel[:, : whole * self.chunk], 1, (whole, self.chunk)).transpose(0, 1)
            parts.append(self._encode(chunks).flatten(0, 1))
        if mel.shape[1] % self.chunk:
            parts.append(self._encode(mel[None, :, whole * self.chunk :])[0])
        positions = torch.cat(parts)
        pairs = torch.unflatten(positions[: len(positions) // 2 * 2], 0, (-1, 2)).mean(dim=1)
        embedded: Tensor = self.proj(self.ln_post(pairs))
        return embedded

    def _encode(self, chunks: Tensor) -> Tensor:
        """chunks [chunk, bin, frame] of one length → [chunk, position, dim]; they do not see each other."""
        x = F.gelu(self.conv1(chunks.to(self.conv1.weight.dtype)))
        x = F.gelu(self.conv2(x)).transpose(1, 2)
        x = (x.float() + sinusoid_positions(x.shape[1], x.shape[2], x.device)).to(x.dtype)
        for layer in self.layers:
            x = layer(x)
        return x
