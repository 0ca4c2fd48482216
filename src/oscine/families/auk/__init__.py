"""AuK: instruction-driven speech generation and editing with a flow-matching transformer and a VAE.

The documented callables are found here by name (AUK spec, 7); each is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oscine.compat.auk import AuKOutput, AuKPipeline, AuKRequest, get_auk_post_process_func
    from oscine.families.auk.codec.vae import AuKVAE, plan_tiles
    from oscine.families.auk.model.dit import AuKTransformer
    from oscine.families.auk.model.layouts import AuKStepContext
    from oscine.families.auk.sampler import build_time_grid, sample_latents
    from oscine.families.auk.weights.rules import dit_state_dict

__all__ = [
    "AuKOutput",
    "AuKPipeline",
    "AuKRequest",
    "AuKStepContext",
    "AuKTransformer",
    "AuKVAE",
    "build_time_grid",
    "dit_state_dict",
    "get_auk_post_process_func",
    "plan_tiles",
    "sample_latents",
]

_MODULES = {
    "compat.auk": ("AuKOutput", "AuKPipeline", "AuKRequest", "get_auk_post_process_func"),
    "families.auk.model.dit": ("AuKTransformer",),
    "families.auk.model.layouts": ("AuKStepContext",),
    "families.auk.sampler": ("build_time_grid", "sample_latents"),
    "families.auk.codec.vae": ("AuKVAE", "plan_tiles"),
    "families.auk.weights.rules": ("dit_state_dict",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"oscine.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
