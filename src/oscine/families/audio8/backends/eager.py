"""Steps in torch: the slow model over cached rows, then one frame of the fast model (AUDIO8 spec, sections 3 and 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from oscine.families.audio8.backends.flat import FlatBlock, Product, flat_attention, product_of, product_with
from oscine.families.audio8.backends.protocol import SamplingRows
from oscine.families.audio8.model.cache import mixer_state
from oscine.families.audio8.model.dense import Block, additive_mask, grouped_attention
from oscine.families.audio8.model.dual_ar import DualAR, causal_mask
from oscine.kernels.fp16 import Fp16Linear, Fp16Matrix, fp16_matrix
from oscine.layers.norm import StepNorm
from oscine.runtime.cache import SequenceCache
from oscine.runtime.exact import ExactRule, check_exact
from oscine.runtime.sampling import pick, rank, replace_repeats

Choose = Callable[[int, Tensor], Tensor]
"""(codebook i in 1..C-1, its logits float32 [row, N]) → ids int64 [row]."""


class EagerBackend:
    """The backend that runs any model on any device; it reads the layers as they are at the first step."""

    def __init__(self, model: DualAR) -> None:
        self.model = model

    @cached_property
    def rule(self) -> ExactRule:
        """What holds for the products and attention of this model, measured."""
        config, model = self.model.config, self.model
        sizes: dict[type, set[tuple[int, int]]] = {
            kind: {(m.in_features, m.out_features) for m in model.modules() if isinstance(m, kind)}
            for kind in (nn.Linear, Fp16Linear)
        }
        if config.hybrid is None:  # its head is no layer
            kind = Fp16Linear if isinstance(self._semantic_head, Fp16Matrix) else nn.Linear
            sizes[kind].add((config.dim, config.codebook_size + 1))
        return check_exact(
            model.device,
            model.dtype,
            capacity=config.max_seq_len,
            linears=sizes[nn.Linear],
            fp16=sizes[Fp16Linear],
            attention=(config.n_local_heads, config.n_head // config.n_local_heads, config.head_dim),
        )

    def advance(
        self, columns: Tensor, positions: Tensor, cache: SequenceCache, rows: slice, width: int
    ) -> tuple[Tensor, Tensor]:
        """As `Backend.advance`."""
        model, config = self.model, self.model.config
        plan = cache.plan(positions, rows, width)
        visible = torch.arange(width, device=columns.device) <= positions[..., None]
        mask = additive_mask(visible, model.dtype)
        embedded = model.embed(columns)

        def attend(layer: int, q: Tensor, kv: Tensor) -> Tensor:
            return grouped_attention(q, *cache.append(layer, kv, plan), mask)

        def attend_flat(layer: int, q: Tensor, kv: Tensor) -> Tensor:
            return flat_attention(q, *cache.append(layer, kv, plan), mask)

        if config.hybrid is None:
            x, rope = embedded.flatten(0, 1), model.slow_rope.complex_on(model.device)[positions.flatten()]
            for layer, block in enumerate(self._slow):
                x = block(x, rope, attend_flat, layer)
            hidden = x.view_as(embedded)[:, -1]
        else:
            hidden = model.stack(embedded, positions, attend, lambda layer: mixer_state(cache, layer, rows))[:, -1]
        final = model.final_norm(hidden)
        return final, final if config.norm_fastlayer_input or config.hybrid is not None else hidden

    def draw(
        self, final: Tensor, fast_hidden: Tensor, rows: SamplingRows, parts: Sequence[int] | None = None
    ) -> Tensor:
        """As `Backend.draw`."""
        logits = self.compact_logits(final)
        size = logits.shape[-1] - 1  # of a codebook; the semantic logits also hold the end of speech
        seen = [logits]
        if rows.end_allowed is not None:
            logits = logits.clone()
            logits[:, -1].masked_fill_(~rows.end_allowed, float("-inf"))
        semantic = _semantic(logits, rows)

        def choose(index: int, logits: Tensor) -> Tensor:
            seen.append(logits)
            if rows.normal is None:
                return logits.argmax(dim=-1)
            noise = rows.noise.narrow(1, 2 * (size + 1) + (index - 1) * size, size)
            return pick(rank(logits, rows.normal.count), noise, rows.normal)

        codes = self.fast_frame(fast_hidden, semantic, choose, parts=parts)
        finite = (torch.cat(seen, dim=1) * 0).sum(dim=-1) == 0  # NaN where one is not
        return torch.cat([finite[:, None], semantic[:, None], codes], dim=1)

    def compact_logits(self, final: Tensor) -> Tensor:
        """final [row, dim] → float32 [row, N + 1]: the semantic ids, then end of speech."""
        return self._semantic_head(final).float()

    def fast_frame(
        self, fast_hidden: Tensor, code0: Tensor, choose: Choose, *, parts: Sequence[int] | None = None
    ) -> Tensor:
        """All codes of one frame from the slow model's state [row, dim] and the semantic code → int64 [row, C].

        Positions 0 and 1 are known beforehand and run as one pass, cut into `parts` of the rows; each later position
        takes the id that `choose` drew before it. `code0` is clamped to 0..N-1, so a row that has ended computes
        something harmless.
        """
        model, config = self.model, self.model.config
        rows = fast_hidden.shape[0]
        code0 = code0.clamp(0, config.codebook_size - 1)
        memory = fast_hidden.new_empty(
            config.n_fast_layer, rows, 2 * config.fast_n_local_heads, config.num_codebooks, config.fast_head_dim
        )
        projected = model.project_for_fast(fast_hidden)
        start = torch.stack([projected, model.fast_embeddings(code0)], dim=1)  # [row, 2, fast_dim]
        sizes = list(parts or [rows])
        pieces = zip(torch.split(start, sizes), torch.split(memory, sizes, dim=1), strict=True)
        first = [self._fast_pass(x.flatten(0, 1), own, 0).view_as(x)[:, 1] for x, own in pieces]
        ids = choose(1, self._fast_logits(torch.cat(first) if len(first) > 1 else first[0]))
        codes = [code0, ids]
        for index in range(2, config.num_codebooks):
            hidden = self._fast_pass(model.fast_embeddings(ids), memory, index)
            ids = choose(index, self._fast_logits(hidden))
            codes.append(ids)
        return torch.stack(codes, dim=1)

    def _fast_logits(self, hidden: Tensor) -> Tensor:
        logits = self._fast_head(self._fast_norm(hidden))
        return logits if logits.dtype == torch.float32 else logits.float()

    def _fast_pass(self, x: Tensor, memory: Tensor, position: int) -> Tensor:
        """Runs x [row * time, fast_dim] at positions `position`.. on the frame's memory → same shape.

        memory [layer, row, 2 * kv_head, C, head_dim]; at position 0 time is 2, else 1.
        """
        rows, time = memory.shape[1], 1 if position else 2
        end = position + time
        rope = self.model.fast_rope.complex_on(x.device).narrow(0, position, time)
        rope = rope if time == 1 else rope.repeat(rows, 1, 1)
        mask = self._pair_mask if position == 0 else None

        def attend(layer: int, q: Tensor, kv: Tensor) -> Tensor:
            own = memory[layer]
            new = kv.unsqueeze(2) if time == 1 else torch.unflatten(kv, 0, (rows, time)).transpose(1, 2)
            own.narrow(2, position, time).copy_(new)
            keys, values = own.narrow(2, 0, end).chunk(2, dim=1)
            return flat_attention(q, keys, values, mask)

        for layer, block in enumerate(self._fast):
            x = block(x, rope, attend, layer)
        return x

    # What steps run through, made at the first

    @cached_property
    def _slow(self) -> list[FlatBlock]:
        return _flat_blocks(self.model.layers)

    @cached_property
    def _fast(self) -> list[FlatBlock]:
        return _flat_blocks(self.model.fast_layers)

    @cached_property
    def _semantic_head(self) -> Product:
        if self.model.config.hybrid is not None:
            return product_of(self.model.semantic_output)
        table = self.model.compact_table()
        return fp16_matrix(table) or product_with(table)

    @cached_property
    def _fast_head(self) -> Product:
        return product_of(self.model.fast_output)

    @cached_property
    def _fast_norm(self) -> StepNorm:
        return StepNorm.of(self.model.fast_norm.weight, self.model.fast_norm.eps)

    @cached_property
    def _pair_mask(self) -> Tensor:
        """[1, 1, 2, 2], for the fast model's first two positions."""
        return causal_mask(2, self.model.fast_embeddings.weight)


def _flat_blocks(layers: nn.ModuleList) -> list[FlatBlock]:
    return [FlatBlock.of(layer) for layer in layers if isinstance(layer, Block)]


def _semantic(logits: Tensor, rows: SamplingRows) -> Tensor:
    """The compact id of each row of compact logits → int64 [row]."""
    if rows.normal is None:
        return logits.argmax(dim=-1)
    size, ranking = logits.shape[-1], rank(logits, rows.normal.count)
    drawn = pick(ranking, rows.noise.narrow(1, 0, size), rows.normal)
    if rows.high is None or rows.recent.shape[-1] == 0:
        return drawn
    again = pick(ranking, rows.noise.narrow(1, size, size), rows.high)
    return replace_repeats(drawn, again, rows.recent, size - 1, rows.ras)
