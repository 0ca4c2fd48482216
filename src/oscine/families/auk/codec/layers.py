"""Layers of the VAE: weight-normed convolutions, the encoder, the decoder's blocks (AUK spec, 3.4)."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.families.auk.codec.filters import Activation
from oscine.families.auk.codec.streams import ConvStream, MeanStream, ResidualStream, Stream, TransposedStream
from oscine.families.auk.config import VAEConfig

OUTER_SLOPE, INNER_SLOPE = 0.2, 0.01  # LeakyReLU outside and inside a ResStack
RES_UNITS = 6


class NormedWeight(nn.Module):
    """A convolution's weight as `weight_v * weight_g / ||weight_v||`, norm over all dims but dim 0, until folded.

    `shape` is [out, in, kernel], or [in, out, kernel] of a transposed convolution: dim 0 is normed alike.
    """

    def __init__(self, shape: tuple[int, int, int], bias: int | None) -> None:
        super().__init__()
        self.shape = shape
        self.weight_g = nn.Parameter(torch.ones(shape[0], 1, 1))
        self.weight_v = nn.Parameter(torch.zeros(shape))
        self.bias = nn.Parameter(torch.zeros(bias)) if bias else None
        self.folded = False

    def effective(self) -> Tensor:
        """The weight in use."""
        if self.folded:
            return self.get_parameter("weight")
        norm = torch.linalg.vector_norm(self.weight_v, dim=(1, 2), keepdim=True)
        weight: Tensor = self.weight_v * (self.weight_g / norm)
        return weight

    def both(self) -> tuple[Tensor, Tensor | None]:
        """(weight, bias)."""
        return self.effective(), self.bias

    def fold(self) -> None:
        """Replaces the pair by one weight, computed where the module lives; does nothing the second time."""
        if not self.folded:
            weight = nn.Parameter(self.effective().detach().contiguous(), requires_grad=False)
            del self.weight_g, self.weight_v
            self.register_parameter("weight", weight)
            self.folded = True

    def unfold(self) -> None:
        """Back to an empty pair, to load other weights into."""
        if self.folded:
            old = self.get_parameter("weight")
            del self.weight
            self.weight_g = nn.Parameter(old.new_ones(self.shape[0], 1, 1))
            self.weight_v = nn.Parameter(torch.zeros_like(old))
            self.folded = False


def conv(channels_in: int, channels_out: int, kernel: int, *, bias: bool = True) -> NormedWeight:
    """The weight of a plain convolution."""
    return NormedWeight((channels_out, channels_in, kernel), channels_out if bias else None)


class ConvLayer(nn.Module):
    """A convolution of the encoder under the checkpoint's name `layer`."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, stride: int, padding: int) -> None:
        super().__init__()
        self.layer = conv(channels_in, channels_out, kernel)
        self.stride, self.padding = stride, padding

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, in, time] → [batch, out, time / stride]."""
        weight, bias = self.layer.both()
        return F.conv1d(x, weight, bias, stride=self.stride, padding=self.padding)


class ResStack(nn.Module):
    """Residual units of growing dilation: `x + conv(lrelu(dilated_conv(lrelu(x))))`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleDict({"1": conv(channels, channels, 3), "3": conv(channels, channels, 3)})
            for _ in range(RES_UNITS)
        )

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, channel, time] → same shape."""
        for index, unit in enumerate(self.layers):
            assert isinstance(unit, nn.ModuleDict)
            y = _plain_conv(unit["1"], F.leaky_relu(x, INNER_SLOPE), 2**index)
            x = x + _plain_conv(unit["3"], F.leaky_relu(y, INNER_SLOPE), 1)
        return x


def _plain_conv(weights: nn.Module, x: Tensor, dilation: int) -> Tensor:
    assert isinstance(weights, NormedWeight)
    weight, bias = weights.both()
    return F.conv1d(x, weight, bias, padding=dilation, dilation=dilation)


class AudioEncoder(nn.Module):
    """Waveform → latent statistics; nothing in it is causal. Indices are the checkpoint's (activations count too)."""

    def __init__(self, config: VAEConfig) -> None:
        super().__init__()
        channels = config.downsample_channels
        layers: dict[str, nn.Module] = {"0": ConvLayer(1, channels[0], 3, 1, 1)}
        for i, rate in enumerate(config.downsample_rates):
            layers[str(3 * i + 2)] = ConvLayer(channels[i], channels[i + 1], 2 * rate, rate, rate - 1)
            layers[str(3 * i + 3)] = ResStack(channels[i + 1])
        layers[str(3 * len(config.downsample_rates) + 2)] = ConvLayer(channels[-1], 2 * config.latent_dim, 3, 1, 1)
        self.generator = nn.ModuleDict(layers)

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, 1, sample] → [batch, 2 * latent, frame], means first, then logarithms of standard deviations."""
        for index, layer in self.generator.items():
            if isinstance(layer, ConvLayer) and index != "0":
                x = F.leaky_relu(x, OUTER_SLOPE)  # after the first convolution and after every ResStack
            x = layer(x)
        return x


def encoder_frames(num_samples: int, config: VAEConfig) -> int:
    """Latent frames that the encoder makes of `num_samples`: the whole ones, or one more."""
    for rate in config.downsample_rates:
        num_samples = (num_samples - 2) // rate + 1
    return num_samples


class AmpBlock(nn.Module):
    """For each dilation `x + conv2(act2(conv1(act1(x))))`; `activations` alternates act1, act2."""

    def __init__(self, channels: int, kernel: int, dilations: tuple[int, ...], config: VAEConfig) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(conv(channels, channels, kernel) for _ in dilations)
        self.convs2 = nn.ModuleList(conv(channels, channels, kernel) for _ in dilations)
        self.activations = nn.ModuleList(
            Activation(channels, logscale=config.snake_logscale, causal=config.act_causal)
            for _ in range(2 * len(dilations))
        )
        self.kernel, self.dilations, self.causal = kernel, dilations, config.causal

    def open(self) -> list[Stream]:
        """A fresh chain of streams."""
        chain: list[Stream] = []
        for i, dilation in enumerate(self.dilations):
            first, second = self.activations[2 * i], self.activations[2 * i + 1]
            assert isinstance(first, Activation)
            assert isinstance(second, Activation)
            branch = [
                first.open(),
                open_conv(self.convs1[i], self.kernel, dilation, causal=self.causal),
                second.open(),
                open_conv(self.convs2[i], self.kernel, 1, causal=self.causal),
            ]
            chain.append(ResidualStream(branch))
        return chain


def conv_pad(kernel: int, dilation: int, *, causal: bool) -> tuple[int, int]:
    """Zeros before and after a decoder convolution."""
    reach = dilation * (kernel - 1)
    return (reach, 0) if causal else (reach // 2, reach // 2)


def open_conv(weights: nn.Module, kernel: int, dilation: int, *, causal: bool) -> Stream:
    """A fresh stream of one decoder convolution."""
    assert isinstance(weights, NormedWeight)
    return ConvStream(weights.both, pad=conv_pad(kernel, dilation, causal=causal), dilation=dilation)


class DecoderStage(nn.ModuleList):
    """One upsampling convolution, in a list of its own as in the checkpoint (`ups.I.0`)."""

    def __init__(self, channels: int, rate: int, kernel: int, *, causal: bool) -> None:
        super().__init__([NormedWeight((channels, channels // 2, kernel), channels // 2)])
        self.rate = rate
        # Causal: what the last input adds beyond its own `rate` samples is cut.
        self.trim = (0, kernel - rate) if causal else ((kernel - rate) // 2, (kernel - rate) // 2)

    def open(self) -> Stream:
        """A fresh stream of [batch, channel, time] → [batch, channel / 2, time * rate]."""
        weights = self[0]
        assert isinstance(weights, NormedWeight)
        return TransposedStream(weights.both, stride=self.rate, trim=self.trim)


class Chain:
    """Streams one after the other."""

    def __init__(self, streams: list[Stream]) -> None:
        self._streams = streams

    def push(self, x: Tensor, final: bool) -> Tensor:
        """See `streams.Stream`."""
        for stream in self._streams:
            x = stream.push(x, final)
        return x


def mean_of(blocks: list[AmpBlock]) -> Stream:
    """A fresh stream of the mean of parallel blocks."""
    return MeanStream([block.open() for block in blocks])


def geometry(config: VAEConfig) -> tuple[float, float]:
    """(left, right) latent frames that one output sample can depend on, bounded by shapes alone (AUK spec, 3.5)."""
    act_left, act_right = (5.5, 0.0) if config.act_causal else (2.5, 3.0)
    activation = 3 + act_left, 3 + act_right
    pad = partial(conv_pad, causal=config.causal)
    left, right = 3.0, 3.0  # conv_pre
    depth = 1
    for rate, kernel in zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True):
        reach = (1.0, 0.0) if config.causal else (kernel / (2 * rate), kernel / (2 * rate))
        left, right = left + reach[0] / depth, right + reach[1] / depth
        depth *= rate
        sides = []
        for size, dilations in zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True):
            serial = [activation, activation] * len(dilations)
            serial += [pad(size, 1) for _ in dilations] + [pad(size, d) for d in dilations]
            sides.append((sum(s[0] for s in serial), sum(s[1] for s in serial)))
        left, right = left + max(s[0] for s in sides) / depth, right + max(s[1] for s in sides) / depth
    post = pad(7, 1)
    return left + (activation[0] + post[0]) / depth, right + (activation[1] + post[1]) / depth
