"""Steps of a small dense model in two compiled calls instead of hundreds of torch's (`native.c`).

The same formulas as `EagerBackend`, which stays the path to compare with and the one that runs where there is no
compiled library.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from ctypes import POINTER, Structure, byref, c_float, c_int32, c_int64, c_void_p
from pathlib import Path

import torch
from torch import Tensor, nn

from oscine.families.audio8.backends import SMALL_WEIGHTS
from oscine.families.audio8.backends.protocol import SamplingRows
from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model.dense import Attention, Block, RopeTable
from oscine.families.audio8.model.dual_ar import DualAR
from oscine.kernels import compiled
from oscine.kernels.compiled import Interface, Keeper, Matrix
from oscine.layers.norm import RMSNorm
from oscine.runtime.cache import SequenceCache
from oscine.runtime.exact import ExactRule, RowRule, WidthRule
from oscine.runtime.sampling import Truncation

STEM = Path(__file__).with_name("libnative")
"""The libraries' path without the suffix for the processor."""

_ERRORS: dict[int, Exception] = {
    1: MemoryError("no memory for a step"),
    2: IndexError("a token, code or position lies outside the model's tables"),
}


class _Block(Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("attention_norm", "ffn_norm", "q_gain", "k_gain")),
        *((name, Matrix) for name in ("wqkv", "wo", "w1", "w2", "w3")),
    )


class _Stack(Structure):
    _fields_ = (
        ("blocks", POINTER(_Block)),
        ("turns", c_void_p),
        ("norm", c_void_p),
        ("eps", c_float),
        *((name, c_int32) for name in ("layers", "dim", "hidden", "heads", "kv_heads", "head_dim")),
    )


class _Model(Structure):
    _fields_ = (
        ("slow", _Stack),
        ("fast", _Stack),
        *((name, Matrix) for name in ("semantic", "codes", "project")),
        *((name, c_void_p) for name in ("tokens", "code_tables", "fast_codes")),
        *((name, c_int64) for name in ("semantic_begin", "semantic_end", "vocab_size", "max_positions")),
        *((name, c_int32) for name in ("num_codebooks", "codebook_size", "norm_fast_input")),
    )


class _Cache(Structure):
    _fields_ = (("layers", POINTER(c_void_p)), ("capacity", c_int64))


class _Cut(Structure):
    _fields_ = (
        ("limit", c_void_p),
        ("temperature", c_void_p),
        *((name, c_int64) for name in ("count", "limit_stride", "temperature_stride")),
    )


class _Sampling(Structure):
    _fields_ = (
        ("normal", _Cut),
        ("high", _Cut),
        *((name, c_void_p) for name in ("noise", "recent", "ras", "end_allowed")),
        *((name, c_int64) for name in ("noise_size", "window")),
    )


INTERFACE = Interface(
    number=2,  # counted up with every change to the calls
    structs=(
        ("matrix", Matrix),
        ("block", _Block),
        ("stack", _Stack),
        ("model", _Model),
        ("cache", _Cache),
        ("cut", _Cut),
        ("sampling", _Sampling),
    ),
    calls={
        "advance": [c_void_p, c_void_p, c_int32, c_int32, *[c_void_p] * 5],
        "frame": [c_void_p, c_void_p, c_int32, *[c_void_p] * 3],
    },
)


class NativeBackend:
    """The compiled steps of one model."""

    rule = ExactRule(rows=RowRule(most=256), width=WidthRule(multiple=1, block=1))
    """A row's result is the same bits in any company, at any width."""

    def __init__(self, model: DualAR, library: ctypes.CDLL) -> None:
        self.model = model
        self._library = library
        self._dim, self._columns = model.config.dim, model.config.num_codebooks + 1
        self._kept = Keeper()  # holds what the structs point at
        self._described = self._describe(model)

    def advance(
        self, columns: Tensor, positions: Tensor, cache: SequenceCache, rows: slice, width: int
    ) -> tuple[Tensor, Tensor]:
        """As `Backend.advance`."""
        count, time = positions.shape
        assert count == 1 or time == 1
        tokens, wanted = count * time, count
        flat = columns.transpose(1, 2).reshape(tokens, self._columns).contiguous()
        places, own_rows = positions.contiguous(), torch.arange(rows.start, rows.stop).repeat_interleave(time)
        final, fast_hidden = torch.empty(wanted, self._dim), torch.empty(wanted, self._dim)
        layers = (c_void_p * len(cache.layers))(*(layer.data_ptr() for layer in cache.layers))
        where = _Cache(layers, cache.capacity)
        tensors = (flat, own_rows, places, final, fast_hidden)
        _check(self._library.advance(byref(self._described), byref(where), tokens, wanted, *map(_address, tensors)))
        return final, fast_hidden

    def draw(
        self, final: Tensor, fast_hidden: Tensor, rows: SamplingRows, parts: Sequence[int] | None = None
    ) -> Tensor:
        """As `Backend.draw`."""
        count = final.shape[0]
        final, fast_hidden = final.contiguous(), fast_hidden.contiguous()
        noise, recent, ras = rows.noise, rows.recent, rows.ras
        allowed = rows.end_allowed
        for tensor in (noise, recent, ras, *([] if allowed is None else [allowed])):
            _check_rows(tensor, count)
        has_window = recent.shape[1] > 0
        sampling = _Sampling(
            _cut_of(rows.normal, count),
            _cut_of(rows.high if has_window else None, count),
            _address(noise),
            _address(recent),
            _address(ras),
            None if allowed is None else _address(allowed),
            noise.shape[1],
            recent.shape[1],
        )
        drawn = torch.empty(count, self._columns + 1, dtype=torch.long)
        tensors = (final, fast_hidden, drawn)
        _check(self._library.frame(byref(self._described), byref(sampling), count, *map(_address, tensors)))
        return drawn

    # The structs

    def _describe(self, model: DualAR) -> _Model:
        config = model.config
        project = model.fast_project_in if config.fast_dim != config.dim else None
        return _Model(
            self._stack(model.layers, model.slow_rope, model.norm, config.dim),
            self._stack(model.fast_layers, model.fast_rope, model.fast_norm, config.fast_dim),
            self._kept.matrix(model.compact_table()),
            self._linear(model.fast_output),
            Matrix() if project is None else self._linear(project),
            self._kept.floats(model.embeddings.weight),
            self._kept.floats(model.codebook_embeddings.weight),
            self._kept.floats(model.fast_embeddings.weight),
            config.semantic_begin_id,
            config.semantic_end_id,
            config.vocab_size,
            config.max_seq_len,
            config.num_codebooks,
            config.codebook_size,
            int(config.norm_fastlayer_input),
        )

    def _stack(self, layers: nn.ModuleList, rope: RopeTable, norm: RMSNorm, dim: int) -> _Stack:
        blocks = [layer for layer in layers if isinstance(layer, Block)]
        described = self._kept.array(_Block, [self._block(block) for block in blocks])
        attention, mlp = blocks[0].attention, blocks[0].feed_forward
        return _Stack(
            described,
            self._kept.floats(torch.view_as_real(rope.complex_on(torch.device("cpu")))),
            self._kept.floats(norm.weight),
            norm.eps,
            len(blocks),
            dim,
            mlp.w1.out_features,
            attention.num_heads,
            attention.num_kv_heads,
            attention.head_dim,
        )

    def _block(self, block: Block) -> _Block:
        attention: Attention = block.attention
        mlp = block.feed_forward
        return _Block(
            self._kept.floats(block.attention_norm.weight),
            self._kept.floats(block.ffn_norm.weight),
            None if attention.q_norm is None else self._kept.floats(attention.q_norm.weight),
            None if attention.k_norm is None else self._kept.floats(attention.k_norm.weight),
            *map(self._linear, (attention.wqkv, attention.wo, mlp.w1, mlp.w2, mlp.w3)),
        )

    def _linear(self, layer: nn.Module) -> Matrix:
        assert isinstance(layer, nn.Linear)
        return self._kept.matrix(layer.weight, layer.bias)


def native_backend(model: DualAR) -> NativeBackend | None:
    """The compiled steps of a model whose layers are those it was built with; None where there are none for it."""
    library = load_library()
    config = model.config
    fits = config.hybrid is None and model.device.type == "cpu" and model.dtype == torch.float32
    if library is None or not fits or num_weights(config) > SMALL_WEIGHTS:
        return None
    return NativeBackend(model, library)


def num_weights(config: LMConfig) -> int:
    """Weights that the matrix products of a frame read, one pass through each."""
    slow = (config.dim, config.n_head, config.n_local_heads, config.head_dim, config.intermediate_size)
    fast = (
        config.fast_dim,
        config.fast_n_head,
        config.fast_n_local_heads,
        config.fast_head_dim,
        config.fast_intermediate_size,
    )
    blocks = [
        layers * (dim * head_dim * 2 * (heads + kv_heads) + 3 * dim * hidden)
        for layers, (dim, heads, kv_heads, head_dim, hidden) in ((config.n_layer, slow), (config.n_fast_layer, fast))
    ]
    return sum(blocks) + config.codebook_size * (config.dim + config.fast_dim)


@functools.cache
def load_library() -> ctypes.CDLL | None:
    """The compiled library for this processor; None where there is none that fits."""
    return compiled.load_library(STEM, INTERFACE)


def _cut_of(cut: Truncation | None, rows: int) -> _Cut:
    if cut is None:
        return _Cut()
    strides = []
    for tensor in (cut.limit, cut.temperature):
        is_shared = tensor.shape[0] == 1
        _check_rows(tensor, 1 if is_shared else rows)
        strides.append(0 if is_shared else tensor.shape[1])
    return _Cut(_address(cut.limit), _address(cut.temperature), cut.count, *strides)


def _check_rows(tensor: Tensor, rows: int) -> None:
    """What a compiled call reads must be there, one row behind the other."""
    assert tensor.shape[0] == rows
    assert tensor.is_contiguous()


def _address(tensor: Tensor) -> int:
    return tensor.data_ptr()


def _check(status: int) -> None:
    if status:
        raise _ERRORS[status]
