"""What a spectral codec filters: pulses at the pitch that the codes state, and noise.

phase   start ── middle ── end      of each frame, from its advance and bend codes, in cycles
pulses  the sum of all harmonics below half the sample rate, of equal strength, power one
noise   a hash of the sample's number, uniform, power one: the same on every machine
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oscine.families.audio8.codec.spectral_config import SpectralConfig

UNVOICED_HZ, VOICED_HZ = 30.0, 50.0
"""Pitch up to which there are no pulses, and from which they have their full strength."""

HIGHEST_SHARE = 0.98  # of half the sample rate: where harmonics end
MAX_HARMONICS = 240.0
UINT32 = 0xFFFFFFFF


def pitch_codes(codes: Tensor, config: SpectralConfig) -> tuple[Tensor, Tensor]:
    """(advance, bend) int64 [batch, frame] in units of 1 / cycle_units, of codes [batch, codebook, frame].

    Codes are clamped to their range; absent frames (-1) have none of either.
    """
    advance = (codes[:, config.advance_codebook] - config.advance_begin).clamp(0, config.advance_count - 1)
    half = config.bend_count // 2
    bend = (codes[:, config.bend_codebook] - config.bend_begin - half).clamp(-half, half - 1)
    absent = (codes < 0).any(1)
    return advance.masked_fill(absent, 0), bend.masked_fill(absent, 0)


def pulses(start: Tensor, advance: Tensor, bend: Tensor, config: SpectralConfig) -> Tensor:
    """Pulses float32 [batch, frame - 2, frame_length] of all frames but the first and the last, their neighbours.

    All int64 [batch, frame] in units; the phase runs through start, middle and end of each frame on cubic (Hermite)
    curves whose slope at a point is that between the points on both sides, so that the pitch has no steps.
    """
    middle = advance // 2 + bend
    before = (middle - advance)[:, :-2]  # points relative to the frame's start
    own, own_middle, after = advance[:, 1:-1], middle[:, 1:-1], middle[:, 2:]
    points = torch.stack([before, torch.zeros_like(own), own_middle, own, own + after], dim=-1).float()
    slopes = (points[..., 2:] - points[..., :-2]) / 2.0  # units per half frame, at start, middle and end
    half = config.frame_length // 2
    t = torch.arange(half, device=start.device, dtype=torch.float32) / half
    curve, speed = [], []
    for i in (0, 1):
        p0, p1 = points[..., i + 1, None], points[..., i + 2, None]
        m0, m1 = slopes[..., i, None], slopes[..., i + 1, None]
        c2, c3 = 3.0 * (p1 - p0) - 2.0 * m0 - m1, 2.0 * (p0 - p1) + m0 + m1
        curve.append(p0 + t * (m0 + t * (c2 + t * c3)))
        speed.append(m0 + t * (2.0 * c2 + t * (3.0 * c3)))
    units = (start[:, 1:-1] % config.cycle_units).float()[..., None] + torch.cat(curve, dim=-1)
    hertz = torch.cat(speed, dim=-1) * (config.sample_rate / (half * config.cycle_units))
    return _harmonics(units / config.cycle_units, hertz, HIGHEST_SHARE * config.sample_rate / 2.0)


def _harmonics(cycles: Tensor, hertz: Tensor, highest: float) -> Tensor:
    """Sum of cosines at all multiples of `hertz` up to `highest`, scaled to power one; phases in cycles."""
    count = (highest / hertz.clamp_min(1.0)).floor().clamp(1.0, MAX_HARMONICS)
    angle = math.pi * (cycles - cycles.round())
    below = torch.sin(angle)
    near = below.abs() < 1e-4
    ratio = torch.sin((2.0 * count + 1.0) * angle) / below.masked_fill(near, 1.0)
    total = torch.where(near, 2.0 * count, ratio - 1.0) / 2.0
    strength = ((hertz - UNVOICED_HZ) / (VOICED_HZ - UNVOICED_HZ)).clamp(0.0, 1.0)
    return total * strength * (2.0 / count).sqrt()


def noise(first: int, length: int, device: torch.device) -> Tensor:
    """White noise float32 [length] of power one for the samples `first` to `first + length` of a stream."""
    x = torch.arange(first, first + length, device=device, dtype=torch.int64) & UINT32
    for shift, factor in ((16, 0x7FEB352D), (15, 0x346CA68B)):  # both below 2^31, so products fit 63 bits
        x = ((x ^ (x >> shift)) * factor) & UINT32
    x = x ^ (x >> 16)
    return (x.float() / 2**31 - 1.0) * math.sqrt(3.0)
