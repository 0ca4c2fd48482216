"""A codec decoder at frame rate: codes → filters for a pulse train and for noise → inverse Fourier transform.

    codes → embeddings → convolution → steps → ConvNeXt blocks → per spectrum (gain, turn, noise gain) of every bin
    codes → phase → pulses ─ windowed spectra ─ × gain, turn ┐
                    noise  ─ windowed spectra ─ × noise gain ┴→ inverse transform, windowed → overlap-add → audio

Every convolution is causal; what the decoder sees ahead is its `lookahead`: the audio comes that many frames after its
codes, the first ones are dropped, and `flush` gives those held back. It speaks and cannot listen: there is no encoder.
A stream equals the whole bit for bit: each time step is computed by the same operations in the same order.
"""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.audio8.codec.layers import StreamState
from oscine.families.audio8.codec.spectral_config import SpectralConfig
from oscine.families.audio8.codec.spectral_source import noise, pitch_codes, pulses
from oscine.layers.embedding import Embedding

LEAST_ROWS = 8
"""Matrix products of fewer rows use other kernels, whose rounding differs; they are filled up with zeros."""

MAX_LOG_GAIN = 6.0


class RowLinear(nn.Linear):
    """A linear map whose result for a row does not depend on how many rows there are."""

    def forward(self, input: Tensor) -> Tensor:
        """[batch, time, in] → [batch, time, out]."""
        rows = input.flatten(0, 1)
        missing = LEAST_ROWS - len(rows)
        filled = F.pad(rows, (0, 0, 0, missing)) if missing > 0 else rows
        return F.linear(filled, self.weight, self.bias)[: len(rows)].reshape(*input.shape[:2], -1)


class History(nn.Module):
    """Puts the last `length` time steps of a stream before its next ones; zeros before the first."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def forward(self, x: Tensor, state: StreamState | None = None) -> Tensor:
        """x [batch, time, channel] → [batch, length + time, channel]."""
        held = None if state is None else state.tensors.get(self)
        joined = F.pad(x, (0, 0, self.length, 0)) if held is None else torch.cat([held[0], x], dim=1)
        if state is not None:
            state.store(self, joined[:, joined.shape[1] - self.length :])
        return joined


class StepBlock(nn.Module):
    """ConvNeXt over [batch, time, channel]: a causal depthwise convolution, then a two-layer network per step."""

    KERNEL = 7

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.history = History(self.KERNEL - 1)
        self.taps = nn.Parameter(torch.zeros(self.KERNEL, dim))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.expand = RowLinear(dim, hidden)
        self.project = RowLinear(hidden, dim)

    def forward(self, x: Tensor, state: StreamState | None = None) -> Tensor:
        """x [batch, time, dim] → same shape."""
        padded, length = self.history(x, state), x.shape[1]
        y = padded[:, :length] * self.taps[0]
        for i in range(1, self.KERNEL):
            y = torch.addcmul(y, padded[:, i : i + length], self.taps[i])
        out: Tensor = x + self.project(F.gelu(self.expand(self.norm(y))))
        return out


class SpectralCodec(nn.Module):
    """Decoder of codes that state sounds, pitch and loudness; see the module's description."""

    CONTEXT = 3
    """Frames that the first convolution sees: the newest and those before it."""

    def __init__(self, config: SpectralConfig) -> None:
        super().__init__()
        self.config = config
        size, dim = config.codebook_dim, config.dim
        self.codebooks = nn.ModuleList(Embedding(config.codebook_size, size) for _ in range(config.num_codebooks))
        self.frames = History(self.CONTEXT - 1)
        self.context = RowLinear(self.CONTEXT * config.num_codebooks * size, dim)
        self.steps = RowLinear(dim, config.steps_per_frame * dim)
        self.blocks = nn.ModuleList(StepBlock(dim, config.hidden_dim) for _ in range(config.num_blocks))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.spectra = RowLinear(dim, config.spectra_per_step * 3 * config.num_bins)

    @property
    def identity(self) -> Tensor:
        """The table that tells this codec from another."""
        table: Tensor = self.codebooks[0].weight  # type: ignore[assignment]
        return table

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """Codes [batch, codebook, frame] → audio [batch, 1, frame * frame_length].

        The frames of a row are its columns without a negative code: the output is cut to the longest row, shorter
        rows end in zeros. Codes out of range are clamped. Nothing but absent codes: zero samples.
        """
        lengths = (codes >= 0).all(1).sum(-1)
        frames = int(lengths.max()) if len(lengths) else 0
        if frames == 0:
            return torch.zeros(len(codes), 1, 0, device=codes.device, dtype=self.identity.dtype)
        audio = self.synthesize(codes[..., :frames])
        past_end = torch.arange(audio.shape[-1], device=audio.device) >= (lengths * self.config.frame_length)[:, None]
        return audio.masked_fill(past_end[:, None], 0.0)

    def open_stream(self) -> StreamState:
        """A state for `decode_chunk` and `flush`, before the first frame."""
        return StreamState()

    @torch.no_grad()
    def decode_chunk(self, codes: Tensor, state: StreamState) -> Tensor:
        """The next frames of one stream: codes [1, codebook, frame >= 1] → what is settled of the audio [1, 1, sample].

        The first `lookahead` frames of a stream yield nothing, each later one `frame_length` samples. Any way of
        cutting equals `decode` of the whole.
        """
        audio = self._advance(codes, state)
        lookahead, seen = self.config.lookahead, state.positions.get(self, 0)
        state.positions[self] = seen + codes.shape[-1]
        return audio[..., max(0, lookahead - seen) * self.config.frame_length :]

    @torch.no_grad()
    def flush(self, state: StreamState) -> Tensor:
        """The audio [1, 1, sample] of the last frames of a stream, those that were held back."""
        config = self.config
        device = self.identity.device
        absent = torch.full((1, config.num_codebooks, config.lookahead), -1, dtype=torch.int64, device=device)
        return self.decode_chunk(absent, state)

    def stream_bytes(self) -> int:
        """Bytes of a stream's state."""
        with torch.inference_mode():
            state = self.open_stream()
            self.flush(state)
        return state.num_bytes

    def synthesize(self, codes: Tensor) -> Tensor:
        """Audio [batch, 1, frame * frame_length] of all frames given, absent ones (-1) included."""
        lookahead = self.config.lookahead
        return self._advance(F.pad(codes, (0, lookahead), value=-1), StreamState())[
            ..., lookahead * self.config.frame_length :
        ]

    def _advance(self, codes: Tensor, state: StreamState) -> Tensor:
        return self.render(self.features(codes, state), codes, state)

    def render(self, features: Tensor, codes: Tensor, state: StreamState, starts: Tensor | None = None) -> Tensor:
        """The next frame_length samples a frame [batch, 1, sample] of the stream, which is `lookahead` frames late.

        `features` are those of `codes`. `starts` int64 [batch, frame]: the phase at the start of each frame in units,
        where it is not to be the sum of the advances before it.
        """
        source = self.source(codes, state, starts)
        gains = self.spectra(features).reshape(len(features), -1, 3, self.config.num_bins)
        gain, turn, hiss = gains.unbind(2)
        real, imaginary = source[:-1].chunk(2, dim=-1)
        noise_real, noise_imaginary = source[-1:].chunk(2, dim=-1)
        gain, hiss = gain.clamp(max=MAX_LOG_GAIN).exp(), hiss.clamp(max=MAX_LOG_GAIN).exp()
        cosine, sine = gain * turn.cos(), gain * turn.sin()
        filtered_real = cosine * real - sine * imaginary + hiss * noise_real
        filtered_imaginary = cosine * imaginary + sine * real + hiss * noise_imaginary
        return self._overlap_add(torch.cat([filtered_real, filtered_imaginary], dim=-1), state).clamp(-1.0, 1.0)

    def features(self, codes: Tensor, state: StreamState) -> Tensor:
        """Codes [batch, codebook, frame] → what the next spectra are told from [batch, step, dim]."""
        present = (codes >= 0).all(1)[..., None]
        clamped = codes.clamp(0, self.config.codebook_size - 1)
        x = torch.cat([table(clamped[:, i]) for i, table in enumerate(self.codebooks)], dim=-1) * present
        near = self.frames(x, state)
        length = x.shape[1]
        x = torch.cat([near[:, i : i + length] for i in range(self.CONTEXT)], dim=-1)
        x = self.steps(self.context(x)).reshape(len(x), length * self.config.steps_per_frame, -1)
        for block in self.blocks:
            x = block(x, state)
        normed: Tensor = self.norm(x)
        return normed

    def source(self, codes: Tensor, state: StreamState, starts: Tensor | None = None) -> Tensor:
        """Spectra [batch + 1, spectrum, 2 * bin] of each row's pulses and, last, of the noise; parts side by side."""
        config, device = self.config, codes.device
        advance, bend = pitch_codes(codes, config)
        known, silence = state.tensors.get(self), (config.lookahead - 1) * config.frame_length
        if known is None:
            past = torch.zeros(3, len(codes), 2, dtype=torch.int64, device=device)
            made = torch.zeros(len(codes), silence, device=device)
        else:
            past, made = known
        if starts is None:
            ends = advance.cumsum(1) + past[0, :, -1:] + past[1, :, -1:]
            starts = (ends - advance) % config.cycle_units
        start, advance, bend = (torch.cat([p, c], dim=1) for p, c in zip(past, (starts, advance, bend), strict=True))
        made = torch.cat([made, pulses(start, advance, bend, config).flatten(1)], dim=1)
        length, overlap = codes.shape[-1] * config.frame_length, config.fft_length - config.hop_length
        state.store(self, torch.stack([start, advance, bend])[..., -2:], made[:, length:])
        position = state.positions.get(self.frames, 0)
        state.positions[self.frames] = position + length
        hiss = noise(position, length + overlap, device)
        return self.transform(torch.cat([made[:, : length + overlap], hiss[None]]))

    def transform(self, audio: Tensor) -> Tensor:
        """Audio [batch, sample] → windowed spectra [batch, spectrum, 2 * bin], real parts before imaginary ones."""
        pieces = audio.unfold(1, self.config.fft_length, self.config.hop_length)
        matrix = _forward_transform(self.config.fft_length, audio.device)
        return F.linear(pieces.flatten(0, 1), matrix).reshape(*pieces.shape[:2], -1)

    def _overlap_add(self, spectra: Tensor, state: StreamState) -> Tensor:
        """Spectra [batch, spectrum, 2 * bin] → the samples settled by them [batch, 1, spectrum * hop]."""
        size, hop = self.config.fft_length, self.config.hop_length
        matrix = _inverse_transform(size, hop, spectra.device)
        pieces = F.linear(spectra.flatten(0, 1), matrix)
        count, past = spectra.shape[1], size // hop - 1
        shares = pieces.reshape(len(spectra), count, size // hop, hop)
        held = state.tensors.get(self.norm)
        zeros = shares.new_zeros(len(shares), past, *shares.shape[2:])
        joined = torch.cat([zeros if held is None else held[0], shares], dim=1)
        state.store(self.norm, joined[:, count:])
        total = joined[:, :count, past]
        for share in range(past - 1, -1, -1):
            total = total + joined[:, past - share : past - share + count, share]
        return total.flatten(1)[:, None]


@functools.lru_cache(maxsize=8)
@torch.inference_mode(False)  # kept for whoever asks next, who may want gradients through it
def _forward_transform(size: int, device: torch.device) -> Tensor:
    """Matrix [2 * bin, size]: samples, windowed (Hann), to real and imaginary parts."""
    angles, window = _angles(size), torch.hann_window(size, dtype=torch.float64)
    return (torch.cat([angles.cos(), -angles.sin()]) * window).float().to(device)


@functools.lru_cache(maxsize=8)
@torch.inference_mode(False)
def _inverse_transform(size: int, hop: int, device: torch.device) -> Tensor:
    """Matrix [size, 2 * bin]: parts to samples, windowed so that overlap-add undoes both windows."""
    angles, window = _angles(size), torch.hann_window(size, dtype=torch.float64)
    weight = torch.full((size // 2 + 1, 1), 2.0 / size, dtype=torch.float64)
    weight[0] = weight[-1] = 1.0 / size
    both = torch.cat([weight * angles.cos(), -weight * angles.sin()]).T
    norm = window.square().sum() / hop
    return (both * window[:, None] / norm).float().contiguous().to(device)


def _angles(size: int) -> Tensor:
    """2 pi * bin * sample / size, float64 [bin, sample]."""
    turns = torch.outer(torch.arange(size // 2 + 1), torch.arange(size)) % size
    return turns.double() * (2.0 * math.pi / size)
