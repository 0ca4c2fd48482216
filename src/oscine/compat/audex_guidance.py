"""Classifier-free guidance over a vLLM batch: paired rows are blended; and the rules for the pair's second member.

The engine of this project needs neither: there a guided request is one job with two lanes. These are the companion
pieces with published behaviour (AUDEX spec, 7.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oscine.compat.vllm_rows import ProcessorBase, extra_args_of, update_rows
from oscine.families.audex.sampling import blend

ROLES = ("cond", "uncond")
COMPANION_SUFFIX = "__cfg_uncond"


@dataclass(frozen=True, kw_only=True)
class _Member:
    pair_id: Any
    role: str
    scale: float


class CFGLogitsProcessor(ProcessorBase):
    """A vLLM v1 logits processor: rows of one `cfg_pair_id` with both roles get their blend; all others stay."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self.device = device
        self._rows: dict[int, _Member] = {}

    @classmethod
    def validate_params(cls, params: Any) -> None:
        """Raises ValueError for a role that is not cond or uncond, or a scale that is not a number of at least 1."""
        extra = extra_args_of(params)
        role, scale = extra.get("cfg_role"), extra.get("cfg_scale", 1.0)
        if role is not None and role not in ROLES:
            raise ValueError(f"cfg_role must be one of {', '.join(ROLES)}, got {role!r}")
        if not _is_number(scale) or not scale >= 1.0:
            raise ValueError(f"cfg_scale must be a number of at least 1, got {scale!r}")

    def is_argmax_invariant(self) -> bool:
        """False: the blend changes which token is the likeliest."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follows the batch: which rows are members of pairs."""
        if batch_update is not None:
            update_rows(self._rows, batch_update, _member)

    def apply(self, logits: Tensor) -> Tensor:
        """Blends logits [row, vocab] in place and returns them; a pair that is not whole within them is left alone."""
        places: dict[tuple[Any, str], int] = {(row.pair_id, row.role): index for index, row in self._rows.items()}
        pairs = [
            (index, places[row.pair_id, "uncond"], row.scale)
            for index, row in self._rows.items()
            if row.role == "cond" and (row.pair_id, "uncond") in places
        ]
        pairs = [pair for pair in pairs if max(pair[:2]) < len(logits)]
        if pairs:
            cond, uncond, scales = zip(*pairs, strict=True)
            where = torch.tensor([cond, uncond], dtype=torch.int64).to(logits.device)
            scale = torch.tensor(scales, dtype=torch.float32).to(logits.device)[:, None]
            blended = blend(logits[where[0]], logits[where[1]], scale)
            logits.index_copy_(0, where.flatten(), blended.repeat(2, 1))
        return logits


@dataclass(frozen=True, kw_only=True)
class Companion:
    """The unconditional request that goes along with a guided one."""

    prompt: Any
    role: str
    request_id_suffix: str
    sampling_params_override: Mapping[str, Any]


def expand_cfg_prompts(prompt: Any, params: Any) -> list[Companion]:
    """The companions of a request: one for a conditional request of scale above 1, else none.

    The companion carries the guidance keys alone, so that no mask ever runs on it. `prompt` is a string or a mapping
    with the key `prompt`. Raises ValueError when the pair id or the null prompt is missing.
    """
    extra = extra_args_of(params)
    scale = extra.get("cfg_scale", 1.0)
    if extra.get("cfg_role") != "cond" or not _is_number(scale) or not scale > 1.0:
        return []
    pair_id, null_prompt = extra.get("cfg_pair_id"), extra.get("cfg_null_prompt")
    if not pair_id or not null_prompt:
        raise ValueError(f"guidance needs cfg_pair_id and cfg_null_prompt, got {pair_id!r} and {null_prompt!r}")
    companion: Any = null_prompt
    if isinstance(prompt, Mapping):
        companion = {key: value for key, value in prompt.items() if key != "prompt_token_ids"}
        companion["prompt"] = null_prompt
    override = {"extra_args": {"cfg_scale": float(scale), "cfg_role": "uncond", "cfg_pair_id": pair_id}}
    return [
        Companion(
            prompt=companion, role="uncond", request_id_suffix=COMPANION_SUFFIX, sampling_params_override=override
        )
    ]


def _member(params: Any, output_ids: Any) -> _Member | None:
    extra = extra_args_of(params)
    role, pair_id = extra.get("cfg_role"), extra.get("cfg_pair_id")
    if role not in ROLES or pair_id is None:
        return None
    return _Member(pair_id=pair_id, role=role, scale=float(extra.get("cfg_scale", 1.0)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
