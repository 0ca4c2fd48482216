"""Latents at encoder rate ↔ codes: downsampling, vector quantisers, upsampling (AUDIO8 spec, 3.5)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audio8.codec.config import CodecConfig
from oscine.families.audio8.codec.layers import CausalConv, CausalConvTranspose, Chain, ConvNeXt, StreamState
from oscine.families.audio8.codec.transformer import WindowTransformer
from oscine.layers.embedding import Embedding


class VectorQuantizer(nn.Module):
    """One codebook of short vectors between two projections; the nearest entry by cosine is the code."""

    def __init__(self, dim: int, codebook_size: int, codebook_dim: int, *, encodes: bool = True) -> None:
        super().__init__()
        self.in_proj = nn.Conv1d(dim, codebook_dim, 1) if encodes else nn.Identity()
        self.out_proj = nn.Conv1d(codebook_dim, dim, 1)
        self.codebook = Embedding(codebook_size, codebook_dim)

    def nearest(self, projected: Tensor) -> Tensor:
        """Indices int64 [batch, frame] of the rows closest to `projected` [batch, codebook_dim, frame]."""
        p = F.normalize(projected.transpose(1, 2), dim=-1, eps=1e-12)
        c = F.normalize(self.codebook.weight, dim=-1, eps=1e-12)
        distance = p.square().sum(-1, keepdim=True) - 2 * p @ c.T + c.square().sum(-1)
        return (-distance).argmax(-1)

    def decode(self, indices: Tensor) -> Tensor:
        """Indices [batch, frame], clamped to the codebook → vectors [batch, dim, frame]."""
        rows = self.codebook(indices.clamp(0, self.codebook.num_embeddings - 1))
        vectors: Tensor = self.out_proj(rows.transpose(1, 2))
        return vectors

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [batch, dim, frame] → (quantised vectors, same shape; indices [batch, frame])."""
        indices = self.nearest(self.in_proj(x))
        return self.decode(indices), indices


class ResidualQuantizer(nn.Module):
    """Quantisers in sequence, each coding what the ones before left over."""

    def __init__(
        self, dim: int, num_codebooks: int, codebook_size: int, codebook_dim: int, *, encodes: bool = True
    ) -> None:
        super().__init__()
        self.quantizers = nn.ModuleList(
            VectorQuantizer(dim, codebook_size, codebook_dim, encodes=encodes) for _ in range(num_codebooks)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [batch, dim, frame] → (sum of quantised vectors, codes [batch, codebook, frame])."""
        total, codes = torch.zeros_like(x), []
        for quantizer in self.quantizers:
            quantised, indices = quantizer(x - total)
            total = total + quantised
            codes.append(indices)
        return total, torch.stack(codes, 1) if codes else x.new_zeros(len(x), 0, x.shape[-1], dtype=torch.int64)

    def decode(self, codes: Tensor) -> Tensor:
        """Codes [batch, codebook, frame] → sum of vectors [batch, dim, frame]."""
        layers = (layer for layer in self.quantizers if isinstance(layer, VectorQuantizer))
        return torch.stack([layer.decode(codes[:, i]) for i, layer in enumerate(layers)]).sum(0)


class Quantizer(nn.Module):
    """The middle of the codec: latents at encoder rate ↔ codes at frame rate."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        dim, head_dim, window = config.latent_dim, config.transformer_head_dim, config.quantizer_window
        sizes, encodes = (config.semantic_codebook_size, config.residual_codebook_size), config.encodes
        self.semantic_quantizer = ResidualQuantizer(dim, 1, sizes[0], config.codebook_dim, encodes=encodes)
        self.quantizer = ResidualQuantizer(
            dim, config.n_residual_codebooks, sizes[1], config.codebook_dim, encodes=encodes
        )
        if encodes:
            self.downsample = Chain(
                *(Chain(CausalConv(dim, dim, f, stride=f), ConvNeXt(dim)) for f in config.downsample_factors)
            )
            self.pre_module = WindowTransformer(
                dim,
                config.pre_n_layer,
                heads=(config.pre_n_head, config.pre_n_head),
                head_dim=head_dim,
                hidden=config.pre_intermediate_size,
                window=window,
            )
        self.upsample = Chain(
            *(
                Chain(CausalConvTranspose(dim, dim, f, stride=f), ConvNeXt(dim))
                for f in reversed(config.downsample_factors)
            )
        )
        self.post_module = WindowTransformer(
            dim,
            config.post_n_layer,
            heads=(config.post_n_head, config.post_n_local_heads),
            head_dim=head_dim,
            hidden=config.post_intermediate_size,
            window=window,
        )

    def encode(self, latent: Tensor) -> Tensor:
        """Encoder output [batch, latent_dim, time] → codes int64 [batch, codebook, frame]."""
        z = self.pre_module(self.downsample(latent))
        semantic, first = self.semantic_quantizer(z)
        _, rest = self.quantizer(z - semantic)
        return torch.cat([first, rest], dim=1)

    def code_vectors(self, codes: Tensor) -> Tensor:
        """Codes, clamped to their codebooks → sum of their vectors [batch, latent_dim, frame] (`zq`)."""
        zq = self.semantic_quantizer.decode(codes[:, :1])
        return zq + self.quantizer.decode(codes[:, 1:]) if len(self.quantizer.quantizers) else zq

    def decode(self, codes: Tensor, state: StreamState | None = None) -> Tensor:
        """Codes [batch, codebook, frame] → latents at encoder rate [batch, latent_dim, time]."""
        latent: Tensor = self.upsample(self.post_module(self.code_vectors(codes), state), state)
        return latent
