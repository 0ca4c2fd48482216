"""The Qwen2.5-Omni thinker as an encoder: text (and audio) in, every layer's hidden state out (AUK spec, 3.1)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oscine.errors import InvalidRequest
from oscine.families.auk.config import ThinkerConfig, ThinkerTextConfig
from oscine.families.auk.model.audio_tower import AudioTower
from oscine.layers.norm import RMSNorm
from oscine.layers.rope import rope_table, rotate_half_split

FUSION_EPS = 1e-5


class SelfAttention(nn.Module):
    """Causal attention with fewer key than query heads; q, k and v have biases, o has none."""

    def __init__(self, config: ThinkerTextConfig) -> None:
        super().__init__()
        dim, head = config.hidden_size, config.head_size
        self.head_size = head
        self.q_proj = nn.Linear(dim, config.num_attention_heads * head)
        self.k_proj = nn.Linear(dim, config.num_key_value_heads * head)
        self.v_proj = nn.Linear(dim, config.num_key_value_heads * head)
        self.o_proj = nn.Linear(config.num_attention_heads * head, dim, bias=False)
        self.groups = config.num_attention_heads // config.num_key_value_heads

    def forward(self, x: Tensor, rope: Tensor, mask: Tensor | None) -> Tensor:
        """x [batch, token, dim] → same shape; mask [batch, 1, token, token] true where seen, None: causal."""
        q, k, v = (torch.unflatten(p(x), -1, (-1, self.head_size)) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate_half_split(q, rope), rotate_half_split(k, rope)
        k, v = (part.repeat_interleave(self.groups, dim=2) for part in (k, v))
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        projected: Tensor = self.o_proj(out.transpose(1, 2).flatten(2))
        return projected


class MLP(nn.Module):
    """SwiGLU under the checkpoint's names."""

    def __init__(self, dim: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(dim, inner, bias=False), nn.Linear(dim, inner, bias=False)
        self.down_proj = nn.Linear(inner, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., dim] → same shape."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class DecoderLayer(nn.Module):
    """One pre-norm layer."""

    def __init__(self, config: ThinkerTextConfig) -> None:
        super().__init__()
        self.self_attn = SelfAttention(config)
        self.mlp = MLP(config.hidden_size, config.intermediate_size)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, h: Tensor, rope: Tensor, mask: Tensor | None) -> Tensor:
        """h [batch, token, dim] → same shape."""
        h = h + self.self_attn(self.input_layernorm(h), rope, mask)
        out: Tensor = h + self.mlp(self.post_attention_layernorm(h))
        return out


class TextModel(nn.Module):
    """Embeddings, layers and the final norm."""

    def __init__(self, config: ThinkerTextConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class Thinker(nn.Module):
    """Text model and audio tower, without vision, talker and output head."""

    def __init__(self, config: ThinkerConfig) -> None:
        super().__init__()
        self.config = config
        self.model = TextModel(config.text)
        self.audio_tower = AudioTower(config.audio)
        self.eval().requires_grad_(False)

    @torch.inference_mode()
    def fused(
        self,
        input_ids: Tensor,
        layer_weights: Tensor,
        layer_scale: Tensor,
        *,
        audio_embeds: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """`scale * sum_i softmax(weights)_i * LayerNorm(H_i)`, float32 [batch, token, hidden], zero on padding.

        `layer_weights` [layer] and `layer_scale` [1] belong to the AuK checkpoint. Summed as the layers come, so one
        accumulator is alive.
        """
        shares = torch.softmax(layer_weights.float(), dim=0)
        if len(shares) != len(self.model.layers):
            raise InvalidRequest(f"{len(shares)} layer weights for an encoder of {len(self.model.layers)} layers")
        states = self.hidden_states(input_ids, audio_embeds=audio_embeds, attention_mask=attention_mask)
        next(states)  # the embeddings have no share
        total: Tensor | None = None
        for share, hidden in zip(shares, states, strict=True):
            term = share * F.layer_norm(hidden.float(), hidden.shape[-1:], eps=FUSION_EPS)
            total = term if total is None else total.add_(term)
        assert total is not None
        total = layer_scale.float() * total
        return total if attention_mask is None else total.masked_fill(~attention_mask.bool()[..., None], 0.0)

    @torch.inference_mode()
    def hidden_states(
        self, input_ids: Tensor, *, audio_embeds: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Iterator[Tensor]:
        """The embeddings, then each layer's output [batch, token, hidden]; the last one after the final norm.

        `audio_embeds` [audio token, hidden] replace, in order, the embeddings of the audio token; `attention_mask`
        [batch, token] is 0 on left padding. Raises InvalidRequest if their number does not match.
        """
        h = self._embed(input_ids, audio_embeds)
        positions, mask = _positions(input_ids, attention_mask)
        text = self.config.text
        rope = rope_table(positions, text.head_size, text.rope_theta)
        yield h
        for index, layer in enumerate(self.model.layers):
            h = layer(h, rope, mask)
            yield self.model.norm(h) if index == len(self.model.layers) - 1 else h

    def _embed(self, input_ids: Tensor, audio_embeds: Tensor | None) -> Tensor:
        h: Tensor = self.model.embed_tokens(input_ids)
        places = input_ids == self.config.audio_token_index
        count = 0 if audio_embeds is None else len(audio_embeds)
        if int(places.sum()) != count:
            raise InvalidRequest(f"{int(places.sum())} audio tokens in the prompt, {count} audio embeddings")
        return h if audio_embeds is None else h.masked_scatter(places[..., None], audio_embeds.to(h.dtype))


def _positions(input_ids: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """(positions [batch or 1, token], mask or None): padding on the left moves nobody."""
    length = input_ids.shape[1]
    if attention_mask is None or bool(attention_mask.all()):
        return torch.arange(length, device=input_ids.device)[None], None
    valid = attention_mask.bool()
    causal = torch.ones(length, length, dtype=torch.bool, device=input_ids.device).tril()
    # A padded query sees itself, so that no row of the softmax is empty; its output is dropped.
    seen = (causal & valid[:, None]) | torch.eye(length, dtype=torch.bool, device=input_ids.device)
    return (valid.cumsum(-1) - 1).clamp(min=0), seen[:, None]
