"""Training of the codec's quantisers: straight-through codes, codebook losses, dropout, revival of unused codes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audio8.codec_quantizer import Quantizer, VectorQuantizer

COMMITMENT = 0.05
MEMORY_STEPS = 12  # steps whose vectors are remembered: recent ones, for the encoder moves


@dataclass(frozen=True, kw_only=True)
class Quantised:
    """`total` and `semantic` [batch, dim, frame], `codes` [batch, codebook, frame], `loss` scalar."""

    total: Tensor
    semantic: Tensor
    codes: Tensor
    loss: Tensor


def codebooks(quantizer: Quantizer) -> Iterator[VectorQuantizer]:
    """The semantic quantiser, then the residual ones, in code order."""
    yield from quantizer.semantic_quantizer.quantizers
    yield from quantizer.quantizer.quantizers


class CodeMemory:
    """Remembers recent projected vectors and code counts; gives codes nobody uses the place of a recent vector."""

    def __init__(self, quantizer: Quantizer, generator: torch.Generator) -> None:
        self.quantizers = list(codebooks(quantizer))
        self.generator = generator
        self.vectors: list[list[Tensor]] = [[] for _ in self.quantizers]
        self.counts = [torch.zeros(q.codebook.num_embeddings) for q in self.quantizers]

    def add(self, index: int, projected: Tensor, codes: Tensor) -> None:
        """Projected [batch, codebook_dim, frame] and its codes at codebook `index`."""
        rows = projected.detach().transpose(1, 2).flatten(0, 1).cpu()
        self.vectors[index] = [*self.vectors[index][1 - MEMORY_STEPS :], rows]
        self.counts[index] += torch.bincount(codes.flatten().cpu(), minlength=len(self.counts[index]))

    @torch.no_grad()
    def revive(self, averaged: Quantizer, least: float) -> list[int]:
        """Replaces codes counted fewer than `least` times since the last call, here and in the `averaged` copy.

        Returns the number replaced in each codebook.
        """
        replaced = []
        for i, (own, copy) in enumerate(zip(self.quantizers, codebooks(averaged), strict=True)):
            dead = (self.counts[i] < least).nonzero().flatten()
            pool = torch.cat(self.vectors[i])
            rows = pool[torch.randint(0, len(pool), (len(dead),), generator=self.generator)]
            for quantizer in (own, copy):
                weight = quantizer.codebook.weight
                weight[dead.to(weight.device)] = rows.to(weight)
            self.counts[i].zero_()
            replaced.append(len(dead))
        return replaced


@torch.no_grad()
def start_from_principal_axes(quantizer: Quantizer, z: Tensor) -> None:
    """Points the projections of all codebooks at the directions in which z [row, dim] varies most.

    Two codebooks in a row share 8 (codebook_dim) axes: the second refines the first. What the codebooks add up to is
    then close to z from the first quantised step on, and the decoder need not start over.
    """
    mean = z.mean(0)
    _, _, axes = torch.linalg.svd(z - mean, full_matrices=False)
    for i, layer in enumerate(codebooks(quantizer)):
        width = layer.codebook.embedding_dim
        rows = axes[(i // 2) * width : (i // 2 + 1) * width]
        layer.in_proj.weight.copy_(rows[..., None])
        layer.in_proj.bias.copy_(-rows @ mean if i == 0 else torch.zeros(width))
        layer.out_proj.weight.copy_(rows.T[..., None])
        layer.out_proj.bias.copy_(mean if i == 0 else torch.zeros_like(mean))


def draw_depths(batch: int, num_residual: int, generator: torch.Generator) -> Tensor:
    """Residual codebooks used by each row [batch]: half of the rows all, a quarter three, a quarter any number."""
    kind = torch.rand(batch, generator=generator)
    any_number = torch.randint(1, num_residual + 1, (batch,), generator=generator)
    depths = torch.where(kind < 0.5, num_residual, any_number)
    return torch.where((kind >= 0.5) & (kind < 0.75), min(3, num_residual), depths)


def quantise(quantizer: Quantizer, z: Tensor, depths: Tensor, memory: CodeMemory) -> Quantised:
    """Quantises z [batch, dim, frame], row i with the semantic and `depths[i]` residual codebooks."""
    semantic, loss, codes = _one(quantizer.semantic_quantizer.quantizers[0], z, memory, 0)
    residual, total, all_codes = z - semantic.detach(), semantic, [codes]
    for i, layer in enumerate(quantizer.quantizer.quantizers):
        part, part_loss, codes = _one(layer, residual, memory, i + 1)
        used = (depths > i).to(z)[:, None, None]
        total = total + part * used
        residual = residual - part.detach()
        loss = loss + part_loss
        all_codes.append(codes)
    return Quantised(total=total, semantic=semantic, codes=torch.stack(all_codes, 1), loss=loss)


def _one(layer: VectorQuantizer, x: Tensor, memory: CodeMemory, index: int) -> tuple[Tensor, Tensor, Tensor]:
    projected = layer.in_proj(x)
    codes = layer.nearest(projected.detach())
    memory.add(index, projected, codes)
    rows = layer.codebook(codes).transpose(1, 2)
    power = projected.detach().square().mean().clamp_min(1e-6)
    loss = F.mse_loss(rows, projected.detach()) + COMMITMENT * F.mse_loss(projected, rows.detach())
    loss = loss / power  # relative, so that no codebook's scale outweighs the spectral losses
    straight = projected + (rows - projected).detach()
    return layer.out_proj(straight), loss, codes


class PhonemeHead(nn.Module):
    """Predicts the teacher's phonemes of a frame from its semantic vector alone; exists only in training."""

    def __init__(self, dim: int, num_symbols: int, labels_per_frame: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(dim, 256)
        self.out = nn.Linear(256, labels_per_frame * num_symbols)
        self.labels_per_frame = labels_per_frame

    def forward(self, semantic: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Semantic [batch, dim, frame], labels [batch, frame, labels_per_frame] → (cross-entropy, accuracy)."""
        logits = self.out(F.gelu(self.hidden(semantic.transpose(1, 2)))).unflatten(-1, (self.labels_per_frame, -1))
        accuracy = (logits.argmax(-1) == labels).float().mean()
        return F.cross_entropy(logits.flatten(0, 2), labels.flatten()), accuracy
